#!/usr/bin/env python3
"""Times two workers in turns, in one run, and prints how they compare: bench/peers/README.md."""

import argparse
import json
import math
import statistics
import subprocess
import sys


class WorkerError(Exception):
    """What a worker says it cannot do, or that it has ended."""


class Worker:
    def __init__(self, command, **options):
        """options: as subprocess.Popen's."""
        self.process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        **options)
        self.command = command
        self.about = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise WorkerError(f"`{self.command}` ended without an answer, with code {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def time(self, case, variant, seconds=0.5):
        self.process.stdin.write(f"{case} {variant} {seconds}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        """Of its input, and so of the worker."""
        self.process.stdin.close()
        self.process.wait()


def differ(ours, theirs, tolerance):
    return len(ours) != len(theirs) or any(
        not math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) for a, b in zip(ours, theirs))


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", required=True, help="command of our worker")
    parser.add_argument("--peer", required=True, help="command of the peer's")
    parser.add_argument("--only", default="", help="cases whose name contains this, and no others")
    parser.add_argument("--without", default="/tiny", help="but none that contains this")
    parser.add_argument("--rounds", type=int, default=5, help="how often it is each worker's turn")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="between the values of both that must be equal")
    parser.add_argument("--json", help="also write the results to this file")
    args = parser.parse_args()

    ours, peer = Worker(args.ours), Worker(args.peer)
    cases = [case for case in ours.about["cases"]
             if case in peer.about["cases"] and args.only in case and not (args.without and args.without in case)]
    if not cases:
        sys.exit(f"peers: no case that both have contains '{args.only}'")
    if ours.about["threads"] != peer.about["threads"]:
        sys.exit(f"peers: both must use as many threads, but use {ours.about['threads']} and {peer.about['threads']}")

    print(f"{ours.about['name']} {ours.about['version']} and {peer.about['name']} {peer.about['version']}, "
          f"{ours.about['threads']} threads, {args.rounds} turns each")
    print(f"{'case':<28} {'who':<18} {'median ms':>10} {'p10':>8} {'p90':>8} {'GB/s':>7} {'ratio':>6}")
    results, failed = [], False
    for case in cases:
        turns = [(ours, variant) for variant in ours.about["cases"][case]]
        turns += [(peer, variant) for variant in peer.about["cases"][case]]
        samples, first, bytes_moved = {turn: [] for turn in turns}, {}, 0
        for _ in range(args.rounds):
            for turn in turns:
                worker, variant = turn
                answer = worker.time(case, variant)
                samples[turn] += answer["seconds"]
                first.setdefault(turn, answer["check"])
                bytes_moved = answer.get("bytes", bytes_moved)
        base = statistics.median(samples[turns[0]])
        for turn in turns:
            worker, variant = turn
            name = variant if variant == worker.about["name"] else f"{worker.about['name']} {variant}"
            wrong = differ(first[turns[0]], first[turn], args.tolerance)
            failed = failed or wrong
            median = statistics.median(samples[turn])
            row = {"case": case, "who": name, "median_ms": median * 1e3, "p10_ms": quantile(samples[turn], 0.1) * 1e3,
                   "p90_ms": quantile(samples[turn], 0.9) * 1e3, "gb_per_s": bytes_moved / median * 1e-9,
                   "ratio": median / base, "same_result": not wrong, "samples": len(samples[turn])}
            results.append(row)
            print(f"{case:<28} {name:<18} {row['median_ms']:>10.2f} {row['p10_ms']:>8.2f} {row['p90_ms']:>8.2f} "
                  f"{row['gb_per_s']:>7.1f} {row['ratio']:>6.2f}{'   WRONG RESULT' if wrong else ''}", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"ours": ours.about, "peer": peer.about, "rounds": args.rounds, "results": results}, file, indent=1)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except WorkerError as error:
        sys.exit(f"peers: {error}")
