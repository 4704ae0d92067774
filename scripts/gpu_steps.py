"""What gpu_report.py has on steps of training: from bench_step, from the same networks in PyTorch, and from ncu; and what
limited the clocks meanwhile. Needs Python's standard library alone."""

import csv
import glob
import json

PLANS_SLACK = 1.05  # a step's chosen plans together, over the best of all
# Of nvmlClocksEventReasons; idle (1) and chosen clocks (2) limit nothing that is running.
REASONS = {0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake",
           0x100: "display clocks"}


def read_lines(path):
    try:
        with open(path, errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def json_lines(path):
    """The objects of a file of JSON lines, without what was cut off."""
    found = []
    for line in read_lines(path):
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return found


def read_json(path):
    """The object in a file; of a benchmark's file that was cut off, the rows that are complete; else an empty one."""
    text = "\n".join(read_lines(path))
    cut = text.rfind("\n    }")
    for whole in (text, text[: cut + 6] + "\n  ]\n}" if cut >= 0 else ""):
        try:
            return json.loads(whole)
        except ValueError:
            pass
    return {}


# ---- clocks ---------------------------------------------------------------------------------------------------------


def clock_samples(path):
    """(time, SM MHz, memory MHz, degrees C, W, reasons) each; None for what the device does not tell."""
    samples = []
    for line in read_lines(path):
        when, _, values = line.partition("\t")
        words = [word.strip() for word in values.split(",")] + [""] * 5
        try:
            numbers = [float(word) if word.replace(".", "", 1).isdigit() else None for word in words[:4]]
            samples.append((float(when), *numbers, int(words[4], 16) if words[4].startswith("0x") else None))
        except ValueError:
            pass
    return samples


def clocks_between(samples, began, ended):
    """What was sampled from `began` to `ended`, which may be short: else the sample nearest to its end."""
    if not samples or not began or not ended:
        return None
    within = [one for one in samples if began <= one[0] <= ended] or [min(samples, key=lambda one: abs(one[0] - ended))]
    sm = [one[1] for one in within if one[1] is not None]
    power = [one[4] for one in within if one[4] is not None]
    bits = 0
    for one in within:
        bits |= one[5] or 0
    return {"sm_mhz": [min(sm), max(sm)] if sm else None, "watts": max(power) if power else None,
            "celsius": max((one[3] for one in within if one[3] is not None), default=None),
            "limited_by": [text for bit, text in REASONS.items() if bits & bit], "samples": len(within)}


def clock_text(clocks):
    if not clocks:
        return ""
    text = ""
    if clocks["sm_mhz"]:
        low, high = clocks["sm_mhz"]
        text = f"{high:.0f} MHz" if low == high else f"{low:.0f} to {high:.0f} MHz"
    if clocks["watts"] is not None:
        text += f", {clocks['watts']:.0f} W"
    return text + "".join(f", {reason}" for reason in clocks["limited_by"])


# ---- what was measured ----------------------------------------------------------------------------------------------


def steps(raw, named, samples):
    """A row for each network of bench_step, with its verdict."""
    rows = []
    for part in named("step_(?!plans).*"):
        report = read_json(f"{raw}/{part['name']}.json")
        for step in report.get("steps", []):
            row = dict(step, part=part["name"], verdict="pass", why="", clocks=clocks_between(samples, step.get("began_s"), step.get("ended_s")))
            refused, fallbacks = step["vendor"].get("refused", 0), step["vendor"].get("fallbacks", 0)
            if refused or fallbacks:
                row.update(verdict="FAIL", why=f"plans of {refused} shapes were refused, and {fallbacks} shapes are left to our own kernels")
            if report.get("has_vendor") and step["vendor"]["calls"] == 0:
                row.update(verdict="FAIL", why="no plan of cuDNN or cuBLASLt ran")
            for way in ("plain", "graph"):
                rates = step.get(way, {})
                for what in ("syncs", "allocations", "new_plans"):
                    if rates.get(what):
                        row.update(verdict="FAIL", why=f"{rates[what]} {what.replace('_', ' ')} in {rates['steps']} steady steps ({way})")
            rows.append(row)
    return rows


def plans(raw):
    """A row for each signature, and the network's sums."""
    rows, verdicts = [], []
    for network in read_json(f"{raw}/step_plans.json").get("plans", []):
        chosen = best = 0.0
        for one in network["signatures"]:
            row = {"workload": network["workload"], "signature": one["signature"].partition(" on ")[0], "plans": len(one["ms"]), "ms": one["ms"],
                   "chosen_us": one["chosen_ms"] and 1e3 * one["chosen_ms"], "best_us": one["best_ms"] and 1e3 * one["best_ms"],
                   "own_us": one["own_ms"] and 1e3 * one["own_ms"]}
            if row["chosen_us"] and row["best_us"]:
                chosen, best = chosen + row["chosen_us"], best + row["best_us"]
                row["ratio"] = row["chosen_us"] / row["best_us"]
            rows.append(row)
        ratio = chosen / best if best else None
        good = ratio is not None and ratio <= PLANS_SLACK
        verdicts.append({"workload": network["workload"], "ratio": ratio, "verdict": "pass" if good else "FAIL",
                         "why": "" if good else "no plan was measured" if ratio is None else
                         f"the chosen plans take {ratio:.3f} times as long as the best ones, but at most {PLANS_SLACK} is allowed"})
    return rows, verdicts


def tuned(cache):
    """What was measured for each signature, by the files of the chosen plans."""
    rows = []
    for path in sorted(glob.glob(f"{glob.escape(cache)}/athanor/plans/*.json")):
        plan = read_json(path)
        vendor, own = plan.get("vendor_ms"), plan.get("own_ms")
        if vendor and own:  # ours is given up beyond three times the vendor's
            rows.append({"signature": plan["key"].partition(" on ")[0], "vendor_us": 1e3 * vendor, "own_us": 1e3 * min(own, 3 * vendor)})
    return sorted(rows, key=lambda row: row["signature"])


def torch_rows(raw, samples):
    rows = json_lines(f"{raw}/torch_steps.jsonl") + json_lines(f"{raw}/torch_compile.jsonl")
    for row in rows:
        row["clocks"] = clocks_between(samples, row.get("began_s"), row.get("ended_s"))
    return rows


def network_of(workload):
    """Model, batch and precision; the optimizer may differ."""
    return ":".join(workload.split(":")[:3])


def best_peers(rows):
    """The fastest way of PyTorch for each network."""
    best = {}
    for row in rows:
        name = network_of(row["workload"])
        if row.get("images_per_s") and row["images_per_s"] > best.get(name, {}).get("images_per_s", 0):
            best[name] = row
    return best


def ncu(raw, named):
    """DRAM bytes by the GPU's counters, beside the account's, of the launches that were looked at."""
    rows = []
    for part in named("ncu_.*"):
        seen = [step for step in read_json(f"{raw}/{part['name']}.json").get("steps", []) if "profiled" in step]
        row = {"kernel": part["name"].removeprefix("ncu_"), "why": ""}
        if seen:
            row.update({key: seen[0]["profiled"].get(key) for key in ("layer", "pass")}, account_bytes=seen[0]["profiled"].get("bytes"))
        text, sums = read_lines(f"{raw}/{part['name']}.csv"), {}
        # Lines of ncu's own come before the table.
        for line in csv.DictReader(line for line in text if line.startswith('"')):
            try:
                value = float(line["Metric Value"].replace(",", ""))
            except (KeyError, AttributeError, ValueError):
                continue
            sums[line["Metric Name"]] = sums.get(line["Metric Name"], 0) + value
        row.update(dram_read=sums.get("dram__bytes_read.sum"), dram_written=sums.get("dram__bytes_write.sum"),
                   us=sums["gpu__time_duration.sum"] / 1e3 if "gpu__time_duration.sum" in sums else None)
        if row["dram_read"] is None:
            row["why"] = next((line.strip() for line in text if "==ERROR==" in line), part["status"])
        rows.append(row)
    return rows


def heaviest(path, count):
    """The names of the kernels that take longest, in bench_step's file."""
    kernels = [one for step in read_json(path).get("steps", []) for one in step.get("kernels", []) if one["by"] in ("ours", "vendor")]
    kernels.sort(key=lambda one: -one.get("us", 0))
    return list(dict.fromkeys(one["kernel"] for one in kernels))[:count]


# ---- as text --------------------------------------------------------------------------------------------------------


def number(value, digits=0):
    return "" if value is None else f"{value:,.{digits}f}"


def mb(value):
    return "" if value is None else f"{value / 1e6:,.1f}"


def vendor_text(report, table):
    """Lines of Markdown; table(header, rows) makes those of a table."""
    yield "\n## cuDNN and cuBLASLt\n"
    yield ("Calls by their plans; shapes whose plans were refused, and those that were left to our own kernels; and in which way the plans were "
           "made that ran: a handle and text are tried only where those of the device's properties were refused.\n")
    yield from table(["part", "calls", "refused", "left to us", "plans", "by a handle", "by text", "measured in s"],
                     [[step["part"], step["vendor"]["calls"], step["vendor"].get("refused", ""), step["vendor"].get("fallbacks", ""),
                       step["vendor"].get("plans_made", ""), step["vendor"].get("by_handle", ""), step["vendor"].get("by_text", ""),
                       number(step["vendor"].get("tuning_s"), 1)] for step in report["steps"]])
    for step in report["steps"]:
        for note in step.get("notes", []):
            yield f"- {step['part']}: {note}"


def step_text(report, table):
    peers = best_peers(report["torch"])
    rows = []
    for step in report["steps"]:
        plain, graph = step.get("plain", {}), step.get("graph", {})
        ours = max(plain.get("images_per_s") or 0, graph.get("images_per_s") or 0)
        peer = peers.get(network_of(step["workload"]))
        rows.append([step["part"].removeprefix("step_"), step["workload"], number(plain.get("images_per_s")), number(graph.get("images_per_s")),
                     f"{number(peer['images_per_s'])} ({peer['way']})" if peer else "",
                     f"{ours / peer['images_per_s']:.2f}" if peer and ours else "", number(plain.get("step_ms"), 3),
                     number(graph.get("step_ms"), 3), number(plain.get("host_ms"), 3), number(graph.get("host_ms"), 3),
                     plain.get("syncs", ""), plain.get("allocations", ""), step["vendor"]["calls"], clock_text(step["clocks"]),
                     f"{step['verdict']} {step['why']}".strip()])
    yield "\n## Steps of training\n"
    yield ("Images/s in steady state, with data on the device: queued kernel by kernel, launched as a CUDA graph, and by the fastest way of "
           "PyTorch.\n")
    yield from table(["part", "network", "images/s", "as a graph", "PyTorch", "ratio", "ms", "ms, graph", "host ms", "host ms, graph", "syncs",
                      "allocations", "vendor calls", "clocks", "verdict"], rows)
    for step in report["steps"]:
        if step.get("why_no_graph"):
            yield f"- `{step['workload']}` has no graph: {step['why_no_graph']}"
        if not step.get("kernels"):
            continue
        yield f"\n### Kernels of {step['workload']}\n"
        yield (f"A step with an event around each launch takes {number(step.get('timed_step_ms'), 3)} ms. Launches and bytes of the account: "
               f"`athanor plan`. Clocks: {clock_text(step['clocks'])}.\n")
        total = sum(one.get("us", 0) for one in step["kernels"]) or 1
        yield from table(["kernel", "by", "launches", "account", "us", "%", "MB", "TB/s", "% of copy", "TFLOP/s"],
                         [[one["kernel"], one["by"], one["launches"], one["account"], number(one.get("us"), 1),
                           number(100 * one.get("us", 0) / total, 1), mb(one["bytes"]), number(one.get("tb_s"), 2),
                           number(one.get("copy_percent")), number(one.get("tflop_s"), 1)] for one in step["kernels"]])
        calls = sorted((one for one in step["rows"] if one["by"] == "vendor" and one["launches"]), key=lambda one: -one.get("us", 0))[:30]
        if calls:
            yield "\nThe vendor's calls that take longest, by layer:\n"
            yield from table(["layer", "pass", "op", "us", "MB", "TB/s", "TFLOP/s"],
                             [[one.get("layer", ""), one.get("pass", ""), one["kernel"], number(one.get("us"), 1), mb(one["bytes"]),
                               number(one.get("tb_s"), 2), number(one.get("tflop_s"), 1)] for one in calls])
        for one in step["off_account"][:20]:
            yield f"- off the account: {one['kernel']} of {one.get('layer', 'the step')} {one.get('pass', '')}: {one['launches']} launches, {one['account']} accounted"


def other_text(report, table):
    if report["torch"]:
        yield "\n## PyTorch\n"
        yield from table(["network", "way", "images/s", "ms", "GB", "s to compile", "clocks", ""],
                         [[row["workload"], row["way"], number(row.get("images_per_s")), number(row.get("step_ms"), 3),
                           number(row.get("peak_gb"), 1), number(row.get("first_s"), 1), clock_text(row["clocks"]), row.get("error", "")]
                          for row in report["torch"]])
    if report["plans"]:
        yield "\n## Plans\n"
        yield "Every plan of each signature, measured as the library does when it chooses: the best of the first ten, and of all.\n"
        for one in report["plan_verdicts"]:
            yield f"- {one['workload']}, each signature once: ratio {number(one['ratio'], 3)}; {one['verdict']} {one['why']}".rstrip()
        yield ""
        worst = sorted(report["plans"], key=lambda row: -(row["chosen_us"] or 0) + (row["best_us"] or 0))
        yield from table(["signature", "plans", "chosen us", "best us", "ratio", "our us"],
                         [[row["signature"], row["plans"], number(row["chosen_us"], 1), number(row["best_us"], 1),
                           number(row.get("ratio"), 3), number(row["own_us"], 1)] for row in worst])
    if report["tuned"]:
        yield "\n## Tuned\n"
        yield ("The fastest plan of each signature and our own kernel (of a convolution that sums its channels: two passes), as measured when the "
               "plan was chosen. 3.00 and more is not measured to its end.\n")
        yield from table(["signature", "vendor us", "our us", "our / vendor"],
                         [[row["signature"], number(row["vendor_us"], 1), number(row["own_us"], 1),
                           number(row["own_us"] / row["vendor_us"], 2)] for row in report["tuned"]])
    if report["ncu"]:
        yield "\n## What memory moves\n"
        yield "Of one launch, the one with the most bytes: DRAM by the GPU's counters, where the cache is cold, beside the account.\n"
        yield from table(["kernel", "layer", "pass", "account MB", "DRAM read MB", "written MB", "DRAM / account", "us", ""],
                         [[row["kernel"], row.get("layer", ""), row.get("pass", ""), mb(row.get("account_bytes")), mb(row["dram_read"]),
                           mb(row["dram_written"]),
                           number((row["dram_read"] + (row["dram_written"] or 0)) / row["account_bytes"], 2)
                           if row["dram_read"] is not None and row.get("account_bytes") else "",
                           number(row["us"], 1), row["why"]] for row in report["ncu"]])
