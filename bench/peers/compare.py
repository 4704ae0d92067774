#!/usr/bin/env python3
"""Times the forward passes of one workload, NETWORK-infer-bN, in Athanor and in every peer that is installed: bench/peers/README.md.

Every way of computing it is a process of its own. For each of them in turn there are pairs, ours and then theirs. A turn counts as
the 10th percentile of its passes, which leaves out those that the machine's other work has interrupted. A ratio is the median
over all pairs, its spread their 10th and 90th percentile. Above 1, the other takes longer.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from interleave import Worker, WorkerError, quantile

HERE = pathlib.Path(__file__).resolve().parent
NETWORKS = {"lenet5": "lenet5", "resnet20": "resnet20", "resnet18": "resnet18_cifar", "resnet18_cifar": "resnet18_cifar"}
TORCH = ["eager", "channels_last", "frozen", "frozen_channels_last", "compile"]
TOLERANCE = {"f32": 1e-4, "bf16": 5e-2}  # of the largest logit
COLUMNS = "{:<10} {:<4} {:>7}  {:<38} {:>12} {:>12} {:>6}  {:<14} {:>8}"


class Way:
    """One way of computing a case, in a process of its own. `title` names it in the table."""

    def __init__(self, title, command, case, variant, threads, log):
        self.title, self.case, self.variant = title, case, variant
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(HERE)}
        self.worker = Worker(command, env=environment, stderr=log)
        about = self.worker.about
        self.version = about["version"]
        if about["threads"] != threads:
            raise WorkerError(f"must use {threads} threads, but uses {about['threads']}")
        if variant not in about["cases"].get(case, []):
            raise WorkerError(f"has no {case}")
        self.logits = self.turn(0.1)["check"]  # makes it ready, too

    def turn(self, seconds):
        return self.worker.time(self.case, self.variant, seconds)

    def seconds_per_pass(self, seconds):
        return quantile(self.turn(seconds)["seconds"], 0.1)


def others(args, folder, network, precision, batch):
    """What is measured beside ours: title, command, case, variant."""
    case, python = f"{network}/{precision}/infer-b{batch}", f"'{args.python}'"
    ours = f"'{args.ours}' '{folder}'"
    if precision == "f32":  # ours again, and ours before Predictor
        yield "athanor again (A/A)", ours, case, "athanor"
        yield "athanor unpacked", ours, f"{network}/{precision}/unpacked-b{batch}", "athanor"
    else:
        yield "athanor again (A/A)", ours, f"{network}/{precision}/unpacked-b{batch}", "athanor"
    for way in TORCH:
        yield f"pytorch {way}", f"{python} '{HERE}/pytorch/infer.py' '{folder}'", case, way
    for package in ("onnxruntime", "openvino"):
        yield package, f"{python} '{HERE}/onnx/infer.py' '{folder}' {package}", case, package


def error_of(ours, theirs):
    """The largest difference, of the largest logit."""
    if len(ours) != len(theirs):
        return float("inf")
    return max(abs(a - b) for a, b in zip(ours, theirs)) / max(map(abs, ours))


def processor():
    """Its name, and the sets of vector instructions that its first core has."""
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    flags = re.search(r"^flags\s*:(.*)$", text, re.M)[1].split()
    known = ("avx2", "avx_vnni", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16")
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.M)[1]
    family, number = (re.search(rf"^{name}\s*:\s*(\d+)$", text, re.M)[1] for name in ("cpu family", "model"))
    return f"{model} (family {family}, model {number})", [flag for flag in known if flag in flags]


def measure(args, folder, network, batch, threads, log, said):
    """The rows of one number of threads. `said` is what is left out, and has been named."""
    own = f"{network}/{args.precision}/{'infer' if args.precision == 'f32' else 'unpacked'}-b{batch}"
    ours = Way("athanor", f"'{args.ours}' '{folder}'", own, "athanor", threads, log)
    ways = []
    for title, *how in others(args, folder, network, args.precision, batch):
        try:
            ways.append(Way(title, *how, threads, log))
        except WorkerError as error:
            text = f"left out: {title.split()[0]}: {str(error).splitlines()[0][:160]}"
            if text not in said:
                print(text, flush=True)
            said.add(text)
    pairs = {way: [] for way in ways}
    for _ in range(args.rounds):
        for way in ways:
            pairs[way].append((ours.seconds_per_pass(args.seconds), way.seconds_per_pass(args.seconds)))
    name, isa = processor()
    for way in ways:
        ratios = [theirs / mine for mine, theirs in pairs[way]]
        mine, theirs = (batch / statistics.median(side) for side in zip(*pairs[way]))
        yield {"workload": args.workload, "precision": args.precision, "threads": threads, "peer": way.title,
               "peer_version": way.version, "ours_version": ours.version, "ours_images_per_s": mine,
               "peer_images_per_s": theirs, "ratio": statistics.median(ratios),
               "spread": [quantile(ratios, 0.1), quantile(ratios, 0.9)], "pairs": len(ratios),
               "max_error": error_of(ours.logits, way.logits), "processor": name, "isa": isa, "cores": os.cpu_count()}
    for way in [ours, *ways]:
        way.worker.end()


def save_networks(args, folder):
    """In Athanor's form, as PyTorch has them, and as ONNX: by the commands that a user types."""
    subprocess.run([args.ours, folder, "save"], check=True)
    for network in set(NETWORKS.values()):
        for out, *flags in ([f"{network}.onnx"], [f"{network}.torch.safetensors", "--layout", "torch"]):
            subprocess.run([args.athanor, "convert", f"{folder}/{network}.safetensors", f"{folder}/{out}", *flags],
                           check=True, stdout=subprocess.DEVNULL)


def show(row):
    low, high = row["spread"]
    wrong = row["max_error"] > TOLERANCE[row["precision"]]
    print(COLUMNS.format(row["workload"].split("-")[0], row["precision"], row["threads"],
                         f"{row['peer']} {'' if 'athanor' in row['peer'] else row['peer_version']}",
                         f"{row['ours_images_per_s']:,.0f}", f"{row['peer_images_per_s']:,.0f}", f"{row['ratio']:.2f}",
                         f"{low:.2f} .. {high:.2f}", f"{row['max_error']:.0e}") + ("   WRONG RESULT" if wrong else ""),
          flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("workload", help="NETWORK-infer-bN")
    parser.add_argument("--ours", required=True, help="the binary peer_infer")
    parser.add_argument("--athanor", required=True, help="the binary athanor")
    parser.add_argument("--python", required=True, help="of the environment with the peers")
    parser.add_argument("--precision", choices=list(TOLERANCE), default="f32")
    parser.add_argument("--threads", type=int, nargs="+", required=True, help="the last of them gives the summary")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of each way")
    parser.add_argument("--seconds", type=float, default=0.2, help="of one turn")
    parser.add_argument("--json", help="also write the results to this file")
    args = parser.parse_args()
    asked = re.fullmatch(rf"({'|'.join(NETWORKS)})-infer-b(1|64)", args.workload)
    if not asked:
        print(f"peers: workload must be one of {', '.join(NETWORKS)}, and -infer-b1 or -infer-b64, but is {args.workload}",
              file=sys.stderr)
        return 2
    network, batch = NETWORKS[asked[1]], int(asked[2])

    rows, wrong, said = [], False, set()
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w", encoding="utf-8") as log:
        save_networks(args, folder)
        print(f"{args.workload} {args.precision}: {args.rounds} pairs each; load of the machine {os.getloadavg()[0]:.1f}")
        print(COLUMNS.format("network", "", "threads", "beside ours", "ours img/s", "its img/s", "ratio", "p10 .. p90",
                             "error"))
        for threads in args.threads:
            for row in measure(args, folder, network, batch, threads, log, said):
                rows.append(row)
                wrong = show(row) or wrong
    peers = [row for row in rows if row["threads"] == args.threads[-1] and not row["peer"].startswith("athanor")]
    if not peers:
        print(f"peers: none of PyTorch, ONNX Runtime and OpenVINO runs in {args.python}", file=sys.stderr)
        return 2
    best = min(peers, key=lambda row: row["ratio"])
    if args.json:
        keys = "workload precision ours_images_per_s peer_images_per_s peer peer_version ratio spread threads".split()
        text = json.dumps({**{key: best[key] for key in keys}, "rows": rows}, indent=1)
        pathlib.Path(args.json).write_text(text + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WorkerError as error:
        sys.exit(f"peers: {error}")
