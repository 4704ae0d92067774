#!/usr/bin/env python3
"""The report of scripts/gpu_visit.sh, from what its parts left behind. Needs Python's standard library alone.

gpu_report.py assemble RAW OUT CACHE   RAW/{meta.tsv,parts.tsv,*.json,*.jsonl,*.log} and the plans in CACHE -> OUT/report.{md,json};
                                   0 if green
gpu_report.py heaviest FILE N      the N kernels that take longest, of bench_step's file
gpu_report.py versions             versions of CUDA's libraries, as lines for meta.tsv
gpu_report.py make-cifar FOLDER    a made-up CIFAR-10 in its official file format
"""

import ctypes
import json
import os
import random
import re
import sys
import traceback

import gpu_decisions
import gpu_steps
from gpu_steps import json_lines, number, read_json, read_lines

# What a line must reach.
MEMORY_ROOF = 80.0  # % of a copy of the same size, where a kernel is bound by memory
# Kinds of kernels that cannot reach it. The values are estimates from their code: no GPU has been measured yet.
MEMORY_ROOFS = [
    # Two passes over tensors that no cache holds, and sums of channels.
    (r"batch_norm_max_pool/bwd/", 30), (r"max_pool_batch_norm/", 40),
    (r"batch_norm_gelu/bwd/", 30), (r"batch_norm_gelu/fwd/", 40), (r"batch_norm.*/bwd/", 60), (r"batch_norm", 65),
    (r"layer_norm/bwd/", 50), (r"layer_norm/", 65),
    # Tens of instructions for each element of 16 bits.
    (r"gelu/.*/(f16|bf16)/", 45), (r"cross_entropy/", 40), (r"(log_)?softmax/", 65), (r"augment", 30), (r"dropout/|normalise/", 60),
    # Overlapping windows; strided accesses.
    (r"max_pool.*/bwd/", 30), (r"._pool_|.*_pool_", 60), (r"transpose/|n..._to_n", 60),
    # Several arrays at once; a second launch for the sum of blocks.
    (r"sgd_|adamw/|measure_gradients/", 60), (r"sum_", 70),
]
AUTOMATIC_SLACK = 1.05  # `automatic` over the fastest way tried
DIGITS_ACCURACY = 0.95
LEARNED_ACCURACY = 0.20  # of ten classes, after a few hundred steps
# Without these a report is not green, whatever the others say.
REQUIRED = [r"test_((Conv|Matmul|)OnGpu|(Conv|Matmul|BatchNorm|LayerNorm|Update|UpdateStep|Training)OnDevice)", r"train_digits_f32",
            r"step_smoke", r"step_resnet50", r"bench_memory"]
SIDE = 32 * 32 * 3


def meta(raw):
    return dict(line.split("\t", 1) for line in read_lines(f"{raw}/meta.tsv") if "\t" in line)


def log_tail(raw, name, count=12):
    return [line[:300] for line in read_lines(f"{raw}/{name}.log") if line.strip()][-count:]


def parts(raw):
    found = []
    samples = gpu_steps.clock_samples(f"{raw}/clocks.tsv")
    for line in read_lines(f"{raw}/parts.tsv"):
        name, status, seconds, what, began, ended = (line.split("\t") + [""] * 6)[:6]
        part = {"name": name, "status": status, "seconds": int(seconds or 0), "what": what}
        part["clocks"] = gpu_steps.clocks_between(samples, float(began or 0), float(ended or 0))
        if status in ("failed", "timed out"):
            part["log"] = log_tail(raw, name)
        found.append(part)
    return found


# ---- tests ----------------------------------------------------------------------------------------------------------


def tests(raw, part):
    """Counts of a suite of GoogleTest, and what failed."""
    result = {"suite": part["name"].removeprefix("test_"), "status": part["status"], "passed": 0, "failed": 0, "skipped": 0, "failures": []}
    report = read_json(f"{raw}/{part['name']}.json")
    for suite in report.get("testsuites", []):
        for case in suite.get("testsuite", []):
            if case.get("failures"):
                result["failed"] += 1
                text = case["failures"][0].get("failure", "").strip().splitlines()
                result["failures"].append({"test": f"{suite['name']}.{case['name']}", "why": " ".join(text)[:400]})
            elif case.get("result") == "SKIPPED" or case.get("status") == "NOTRUN":
                result["skipped"] += 1
            else:
                result["passed"] += 1
    return result


# ---- benchmarks -----------------------------------------------------------------------------------------------------


def figure_of(row):
    op, direction, dtype, device, shape, impl = (row["name"].split("/") + [""] * 6)[:6]
    impl = impl.removesuffix("/iterations:1/manual_time")
    figure = {"id": "/".join([op, direction, dtype, device, shape, impl]), "op": op, "dir": direction,
              "dtype": dtype, "shape": shape, "impl": impl, "verdict": "-", "why": ""}
    if row.get("error_occurred"):
        figure.update(verdict="FAIL", why=row.get("error_message", "failed"))
        return figure
    for key, name in [("median_us", "median_us"), ("p10_us", "p10_us"), ("p90_us", "p90_us"), ("GB/s", "gb_s"),
                      ("GFLOP/s", "gflop_s"), ("roof_%", "roof_percent"), ("max_err", "max_error")]:
        if key in row:
            figure[name] = row[key]
    figure["roof"] = row.get("label", "")
    if "gb_s" in figure and "gflop_s" not in figure:
        reached = figure.get("roof_percent", 0)
        wanted = next((roof for pattern, roof in MEMORY_ROOFS if re.match(pattern, figure["id"])), MEMORY_ROOF)
        figure["verdict"] = "pass" if reached >= wanted else "FAIL"
        if figure["verdict"] == "FAIL":
            figure["why"] = f"{reached:.0f} % of the copy bandwidth, but at least {wanted:.0f} % are required"
    return figure


def judge_automatic(figures):
    """`automatic` against all that was tried for the same numbers."""
    groups = {}
    for figure in figures:
        if "median_us" in figure:
            tf32 = figure["impl"].endswith("_tf32")
            groups.setdefault((figure["op"], figure["dir"], figure["dtype"], figure["shape"], tf32), []).append(figure)
    for group in groups.values():
        ours = [f for f in group if f["impl"].removesuffix("_tf32") == "automatic"]
        if not ours or len(group) < 2:
            continue
        best = min(group, key=lambda f: f["median_us"])
        ratio = ours[0]["median_us"] / best["median_us"]
        ours[0]["verdict"] = "pass" if ratio <= AUTOMATIC_SLACK else "FAIL"
        ours[0]["of_fastest"] = round(ratio, 3)
        if ratio > AUTOMATIC_SLACK:
            ours[0]["why"] = f"{ratio:.2f} times as long as {best['impl']}"


def benchmarks(raw, all_parts):
    figures, context = [], {}
    for part in all_parts:
        if not part["name"].startswith("bench_"):
            continue
        report = read_json(f"{raw}/{part['name']}.json")
        rows = report.get("benchmarks", [])
        part["figures"] = len(rows)
        if report:
            context = report.get("context", context)
            known = {figure["id"] for figure in figures}
            figures += [dict(one, clocks=part["clocks"]) for one in map(figure_of, rows) if one["id"] not in known]
    judge_automatic(figures)
    keep = ("device", "sm", "multiprocessors", "l2_bytes", "memory_bytes", "copy_roof_gb_s", "fma_peak_gflop_s")
    return figures, {key: context[key] for key in keep if key in context}


# ---- trainings ------------------------------------------------------------------------------------------------------


def plan_note(lines):
    """What a run said of the first plan that was refused."""
    notes = [line.get("text", "") for line in lines if line.get("event") == "note"]
    return next((note[:300] for note in notes if "refused" in note or "our own kernel" in note), "it does not say which")


def training(raw, part):
    """The last line a run wrote, and whether it learned."""
    name = part["name"]
    result = {"name": name, "status": part["status"], "verdict": "FAIL", "why": ""}
    lines = json_lines(f"{raw}/{name}.jsonl")
    ends = [line for line in lines if line.get("event") == "end"]
    if part["status"] == "skipped":
        result.update(verdict="skipped", why=part["what"])
    elif part["status"] != "passed" or not ends:
        result["why"] = (part.get("log") or ["wrote no last line"])[-1]
    else:
        end = ends[-1]
        for key in ("test_accuracy", "test_loss", "images_per_s", "wall_s", "applied_steps", "host_syncs",
                    "peak_bytes", "weights_hash"):
            result[key] = end.get(key)
        wanted = DIGITS_ACCURACY if "digits" in name or "mnist" in name else LEARNED_ACCURACY
        accuracy, loss = end.get("test_accuracy"), end.get("test_loss")
        vendor = end.get("vendor") or {}
        result["vendor"] = vendor
        refused, fallbacks = vendor.get("refused", 0), vendor.get("fallbacks", 0)
        if refused or fallbacks:
            result["why"] = (f"cuDNN or cuBLASLt refused plans of {refused} shapes, and {fallbacks} are left to our own "
                             f"kernels: {plan_note(lines)}")
        elif loss is None:
            result["why"] = "the loss is not finite"
        elif accuracy is None or accuracy < wanted:
            result["why"] = f"test accuracy {accuracy}, but at least {wanted} is required"
        else:
            result["verdict"] = "pass"
    return result


# ---- compute-sanitizer ----------------------------------------------------------------------------------------------


def sanitizer(raw, part):
    name = part["name"]
    tool, _, suite = name.removeprefix("sanitizer_").partition("_")
    log = "\n".join(read_lines(f"{raw}/{name}.log"))
    result = {"tool": tool, "suite": suite, "verdict": "skipped", "why": part["what"]}
    if part["status"] in ("skipped", "no time left", "timed out"):
        result["why"] = part["what"] if part["status"] == "skipped" else part["status"]
    elif "Device not supported" in log:
        result["why"] = "compute-sanitizer does not support this device here"
    else:
        found = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", log)
        result["why"] = found.group(1) if found else "no summary"
        result["verdict"] = "pass" if part["status"] == "passed" and found else "FAIL"
        if result["verdict"] == "FAIL":
            result["log"] = [line for line in log.splitlines() if line.startswith("=========")][:12]
    return result


# ---- the report -----------------------------------------------------------------------------------------------------


def verdict_of(report):
    """(verdict, reasons): green; incomplete where something required was not run to its end; else red."""
    failures, missing = [], []
    earlier = report["machine"].get("done_before", "").split()
    for part in report["parts"]:
        name, status = part["name"], part["status"]
        if name.startswith(("sanitizer_", "torch_", "ncu")):  # the first has verdicts of its own, the others none
            continue
        required = name not in earlier and any(re.fullmatch(pattern, name) for pattern in REQUIRED)
        if status == "failed":
            failures.append(f"{name} failed")
        elif status == "timed out" or (status == "no time left" and required):
            missing.append(f"{name}: {status}")
        elif status == "skipped" and required and not name.endswith("_bf16"):
            missing.append(f"{name}: skipped")
        elif status == "passed" and part.get("figures") == 0:
            missing.append(f"{name}: measured nothing")
    failures += [f"{test['suite']}: {test['failed']} tests failed" for test in report["tests"] if test["failed"]]
    failures += [f"{one['name']}: {one['why']}" for one in report["trainings"]
                 if one["verdict"] == "FAIL" and one["status"] == "passed"]
    failures += [f"{one['tool']} of {one['suite']}: {one['why']}" for one in report["sanitizer"]
                 if one["verdict"] == "FAIL"]
    failures += [f"{one['workload']}: {one['why']}" for one in report["steps"] + report["plan_verdicts"] if one["verdict"] == "FAIL"]
    failures += [f"{figure['id']}: {figure['why']}" for figure in report["figures"] if figure["verdict"] == "FAIL"]
    names = [part["name"] for part in report["parts"]] + earlier
    for pattern in REQUIRED:
        if not any(re.fullmatch(pattern, name) for name in names):
            missing.append(f"{pattern}: was not reached")
    missing += [f"{test['suite']}: no test ran" for test in report["tests"]
                if test["status"] == "passed" and not test["passed"] + test["failed"] + test["skipped"]]
    if not any(test["passed"] for test in report["tests"]):
        missing.append("no test passed")
    return ("red" if failures else "incomplete" if missing else "green"), failures + missing


def table(header, rows):
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"


def figure_row(figure):
    error = figure.get("max_error")
    return [figure["dir"], figure["dtype"], figure["shape"], figure["impl"], number(figure.get("median_us"), 1),
            number(figure.get("p10_us"), 1), number(figure.get("p90_us"), 1), number(figure.get("gb_s")),
            number(figure.get("gflop_s")), number(figure.get("roof_percent")), figure.get("roof", ""),
            "" if error is None else f"{error:.1e}", figure["verdict"], gpu_steps.clock_text(figure["clocks"])]


def machine_lines(report):
    machine, versions, roofs = report["machine"], report["versions"], report["roofs"]
    yield f"- device: {machine.get('gpu', '?')}, sm_{machine.get('sm', '?')}, {machine.get('memory', '?')}; driver {machine.get('driver', '?')}; {machine.get('host', '')}"
    yield "- versions: " + ", ".join(f"{name} {value}" for name, value in versions.items())
    yield f"- commit: {report['commit'] or 'unknown'}; programs: {machine.get('programs', '?')}"
    yield f"- clocks (SM MHz, memory MHz, degrees C, W): before {machine.get('clocks_before', '?')}; after {machine.get('clocks_after', '?')}"
    if roofs:
        yield (f"- roofs, measured: copy {roofs.get('copy_roof_gb_s', '?')} GB/s, "
               f"FMA {roofs.get('fma_peak_gflop_s', '?')} GFLOP/s; L2 {roofs.get('l2_bytes', '?')} bytes")
    yield f"- made by `{machine.get('command', '?')}`, {machine.get('started', '?')} to {machine.get('ended', '?')}"


def markdown(report):
    yield f"# A visit to a GPU: {report['verdict'].upper()}"
    yield ""
    yield from machine_lines(report)
    if report["reasons"]:
        yield "\n## Why it is not green\n"
        yield from (f"- {reason}" for reason in report["reasons"])
    left_out = [part for part in report["parts"] if part["status"] in ("skipped", "no time left")]
    if left_out:
        yield "\n## What was not done\n"
        yield from (f"- {part['name']}: {part['status']}: {part['what']}" for part in left_out if part["status"] == "skipped")
        late = [part["name"] for part in left_out if part["status"] == "no time left"]
        if late:
            yield f"- no time was left for {len(late)} parts: {', '.join(late)}"
    yield from gpu_steps.vendor_text(report, table)
    yield from gpu_decisions.decision_text(report, table)
    yield "\n## Parts\n"
    yield from table(["part", "status", "s", "clocks"],
                     [[p["name"], p["status"], p["seconds"], gpu_steps.clock_text(p["clocks"])] for p in report["parts"]
                      if not p["name"].startswith("sanitizer_") and p["status"] != "no time left"])
    yield from gpu_steps.step_text(report, table)
    yield from gpu_steps.other_text(report, table)
    yield "\n## Tests\n"
    yield from table(["suite", "passed", "failed", "skipped"],
                     [[t["suite"], t["passed"], t["failed"], t["skipped"]] for t in report["tests"]])
    for test in report["tests"]:
        for failure in test["failures"]:
            yield f"- `{failure['test']}`: {failure['why']}"
    yield "\n## Trainings\n"
    yield from table(["run", "steps", "images/s", "test accuracy", "test loss", "verdict"],
                     [[t["name"], t.get("applied_steps", ""), number(t.get("images_per_s")),
                       t.get("test_accuracy", ""), t.get("test_loss", ""), f"{t['verdict']} {t['why']}".strip()]
                      for t in report["trainings"]])
    yield f"\nCIFAR-10: {report['machine'].get('cifar10', 'not reached')}."
    yield "\n## compute-sanitizer\n"
    yield from table(["tool", "tests of", "verdict", ""],
                     [[s["tool"], s["suite"], s["verdict"], s["why"]] for s in report["sanitizer"]])
    yield "\n## Kernels\n"
    yield (f"A kernel bound by memory passes from {MEMORY_ROOF:.0f} % of the copy bandwidth measured here, or a lower part for those "
           f"listed in `scripts/gpu_report.py`; `automatic` "
           f"within {100 * AUTOMATIC_SLACK - 100:.0f} % of the fastest way tried.")
    for op in dict.fromkeys(figure["op"] for figure in report["figures"]):
        yield f"\n### {op}\n"
        rows = [figure for figure in report["figures"] if figure["op"] == op]
        yield from table(["pass", "dtype", "shape", "impl", "median us", "p10", "p90", "GB/s", "GFLOP/s", "% of roof",
                          "roof", "max error", "verdict", "clocks"], [figure_row(figure) for figure in rows])
        for figure in rows:
            if figure["why"]:
                yield f"- `{figure['id']}`: {figure['why']}"
    for part in report["parts"]:
        if part.get("log"):
            yield f"\n## The end of {part['name']}\n\n```"
            yield from part["log"]
            yield "```"


def write(path, text):
    with open(path + ".part", "w") as file:
        file.write(text)
    os.replace(path + ".part", path)


def assemble(raw, out, cache):
    """Whatever a part left behind, there is a report: what cannot be read is a reason in it."""
    broken = []

    def made(what, make, otherwise):
        try:
            return make()
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            broken.append(f"the report's {what} could not be made: {type(error).__name__}: {error} ({last.name}, line {last.lineno})")
            return otherwise

    machine = meta(raw)
    manifest = read_json(f"{raw}/MANIFEST.json")
    versions = {key.removeprefix("version_"): value for key, value in machine.items() if key.startswith("version_")}
    machine = {key: value for key, value in machine.items() if not key.startswith("version_")}
    all_parts = made("parts", lambda: parts(raw), [])
    named = lambda pattern: [part for part in all_parts if re.fullmatch(pattern, part["name"])]
    figures, roofs = made("kernels", lambda: benchmarks(raw, all_parts), ([], {}))
    samples = made("clocks", lambda: gpu_steps.clock_samples(f"{raw}/clocks.tsv"), [])
    plan_rows, plan_verdicts = made("plans", lambda: gpu_steps.plans(raw), ([], []))
    report = {
        "commit": manifest.get("commit") or machine.pop("commit", ""),
        "machine": machine,
        "versions": versions,
        "bundle": manifest,
        "roofs": roofs,
        "parts": all_parts,
        "tests": made("tests", lambda: [tests(raw, part) for part in named("test_.*")], []),
        "trainings": made("trainings", lambda: [training(raw, part) for part in named("train_.*")], []),
        "steps": made("steps", lambda: gpu_steps.steps(raw, named, samples), []),
        "torch": made("rows of PyTorch", lambda: gpu_steps.torch_rows(raw, samples), []),
        "plans": plan_rows,
        "plan_verdicts": plan_verdicts if named("step_plans") and named("step_plans")[0]["status"] == "passed" else [],
        "tuned": made("tuned plans", lambda: gpu_steps.tuned(cache), []),
        "ncu": made("counters", lambda: gpu_steps.ncu(raw, named), []),
        "sanitizer": made("compute-sanitizer", lambda: [sanitizer(raw, part) for part in named("sanitizer_.*")], []),
        "figures": figures,
    }
    report["decisions"] = made("decisions", lambda: gpu_decisions.decisions(report), [])
    report["verdict"], report["reasons"] = made("verdict", lambda: verdict_of(report), ("red", []))
    lines = []
    made("text", lambda: lines.extend(markdown(report)), None)
    if broken:
        report["verdict"] = "red" if report["verdict"] == "red" else "incomplete"
        report["reasons"] += broken
        lines[:1] = [f"# A visit to a GPU: {report['verdict'].upper()}"]
        lines += ["\n## What could not be read\n", *(f"- {line}" for line in broken)]
    write(f"{out}/report.json", json.dumps(report, indent=1) + "\n")
    write(f"{out}/report.md", "\n".join(lines) + "\n")
    passed = sum(test["passed"] for test in report["tests"])
    print(f"{report['verdict'].upper()}: {passed} tests passed, {len(figures)} figures; {out}/report.md")
    for reason in report["reasons"][:20]:
        print(f"  {reason}")
    if len(report["reasons"]) > 20:
        print(f"  and {len(report['reasons']) - 20} more")
    return 0 if report["verdict"] == "green" else 1


# ---- versions and data ----------------------------------------------------------------------------------------------


def library(*names):
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return None


def written(function):
    """What a function writes to its argument; nothing if it fails."""
    value = ctypes.c_int()
    return value.value if function(ctypes.byref(value)) == 0 else None


def versions():
    """Each library has its version as one number: major, minor and perhaps patch, in decimal places of its own."""
    found = []
    if runtime := library("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
        found += [("CUDA", written(runtime.cudaRuntimeGetVersion), 1000, 10), ("CUDA of the driver", written(runtime.cudaDriverGetVersion), 1000, 10)]
    for name, function, *files in (("cuDNN", "cudnnGetVersion", "libcudnn.so.9"),
                                   ("cuBLASLt", "cublasLtGetVersion", "libcublasLt.so.13", "libcublasLt.so.12")):
        if file := library(*files):
            returns = getattr(file, function)
            returns.restype = ctypes.c_size_t
            found.append((name, returns(), 10000, 100))
    if nccl := library("libnccl.so.2"):
        found.append(("NCCL", written(nccl.ncclGetVersion), 10000, 100))
    for name, value, major, minor in found:
        if value is not None:
            print(f"version_{name}\t{value // major}.{value % major // minor}" + (f".{value % minor}" if minor == 100 else ""))
    return 0


def make_cifar(folder):
    """Each class is a pattern, and each image its class' pattern under noise in the five low bits of every byte."""
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(1)
    low_bits = int.from_bytes(bytes([0x1F]) * SIDE, "little")
    patterns = [int.from_bytes(rng.randbytes(SIDE), "little") & ~low_bits for _ in range(10)]
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        with open(f"{folder}/{name}", "wb") as file:
            for _ in range(10000):
                label = rng.randrange(10)
                noise = int.from_bytes(rng.randbytes(SIDE), "little") & low_bits
                file.write(bytes([label]) + (patterns[label] | noise).to_bytes(SIDE, "little"))
    return 0


def main(arguments):
    if len(arguments) == 4 and arguments[0] == "assemble":
        return assemble(*arguments[1:])
    if len(arguments) == 3 and arguments[0] == "heaviest":
        print(*gpu_steps.heaviest(arguments[1], int(arguments[2])), sep="\n")
        return 0
    if arguments == ["versions"]:
        return versions()
    if len(arguments) == 2 and arguments[0] == "make-cifar":
        return make_cifar(arguments[1])
    print(__doc__.strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
