"""The peer's side of a comparison, of any package: the protocol of bench/peers/README.md over standard input and output."""

import json
import os
import resource
import sys
import time

# Answers alone go to standard output: what packages print goes to standard error.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(answer):
    print(json.dumps(answer), file=ANSWERS, flush=True)


def time_of(run, seconds):
    """Seconds of one run each, for `seconds` and at least five, unless these take six times as long; the first run of
    all warms up."""
    run()
    samples, start = [], time.perf_counter()
    while time.perf_counter() - start < (6 * seconds if len(samples) < 5 else seconds):
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return samples


def serve(name, version, threads, cases):
    """cases: {name: {variant: prepare}}; prepare() gives run() and a list of values that must equal ours."""
    say({"name": name, "version": version, "threads": threads,
         "cases": {case: list(variants) for case, variants in cases.items()}})
    current, ready = None, None
    for line in sys.stdin:
        case, variant, *seconds = line.split()
        try:
            if current != (case, variant):
                current, ready = None, None
                ready = cases[case][variant]()
                current = (case, variant)
            run, check = ready
            times = time_of(run, float(seconds[0]) if seconds else 0.5)
            say({"seconds": times, "check": check, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024})
        except Exception as error:  # the driver shows it
            say({"error": f"{case} {variant}: {error!r}"})
