#!/usr/bin/env python3
"""Draws the table of bench/results/epochs_cpu.md.

bench/peers/epochs_figure.py bench/results/epochs_cpu.md docs/img/epochs.svg
"""

import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/figures"))
from chart import Axis, curve, end_labels, frame  # noqa: E402
from svg import begin, text  # noqa: E402

# Whose rows each curve is of, its style, and what is written beside it.
SERIES = (("pytorch restart", "l3", "PyTorch", "workers end with the epoch"),
          ("pytorch persistent", "l1", "PyTorch", "persistent_workers=True"),
          ("athanor", "l0", "Athanor", "threads live with the loader"))
WITHOUT_WORKERS = "pytorch inline"  # where both of PyTorch's curves begin


def read_table(path):
    """{who: {workers: median seconds}}, of the rows `| workers | who | median ms | ...`."""
    table = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if line.startswith("|") and cells[0].isdigit():
                table.setdefault(cells[1], {})[int(cells[0])] = float(cells[2].replace(",", "")) * 1e-3
    wanted = [name for name, *_ in SERIES] + [WITHOUT_WORKERS]
    if set(table) != set(wanted):
        sys.exit(f"epochs_figure: the rows of {path} must be of {', '.join(wanted)}, but are of {', '.join(table) or 'no reader'}")
    return table


def duration(seconds):
    return f"{seconds:.2g} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


def svg(table):
    curves = {name: table[name] | (table[WITHOUT_WORKERS] if name.startswith("pytorch") else {}) for name, *_ in SERIES}
    seconds = [value for points in curves.values() for value in points.values()]
    workers = sorted(curves["athanor"])
    x, y = Axis(-0.4, workers[-1] + 0.2, 64, 564), Axis(10 ** math.floor(math.log10(min(seconds))), max(seconds) * 1.6, 338, 84, log=True)
    out = begin(760, 400, "One epoch of a set that is slow to open",
                "96 samples of 1 ms; opening takes 1.5 s for each worker, once it is made")
    out += frame(x, y, x_ticks=[(count, str(count)) for count in workers], y_ticks=y.ticks(duration))
    for name, style, *_ in SERIES:
        out += curve(x, y, sorted(curves[name].items()), style, dots=4)
    last = workers[-1]
    out += end_labels(574, [(y(curves[name][last]), f"{who}: {duration(curves[name][last])}", note) for name, _, who, note in SERIES], 38)
    out += text(24, 386, "muted", "start", "Across: workers; with 0 the caller reads. Up: time of one epoch after the first, logarithmic.")
    return out + "</svg>\n"


def main():
    if len(sys.argv) != 3:
        sys.exit("epochs_figure: expected TABLE.md PICTURE.svg")
    picture = svg(read_table(sys.argv[1]))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
