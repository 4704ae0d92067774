"""The peer's side of a comparison: the protocol of bench/peers/README.md, in PyTorch."""

import json
import math
import sys
import time

import torch


def made_up(shape, seed):
    """The values both sides begin with: element i of a tensor, in [-1, 1)."""
    words = ((torch.arange(math.prod(shape)) + seed) * 2654435761) & 0xFFFFFFFF
    return ((words >> 8).to(torch.float32) * 2.0**-23 - 1.0).reshape(shape)


def time_of(run):
    """Seconds of one run each, for half a second and at least five, unless these take more than three seconds; the
    first run of all warms up."""
    run()
    samples, start = [], time.perf_counter()
    while time.perf_counter() - start < (3 if len(samples) < 5 else 0.5):
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return samples


def serve(cases):
    """cases: {name: {variant: prepare}}; prepare() gives run() and a list of values that must equal ours."""
    say = lambda answer: print(json.dumps(answer), flush=True)
    say({"name": "pytorch", "version": torch.__version__, "threads": torch.get_num_threads(),
         "cases": {name: list(variants) for name, variants in cases.items()}})
    current, ready = None, None
    for line in sys.stdin:
        name, variant = line.split()
        try:
            if current != (name, variant):
                current, ready = None, None
                ready = cases[name][variant]()
                current = (name, variant)
            run, check = ready
            say({"seconds": time_of(run), "check": check})
        except Exception as error:  # the driver shows it
            say({"error": f"{name} {variant}: {error!r}"})
