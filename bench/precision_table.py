#!/usr/bin/env python3
"""Does training in half precision end where training in f32 ends? Markdown tables that say so, or not.

    nice -n 10 bench/precision_table.py --runs FOLDER [--bin build/cpu/bin] [--data-dir DIR] [NAME...]

Trains each workload (NAME: lenet5, resnet20; by default both) in f32, bf16 and f16 with the same seeds, on one thread of the CPU.
What a run printed with --metrics is kept in FOLDER, and a run that is there is not made again: interrupt and go on at will.

A precision is "within the noise" of f32 if both hold, over n seeds each, for mean m and standard deviation s (of n - 1):
    |m - m32| <= 2 sqrt(s32^2 / n + s^2 / n)
    m lies between f32's worst and best accuracy, that range widened by s32 at either end
Speed is images per second of CPU time, which other work on the machine disturbs least: a run's CPU time, less that of a run of one
step, which starts and evaluates as the others do. Ends with 0 if all are within the noise, 1 if not, 2 if it could not find out.
Needs Python's standard library alone.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys

PRECISIONS = ["f32", "bf16", "f16"]


class Workload:
    def __init__(self, name, title, program, flags, batch, seeds):
        self.name, self.title, self.program, self.flags, self.batch = name, title, program, flags, batch
        self.seeds = range(seeds)


WORKLOADS = [
    Workload("lenet5", "LeNet-5 on MNIST, 1 epoch", "train_mnist", ["--epochs", "1"], 64, 5),
    Workload("resnet20", "ResNet-20 on CIFAR-10, 200 steps of 64 images", "train_cifar10", ["--max-steps", "200", "--lr", "0.2"], 64, 3),
]


def fail(message):
    print(f"precision_table.py: {message}", file=sys.stderr)
    sys.exit(2)


def events(path):
    """The JSON lines of a run, by event; {} for a file that is not there or was cut off."""
    try:
        with open(path) as file:
            return {line["event"]: line for line in map(json.loads, file)}
    except (OSError, ValueError):
        return {}


def run(options, workload, precision, seed, extra=()):
    """The last lines of one training, made now unless it has been made: (what --metrics says at the end, CPU seconds)."""
    name = f"{workload.name}-{precision}-{seed}{'-'.join(extra)}.jsonl"
    path = os.path.join(options.runs, name)
    found = events(path)
    if "cpu" not in found:
        if os.path.exists(path):
            os.remove(path)  # of a run that did not end
        command = [os.path.join(options.bin, workload.program), *workload.flags, "--batch-size", str(workload.batch),
                   "--precision", precision, "--seed", str(seed), "--device", "cpu", "--threads", "1", "--metrics", path, *extra]
        if options.data_dir:
            command += ["--data-dir", options.data_dir]
        print(" ".join(command), file=sys.stderr, flush=True)
        before = os.times()
        try:
            result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        except OSError as error:
            fail(f"{command[0]} must be a program: {error.strerror}; build the target {workload.program}, or name its folder with --bin")
        after = os.times()
        if result.returncode != 0:
            fail(f"{command[0]} ended with {result.returncode}: {result.stderr.strip()}")
        seconds = after.children_user + after.children_system - before.children_user - before.children_system
        with open(path, "a") as file:
            file.write(json.dumps({"event": "cpu", "cpu_s": round(seconds, 3)}) + "\n")
        found = events(path)
    return found["end"], found["cpu"]["cpu_s"]


class Result:
    """What a workload came to in one precision."""

    def __init__(self, options, workload, precision):
        runs = [run(options, workload, precision, seed) for seed in workload.seeds]
        _, start = run(options, workload, precision, 0, ["--max-steps", "1"])
        self.accuracies = [100 * end["test_accuracy"] for end, _ in runs]
        self.mean = statistics.mean(self.accuracies)
        self.deviation = statistics.stdev(self.accuracies)
        self.skipped = sum(end["skipped_steps"] for end, _ in runs)
        self.steps = sum(end["applied_steps"] + end["skipped_steps"] for end, _ in runs)
        seconds = sum(cpu for _, cpu in runs) - len(runs) * start
        self.speed = f"{(self.steps - len(runs)) * workload.batch / seconds:,.0f}" if seconds > 0 else "-"

    def verdict(self, f32):
        """(difference of the means, how far it may be, whether both conditions hold)"""
        n = len(self.accuracies)
        difference = self.mean - f32.mean
        allowed = 2 * math.sqrt((f32.deviation**2 + self.deviation**2) / n)
        inside = min(f32.accuracies) - f32.deviation <= self.mean <= max(f32.accuracies) + f32.deviation
        return difference, allowed, abs(difference) <= allowed and inside


def table(workload, results):
    """Prints the workload's table; whether every precision is within the noise."""
    f32 = results["f32"]
    print(f"{workload.title}, {len(workload.seeds)} seeds: `{workload.program} {' '.join(workload.flags)} --batch-size {workload.batch}`\n")
    print("| precision | test accuracy, mean | standard deviation | lowest .. highest | mean less f32's | within f32's noise "
          "| images per CPU second | skipped steps |")
    print("|---|---|---|---|---|---|---|---|")
    good = True
    for precision, result in results.items():
        difference, allowed, within = result.verdict(f32)
        good = good and within
        against = "- | -" if precision == "f32" else f"{difference:+.2f} (at most {allowed:.2f}) | {'yes' if within else 'NO'}"
        print(f"| {precision} | {result.mean:.2f} % | {result.deviation:.2f} | {min(result.accuracies):.2f} .. {max(result.accuracies):.2f} "
              f"| {against} | {result.speed} | {result.skipped} of {result.steps:,} |")
    print()
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--runs", required=True, metavar="FOLDER")
    parser.add_argument("--bin", default="build/cpu/bin", metavar="FOLDER")
    parser.add_argument("--data-dir", metavar="DIR")
    options = parser.parse_args()
    known = [workload.name for workload in WORKLOADS]
    for name in options.names:
        if name not in known:
            fail(f"a workload must be one of {' '.join(known)}, but got '{name}'")
    try:
        os.makedirs(options.runs, exist_ok=True)
    except OSError as error:
        fail(f"--runs: {options.runs} must be a folder: {error.strerror}")
    good = True
    for workload in WORKLOADS:
        if options.names and workload.name not in options.names:
            continue
        # By seed, so that what else the machine does falls on all precisions alike.
        for seed in workload.seeds:
            for precision in PRECISIONS:
                run(options, workload, precision, seed)
        good = table(workload, {precision: Result(options, workload, precision) for precision in PRECISIONS}) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
