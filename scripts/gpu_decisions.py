"""What a visit to a GPU decides, by rules that were written down before it (docs/decisions.md, "What a visit decides"): each looks at
rows of the report, and says what follows, or that they were not measured. Needs Python's standard library alone."""

GUESS_SLACK = 1.02  # the vendor's first guesses together, over the chosen plans
LEVER_GAIN = 1.01  # images/s with a lever, over those without


def decision(rule, row, verdict="not measured", figures=""):
    return {"rule": rule, "row": row, "verdict": verdict, "figures": figures}


def spread(ratios):
    return f"{min(ratios):.2f} to {max(ratios):.2f} times the vendor's time at {len(ratios)} shapes"


def own_code(rule, row, ratios, otherwise):
    """`ratios`: our time over the vendor's, one for each shape; `otherwise`: the verdict if none is below 1."""
    if not ratios:
        return decision(rule, row)
    faster = sum(ratio < 1 for ratio in ratios)
    return decision(rule, row, f"keep: faster at {faster} shapes" if faster else otherwise, spread(ratios))


def ratios_of(figures, op, ours):
    """Of 16-bit rows that both made."""
    rows = {}
    for figure in figures:
        if figure["op"] == op and figure["dtype"] in ("f16", "bf16") and figure.get("median_us"):
            rows.setdefault((figure["dir"], figure["dtype"], figure["shape"]), {})[figure["impl"]] = figure["median_us"]
    return [row[ours] / row["vendor"] for row in rows.values() if ours in row and "vendor" in row]


def of_tuned(tuned, wanted):
    return [one["own_us"] / one["vendor_us"] for one in tuned if wanted(one["signature"])]


def tuning(plans):
    """Whether measuring is worth its seconds, and how many candidates are."""
    rule, row = "measuring plans, and how many candidates (VendorOptions)", "Plans"
    signatures = [one["ms"] for one in plans if one["ms"] and one["ms"][0] and one["chosen_us"]]
    if not signatures:
        return decision(rule, row)
    best_of = lambda count: sum(min(ms for ms in one[:count] if ms) for one in signatures)
    guess, all_of = best_of(1), best_of(max(map(len, signatures)))
    enough = next(count for count in range(1, 1000) if best_of(count) <= 1.01 * all_of)
    figures = f"first guesses {guess / all_of:.3f} times the best of all, of {len(signatures)} signatures; within 1 % from {enough} candidates on"
    if guess <= GUESS_SLACK * all_of:
        return decision(rule, row, "remove: the first guess will do", figures)
    return decision(rule, row, f"keep, with {enough} candidates", figures)


def graphs(steps):
    rule, row = "steps as CUDA graphs (--graph auto)", "Steps of training"
    gains = [step["graph"]["images_per_s"] / step["plain"]["images_per_s"] for step in steps
             if "_without_" not in step["part"] and step.get("graph", {}).get("images_per_s") and step.get("plain", {}).get("images_per_s")]
    if not gains:
        return decision(rule, row)
    figures = f"{min(gains):.2f} to {max(gains):.2f} times the images/s of queued steps, of {len(gains)} networks"
    return decision(rule, row, "keep" if max(gains) >= LEVER_GAIN else "remove: the host keeps up without", figures)


def levers(steps):
    """Parts named step_NETWORK_without_LEVER, beside step_NETWORK."""
    by_part = {step["part"]: step.get("plain", {}).get("images_per_s") for step in steps}
    for part, without in by_part.items():
        network, without_lever, lever = part.partition("_without_")
        if not without_lever:
            continue
        rule, row = f"{lever.replace('_', ' ')}, in {network.removeprefix('step_')}", f"Steps of training, {part} beside {network}"
        if not without or not by_part.get(network):
            yield decision(rule, row)
            continue
        gain = by_part[network] / without
        yield decision(rule, row, "keep" if gain >= LEVER_GAIN else "remove: it gains nothing", f"{gain:.3f} times the images/s of the step without")


def padding(steps):
    """A padded convolution launches pad_channels, which the account of a step does not have."""
    rule, row = "padding images of 3 channels to 4 or 8, in 16 bits (conv_padded.cu)", "Steps of training, off the account: step_resnet50 and step_resnet50_bf16"
    seen = {}  # by precision: the passes that pad
    for step in steps:
        chosen = step.get("timed_step_ms") and step["vendor"]["calls"] and not step["vendor"].get("refused")
        if step["part"] in ("step_resnet50", "step_resnet50_bf16") and chosen:
            precision = step["workload"].split(":")[2]
            seen[precision] = [one.get("pass", "") for one in step["off_account"] if one["kernel"] == "pad_channels"]
    figures = "; ".join(f"{precision}: {', '.join(passes) or 'in no pass'}" for precision, passes in seen.items())
    if any(seen.values()):
        return decision(rule, row, "keep", figures)
    return decision(rule, row, "remove: no pass is faster padded" if len(seen) == 2 else "not measured", figures)


def decisions(report):
    figures, tuned = report["figures"], report["tuned"]
    lab = "move to examples/kernel_lab"
    conv = ratios_of(figures, "conv2d", "reference") + of_tuned(tuned, lambda text: text.startswith("conv2d") and " sums" not in text and " norm" not in text)
    return [
        own_code("products by wgmma (matmul_wgmma.cu)", "Kernels, matmul: wgmma beside vendor", ratios_of(figures, "matmul", "wgmma"), lab),
        own_code("convolutions of our own, where there is cuDNN", "Kernels, conv2d: reference beside vendor; Tuned", conv, lab),
        own_code("two passes, beside a convolution that sums its channels", "Tuned: signatures with sums",
                 of_tuned(tuned, lambda text: " sums" in text and " norm" not in text), "remove: always the fused one"),
        own_code("passes of their own, beside a norm that is part of a convolution", "Tuned: signatures with norm",
                 of_tuned(tuned, lambda text: " norm" in text), "remove: always the fused one"),
        padding(report["steps"]),
        tuning(report["plans"]),
        graphs(report["steps"]),
        *levers(report["steps"]),
    ]


def decision_text(report, table):
    yield "\n## Decisions\n"
    yield ("Rules that were set before anything was measured (docs/decisions.md): code of our own that is slower than the vendor's at every "
           "shape moves from the engine to examples/kernel_lab, and a choice that no figure supports is removed.\n")
    yield from table(["what", "verdict", "figures", "row"],
                     [[one["rule"], one["verdict"], one["figures"], one["row"]] for one in report["decisions"]])
