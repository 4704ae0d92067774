#!/usr/bin/env python3
"""Times training steps or forward passes beside 0 to N busy neighbours, processes that compute without a pause.

The scheduler gives every thread an equal share. So with T threads and N neighbours on C processors, a run that could use its share
in full would take (T + N) / C times as long as alone, where that is above 1. `over` is the time measured, divided by this: what is
lost because threads wait for one that another process has interrupted. A turn counts as the mean of its runs, because here
interruptions are what is measured. Ours and PyTorch's with channels_last take turns, and so do the numbers of neighbours.
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from compare import STEPS, Way, WorkerError, case_of, others, parse, parser_of, save_network
from ratios import interval, processor

# A neighbour computes until it is killed, or this process is gone.
NEIGHBOUR = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(100000): pass"
# As our train programs set it for themselves (trainer/run_main.cpp); else a worker's threads spin, as PyTorch's do.
WAITS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
COLUMNS = "{:<26} {:>10} {:>12} {:>8} {:>10} {:>6}  {:<14}"


@contextlib.contextmanager
def busy(count):
    processes = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main():
    parser = parser_of(__doc__.split("\n")[0], seconds=3)
    parser.add_argument("--neighbours", type=int, required=True, help="up to so many busy processes")
    args = parser.parse_args()
    asked = parse(args.workload)
    if not asked or args.neighbours < 1 or args.rounds < 1:
        print(f"peers: --neighbours and --rounds must be at least 1, and the workload a network's, but are {args.neighbours}, "
              f"{args.rounds} and {args.workload}", file=sys.stderr)
        return 2
    network, kind, batch = asked
    threads, images = args.threads[-1], batch * (STEPS[network, batch] if kind == "train" else 1)

    rows, counts = [], range(args.neighbours + 1)
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w", encoding="utf-8") as log:
        save_network(args, folder, network)
        ways = [Way("athanor", f"'{args.ours}' '{folder}'", case_of(args, network, kind, batch), "athanor", threads, log, **WAITS)]
        for title, *how in others(args, folder, network, kind, batch):
            if title == "pytorch channels_last":
                ways.append(Way(title, *how, threads, log))
        times = {(way, count): [] for way in ways for count in counts}
        for _ in range(args.rounds):
            for way in ways:
                for count in counts:
                    with busy(count):
                        times[way, count].append(statistics.mean(way.turn(args.seconds)["seconds"]))
        name, isa = processor()
        print(f"{args.workload} {args.precision}, {threads} threads, {args.rounds} turns each, on {os.cpu_count()} processors: {name}")
        print(COLUMNS.format("who", "neighbours", "images/s", "times", "predicted", "over", "95 %"))
        for way in ways:
            for count in counts:
                slower = [beside / alone for beside, alone in zip(times[way, count], times[way, 0])]
                predicted = max((threads + count) / os.cpu_count(), 1)
                over = [times / predicted for times in slower]
                row = {"workload": args.workload, "precision": args.precision, "threads": threads, "who": way.title,
                       "neighbours": count, "images_per_s": images / statistics.median(times[way, count]),
                       "times": statistics.median(slower), "predicted": predicted, "over": statistics.median(over),
                       "spread": interval(over), "turns": args.rounds, "processor": name, "isa": isa, "cores": os.cpu_count()}
                rows.append(row)
                print(COLUMNS.format(way.title, count, f"{row['images_per_s']:,.0f}", f"{row['times']:.2f}", f"{predicted:.2f}",
                                     f"{row['over']:.2f}", "{:.2f} .. {:.2f}".format(*row["spread"])), flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"workload": args.workload, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WorkerError as error:
        sys.exit(f"peers: {error}")
