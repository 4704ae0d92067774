#!/usr/bin/env python3
"""Times training steps or forward passes of one network in Athanor and in every peer that is installed: bench/peers/README.md.

Every way of computing it is a process of its own. For each of them in turn there are pairs, ours and then theirs. A turn counts as
the 10th percentile of its runs, which leaves out those that the machine's other work has interrupted. A ratio is the median over
all pairs, with the interval that holds it with a probability of 95 % at least. Above 1, the other takes longer.
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
from ratios import interval, processor, stolen_and_all
from workloads import NAMES, OTHER_NAMES, STEPS

HERE = pathlib.Path(__file__).resolve().parent
TORCH = {"infer": ["eager", "channels_last", "frozen", "frozen_channels_last", "compile"],
         "train": ["eager", "channels_last", "compile"]}
TOLERANCE = {"f32": 1e-4, "bf16": 5e-2, "int8": 0.5}  # of the largest logit or loss; each side of int8 rounds in its own way
MOST_STOLEN = 0.02  # of the processors' time, by other machines on the same host: above, a row says nothing
COLUMNS = "{:<18} {:<4} {:>7}  {:<38} {:>12} {:>12} {:>6}  {:<14} {:>8} {:>8} {:>8}"


class Way:
    """One way of computing a case, in a process of its own. `title` names it in the table."""

    def __init__(self, title, command, case, variant, threads, log, **environment):
        self.title, self.case, self.variant = title, case, variant
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(HERE), **environment}
        self.worker = Worker(command, env=environment, stderr=log)
        about = self.worker.about
        self.version = about["version"]
        if about["threads"] != threads:
            raise WorkerError(f"must use {threads} threads, but uses {about['threads']}")
        if variant not in about["cases"].get(case, []):
            raise WorkerError(f"has no {case}")
        self.peak_bytes = 0
        self.check = self.turn(0.1)["check"]  # logits or losses; makes it ready, too

    def turn(self, seconds):
        answer = self.worker.time(self.case, self.variant, seconds)
        self.peak_bytes = answer.get("peak_bytes", 0)  # of the process since it began
        return answer

    def seconds_per_run(self, seconds):
        return quantile(self.turn(seconds)["seconds"], 0.1)


def parse(workload):
    """resnet20-b128-train, resnet50-b16-224-infer, resnet20-b128-infer-b1: network, "train" or "infer", batch; None: no such one."""
    found = re.fullmatch(rf"({'|'.join(NAMES)})(?:-b(\d+))?(?:-224)?-(train|infer)(?:-b(\d+))?", workload)
    if not found or not (found[2] or found[4]):
        return None
    network, kind, batch = OTHER_NAMES.get(found[1], found[1]), found[3], int(found[4] or found[2])
    known = (network, batch) in STEPS or (kind == "infer" and batch in (1, 64))
    return (network, kind, batch) if known else None


def case_of(args, network, kind, batch):
    return f"{network}/{args.precision}/{kind}-b{batch}"


def others(args, folder, network, kind, batch):
    """What is measured beside ours: title, command, case, variant."""
    python, ours = f"'{args.python}'", f"'{args.ours}' '{folder}'"
    case = case_of(args, network, kind, batch)
    yield "athanor again (A/A)", ours, case, "athanor"
    if kind == "infer" and args.precision != "int8":  # as it was before Predictor
        yield "athanor unpacked", ours, f"{network}/{args.precision}/unpacked-b{batch}", "athanor"
    if kind == "infer" and args.precision == "int8":
        yield "athanor f32", ours, f"{network}/f32/infer-b{batch}", "athanor"
    for way in TORCH[kind] if args.precision != "int8" else ():
        yield f"pytorch {way}", f"{python} '{HERE}/pytorch/{kind}.py' '{folder}'", case, way
    for package in ("onnxruntime", "openvino") if kind == "infer" else ():
        yield package, f"{python} '{HERE}/onnx/infer.py' '{folder}' {package}", case, package


def error_of(ours, theirs):
    """The largest difference, of the largest value."""
    if len(ours) != len(theirs):
        return float("inf")
    return max(abs(a - b) for a, b in zip(ours, theirs)) / max(map(abs, ours))


def start(args, folder, network, kind, batch, threads, log, said, wanted=lambda title: True):
    """Ours, and the ways that are measured beside it. `said` is what is left out, and has been named."""
    ours = Way("athanor", f"'{args.ours}' '{folder}'", case_of(args, network, kind, batch), "athanor", threads, log)
    ways = []
    for title, *how in others(args, folder, network, kind, batch):
        if not wanted(title):
            continue
        try:
            ways.append(Way(title, *how, threads, log))
        except WorkerError as error:
            text = f"left out: {title.split()[0]}: {str(error).splitlines()[0][:160]}"
            if text not in said:
                print(text, flush=True)
            said.add(text)
    return ours, ways


def in_turns(args, images, threads, ours, ways, more):
    """A row for each way, of as many rounds of pairs as more(rounds so far) says. A run is so many images."""
    pairs, before, rounds = {way: [] for way in ways}, stolen_and_all(), 0
    while more(rounds):
        for way in ways:
            pairs[way].append((ours.seconds_per_run(args.seconds), way.seconds_per_run(args.seconds)))
        rounds += 1
    stolen, everything = (after - earlier for after, earlier in zip(stolen_and_all(), before))
    name, isa = processor()
    for way in ways:
        ratios = [theirs / mine for mine, theirs in pairs[way]]
        mine, theirs = (images / statistics.median(side) for side in zip(*pairs[way]))
        yield {"workload": args.workload, "precision": args.precision, "threads": threads, "peer": way.title,
               "peer_version": way.version, "ours_version": ours.version, "ours_images_per_s": mine,
               "peer_images_per_s": theirs, "ratio": statistics.median(ratios), "spread": interval(ratios),
               "pairs": len(ratios), "max_error": error_of(ours.check, way.check), "stolen": stolen / max(everything, 1),
               "ours_peak_bytes": ours.peak_bytes, "peer_peak_bytes": way.peak_bytes,
               "processor": name, "isa": isa, "cores": os.cpu_count()}


def images_of_run(network, kind, batch):
    return batch * (STEPS[network, batch] if kind == "train" else 1)


def measure(args, folder, network, kind, batch, threads, log, said):
    """The rows of one number of threads. `said` is what is left out, and has been named."""
    ours, ways = start(args, folder, network, kind, batch, threads, log, said)
    yield from in_turns(args, images_of_run(network, kind, batch), threads, ours, ways, lambda rounds: rounds < args.rounds)
    for way in [ours, *ways]:
        way.worker.end()


def save_network(args, folder, network):
    """In Athanor's form, as PyTorch has it, and as ONNX: by the commands that a user types."""
    subprocess.run([args.networks, folder, "save", network], check=True)
    for out, *flags in ([f"{network}.onnx"], [f"{network}.torch.safetensors", "--layout", "torch"]):
        subprocess.run([args.athanor, "convert", f"{folder}/{network}.safetensors", f"{folder}/{out}", *flags],
                       check=True, stdout=subprocess.DEVNULL)


def show_columns():
    print(COLUMNS.format("network", "", "threads", "beside ours", "ours img/s", "its img/s", "ratio", "95 %",
                         "error", "ours MiB", "its MiB"))


def is_wrong(row):
    return row["max_error"] > TOLERANCE[row["precision"]]


def show(row):
    low, high = row["spread"]
    wrong, void = is_wrong(row), row["stolen"] > MOST_STOLEN
    print(COLUMNS.format(row["workload"].split("-")[0], row["precision"], row["threads"],
                         f"{row['peer']} {'' if 'athanor' in row['peer'] else row['peer_version']}",
                         f"{row['ours_images_per_s']:,.0f}", f"{row['peer_images_per_s']:,.0f}", f"{row['ratio']:.2f}",
                         f"{low:.2f} .. {high:.2f}", f"{row['max_error']:.0e}", f"{row['ours_peak_bytes'] / 2**20:,.0f}",
                         f"{row['peer_peak_bytes'] / 2**20:,.0f}") + ("   WRONG RESULT" if wrong else "") +
          (f"   VOID: other machines took {row['stolen']:.0%}" if void else ""),
          flush=True)
    return wrong


def parser_of(description, seconds):
    """The arguments that compare.py and busy.py share; turns are of `seconds` by default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("workload", help="NETWORK-bN-train, NETWORK-bN-infer or NETWORK-infer-b1")
    parser.add_argument("--ours", required=True, help="the binary peer_infer or peer_train")
    parser.add_argument("--networks", required=True, help="the binary peer_infer, which makes the networks up")
    parser.add_argument("--athanor", required=True, help="the binary athanor")
    parser.add_argument("--python", required=True, help="of the environment with the peers")
    parser.add_argument("--precision", choices=list(TOLERANCE), default="f32")
    parser.add_argument("--threads", type=int, nargs="+", required=True, help="the last of them gives the summary")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each way")
    parser.add_argument("--seconds", type=float, default=seconds, help="of one turn")
    parser.add_argument("--json", help="also write the results to this file")
    return parser


def main():
    parser = parser_of(__doc__.split("\n")[0], seconds=0.2)
    args = parser.parse_args()
    asked = parse(args.workload)
    if not asked:
        sizes = " ".join(f"{network}-b{batch}" for network, batch in STEPS)
        print(f"peers: workload must be one of {sizes}, then -train, -infer or -infer-b1, but is {args.workload}", file=sys.stderr)
        return 2
    network, kind, batch = asked

    rows, wrong, said = [], False, set()
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w", encoding="utf-8") as log:
        save_network(args, folder, network)
        print(f"{args.workload} {args.precision}: {args.rounds} pairs each; load of the machine {os.getloadavg()[0]:.1f}")
        show_columns()
        for threads in args.threads:
            for row in measure(args, folder, network, kind, batch, threads, log, said):
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
