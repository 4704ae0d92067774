#!/usr/bin/env python3
"""What the host queues for one training step, uncaptured and captured: docs/img/step_without_a_host.svg.

    docs/figures/step_calls.py BEFORE AFTER > docs/figures/data/step_without_a_host.json

BEFORE and AFTER are trace.json of two runs of at least eight steps, with --profile trace and --graph off or on.
"""

import json
import pathlib
import sys

from svg import begin, line, rect, text

DATA = pathlib.Path(__file__).resolve().parent / "data" / "step_without_a_host.json"
STEP = 7  # counted from 0: by then it is captured
LEFT, WIDTH, BAR = 118, 850, 30
PHASES = (("batch", "c1"), ("forward and loss", "c0"), ("backward", "c4"), ("update", "c2"))


def calls_of(path):
    """Names of the kernels and graphs that the host queued in one step of a trace, in order."""
    trace = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    step = [event for event in events if event.get("cat") == "step"][STEP]
    inside = [event for event in events
              if event.get("cat") == "kernel" and step["ts"] <= event["ts"] <= step["ts"] + step["dur"]]
    return [event["name"] for event in sorted(inside, key=lambda event: event["ts"])]


def phases_of(names):
    """The index in PHASES of each call: a loss begins the backward pass, and the measurement of gradients the update."""
    phase, out = 0, []
    for name in names:
        if phase == 0 and name not in ("augment", "set_learning_rates"):
            phase = 1
        if phase == 1 and name == "cross_entropy_backward":
            phase = 2
        if name == "measure_gradients":
            phase = 3
        out.append(3 if name == "set_learning_rates" else phase)
    return out


def box(x, y, width, style, words):
    return rect(x, y, width, BAR, style, words)


def lane(y, label, names, each):
    out = text(24, y + 20, "tick", "start", label)
    for i, (name, phase) in enumerate(zip(names, phases_of(names))):
        out += box(LEFT + i * each, y, each - 2, PHASES[phase][1], name)
    return out


def draw():
    data = json.loads(DATA.read_text(encoding="utf-8"))
    before, after = data["before"], data["after"]
    each = WIDTH / len(before)
    out = begin(LEFT + WIDTH + 24, 330, "What the host queues in one step",
                "The network of train_digits, by the emulator's trace: every kernel and graph, in their order. Widths are not times.",
                rules="    .call { fill: $paper; font-weight: 600 }\n")
    out += text(24, 96, "head", "start", f"--graph off: {len(before)} calls")
    out += lane(108, "host, device", before, each)
    out += line(24, 160, LEFT + WIDTH, 160, "grid")
    out += text(24, 188, "head", "start", f"--graph on: {len(after)} calls")
    words = {"set_learning_rates": "rates", "graph": "graph", "copy_if_skipped": "skipped?"}
    out += text(24, 220, "tick", "start", "host")
    for i, name in enumerate(after):
        out += box(LEFT + i * 84, 200, 80, "c0" if name == "graph" else "c2", name)
        out += text(LEFT + i * 84 + 40, 220, "call", "middle", words.get(name, name))
    out += text(LEFT + len(after) * 84 + 8, 220, "muted", "start", "free for the next batch, and for what the user wrote")
    ours = [name for name in before if name not in after or name == "copy_if_skipped"]
    out += lane(240, "device", ["set_learning_rates", *ours], each)
    x = LEFT
    for phase, style in PHASES:
        out += box(x, 288, 30, style, phase) + text(x + 38, 308, "tick", "start", phase)
        x += 70 + 7 * len(phase)
    return out + "</svg>\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: docs/figures/step_calls.py BEFORE AFTER > docs/figures/data/step_without_a_host.json")
    print(json.dumps({"before": calls_of(sys.argv[1]), "after": calls_of(sys.argv[2])}, indent=1))
