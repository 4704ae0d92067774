#!/usr/bin/env python3
"""Times one network of each family in Athanor and in its peers, in a fixed number of minutes: bench/peers/README.md.

Training steps and forward passes of one image, in every precision. Of each package the way that was fastest in a first turn is
measured, in pairs with ours, and ours in a second process (A/A). Each case gets an equal part of the minutes that are left.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from compare import WorkerError, images_of_run, in_turns, is_wrong, save_network, show, show_columns, start
from workloads import ZOO

# Rounds of pairs: six are the fewest whose interval has 95 % confidence.
FEWEST, MOST = 6, 20
FLOATS = ["f32", "bf16"]
# Eager is what ViT likes best, channels_last the others; the frozen graph is for forward passes alone.
WAYS = {"train": ["eager", "channels_last"], "infer": ["channels_last", "frozen_channels_last"]}


def fastest_of_each(ways, seconds):
    """Ends the processes of the others."""
    first = {way: way.seconds_per_run(seconds) for way in ways}
    best = {}
    for way in sorted(ways, key=first.get):
        package = way.title.split()[0]
        if package in best:
            way.worker.end()
        best.setdefault(package, way)
    return [way for way in ways if way in best.values()]


def measure(args, folder, network, kind, log, said, seconds):
    """The rows of one network, kind and precision; takes about `seconds`."""
    until = time.monotonic() + seconds
    batch = ZOO[network] if kind == "train" else 1
    wanted = ["athanor again (A/A)", "onnxruntime", "openvino", *(f"pytorch {way}" for way in WAYS[kind] + ["compile"] * args.compile)]
    ours, ways = start(args, folder, network, kind, batch, args.threads, log, said, wanted.__contains__)
    ways = fastest_of_each(ways, args.seconds)
    longest, begun = 0, time.monotonic()

    def more(rounds):
        nonlocal longest, begun
        now = time.monotonic()
        longest, begun = max(longest, now - begun) if rounds else 0, now
        return rounds < FEWEST or (rounds < MOST and now + longest < until)

    yield from in_turns(args, images_of_run(network, kind, batch), args.threads, ours, ways, more)
    for way in [ours, *ways]:
        way.worker.end()


def summary(rows):
    """A line for each network: its ratio to the best peer, and of A/A, in every kind and precision."""
    columns = [(kind, precision) for kind in ("train", "infer") for precision in FLOATS]
    yield "| network | " + " | ".join(f"{kind} {precision}" for kind, precision in columns) + " |"
    yield "|---|" + "---|" * len(columns)
    for network, batch in ZOO.items():
        cells = []
        for kind, precision in columns:
            of_case = [row for row in rows if row["workload"] in (f"{network}-b{batch}-{kind}", f"{network}-{kind}-b1") and row["precision"] == precision]
            peers = [row for row in of_case if not row["peer"].startswith("athanor")]
            if not peers:
                cells.append("-")
                continue
            best, again = min(peers, key=lambda row: row["ratio"]), [row for row in of_case if row not in peers]
            cells.append("{:.2f} ({:.2f} .. {:.2f}) {}, A/A {}".format(best["ratio"], *best["spread"], best["peer"],
                                                                     "{:.2f} .. {:.2f}".format(*again[0]["spread"])))
        if cells != ["-"] * len(columns):
            yield f"| `{network}` | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--train", required=True, help="the binary peer_train")
    parser.add_argument("--networks", required=True, help="the binary peer_infer")
    parser.add_argument("--athanor", required=True, help="the binary athanor")
    parser.add_argument("--python", required=True, help="of the environment with the peers")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20, help="what fewest rounds take longer is added")
    parser.add_argument("--seconds", type=float, default=0.1, help="of one turn")
    parser.add_argument("--precision", choices=FLOATS, nargs="+", default=FLOATS)
    parser.add_argument("--only", choices=list(ZOO), nargs="+", default=list(ZOO), help="of these networks")
    parser.add_argument("--compile", action="store_true", help="torch.compile, too: a minute or more for each network")
    parser.add_argument("--json", help="also write the rows to this file")
    args = parser.parse_args()

    cases = [(network, kind, precision) for network in args.only for kind in ("train", "infer") for precision in args.precision]
    rows, failed, said, saved = [], False, set(), set()
    end = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w", encoding="utf-8") as log:
        show_columns()
        for index, (network, kind, precision) in enumerate(cases):
            workload = f"{network}-b{ZOO[network]}-train" if kind == "train" else f"{network}-infer-b1"
            of_case = argparse.Namespace(**{**vars(args), "workload": workload, "precision": precision,
                                            "ours": args.train if kind == "train" else args.networks})
            try:
                if network not in saved:
                    save_network(of_case, folder, network)
                saved.add(network)
                for row in measure(of_case, folder, network, kind, log, said, (end - time.monotonic()) / (len(cases) - index)):
                    rows.append(row)
                    failed = show(row) or failed
            except (WorkerError, OSError, subprocess.CalledProcessError) as error:  # the others are measured all the same
                print(f"{workload} {precision}: {error}", flush=True)
                failed = True
    print("", *summary([row for row in rows if not is_wrong(row)]), sep="\n")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
