#!/usr/bin/env python3
"""Draws the table of steps in bench/results/scale_smpi.md.

bench/scale/figure.py bench/results/scale_smpi.md docs/img/scale.svg
"""

import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/figures"))
from chart import Axis, curve, end_labels, frame  # noqa: E402
from svg import begin, circle, line, text  # noqa: E402

BUCKET = "25"
RULES = "".join(f"    .h{i} {{ fill: $paper; stroke: $c{i}; stroke-width: 2 }}\n" for i in range(8)) + """\
    .break { fill: none; stroke: $muted }
"""
# The table's name of each curve, its colour, and what is written beside it. The last one lies on top.
SERIES = (("hierarchical", 0, "hierarchical ring", "in nodes, then between"),
          ("hierarchical, no overlap", 4, "hierarchical ring", "no overlap"),
          ("ring", 3, "flat ring", "one ring of all ranks"),
          ("rank_order", 1, "rank_order", "all to all"))


def read_table(path):
    """{algorithm: {ranks: (efficiency in percent, by the model)}}, of DDP with buckets of BUCKET MiB; and the network's line."""
    table, network = {}, ""
    with open(path, encoding="utf-8") as file:
        for line in file:
            found = re.match(r"Every table: \*\*uncalibrated network: (.*)\*\*\.", line)
            network = found.group(1) if found else network
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) == 8 and cells[2] == "ddp" and cells[3] == BUCKET:
                table.setdefault(cells[1], {})[int(cells[0].replace(",", ""))] = (float(cells[7].rstrip("%")), "(model)" in cells[5])
    missing = {name for name, *_ in SERIES} - set(table)
    if missing or not network:
        sys.exit(f"figure: {path} has no steps of {', '.join(sorted(missing)) or 'a named network'}")
    return table, network


def svg(table, network):
    worlds = sorted({ranks for name, *_ in SERIES for ranks in table[name]})
    lowest = math.floor(min(value for name, *_ in SERIES for value, _ in table[name].values()) / 10) * 10
    x, y = Axis(worlds[0] / 1.15, worlds[-1] * 1.05, 72, 586, log=True), Axis(lowest, 100, 384, 128)
    out = begin(800, 492, "A step of ResNet-50 on many ranks, simulated",
                "Uncalibrated network: nodes of 8; " + network.split("; ")[1].replace(" per rank", "") + ".",
                "DDP, bf16 gradients in buckets of 25 MiB, 32 samples per rank at 40 TFLOP/s.", rules=RULES)
    out += text(64, 110, "tick", "end", "efficiency")
    out += frame(x, y, "ranks", x_ticks=[(ranks, f"{ranks:,}") for ranks in worlds],
                 y_ticks=[(value, f"{value} %") for value in range(lowest, 101, 5 if lowest >= 60 else 10)])
    if lowest > 0:  # the axis goes on below, and is cut off
        out += '<path d="M72 384v4l-5 3l10 5l-5 3v4" class="break"/>\n'
    ends = []
    for name, colour, title, note in SERIES:
        points = {ranks: value for ranks, (value, _) in sorted(table[name].items())}
        modelled = [ranks for ranks, (_, model) in sorted(table[name].items()) if model]
        simulated = [ranks for ranks in points if ranks not in modelled]
        out += curve(x, y, [(ranks, points[ranks]) for ranks in simulated[-1:] + modelled], f"l{colour} dash")
        out += curve(x, y, [(ranks, points[ranks]) for ranks in simulated], f"l{colour}", dots=4)
        out += "".join(circle(x(ranks), y(points[ranks]), 4, f"h{colour}") for ranks in modelled)
        last = max(points)
        words = f"{title}: {points[last]:.0f} %"
        if last == worlds[-1]:
            ends.append((y(points[last]), words, note))
        else:  # above the plot, with a leader
            out += line(x(last) + 3, y(points[last]) - 3, x(last) + 34, 120, "axis")
            out += text(x(last) + 40, 120, "head", "start", f"{words} on {last:,} ranks, the most simulated")
    out += end_labels(598, ends, 40)
    notes = [f"Efficiency: time of a step on one rank divided by that of this one; the axis begins at {lowest} %.",
             "Hollow and dashed: from the alpha-beta model, not simulated."]
    if worlds[-1] > 64:  # scripts/simulate_scale.sh
        notes.append(f"Past 64 ranks the agreement on norm and overflow is a formula, too, at most {7 + worlds[-1] * 200 / 50e3:.0f} us of a step.")
    return out + "".join(text(24, 446 + 16 * i, "muted", "start", note) for i, note in enumerate(notes)) + "</svg>\n"


def main():
    if len(sys.argv) != 3:
        sys.exit("figure: expected TABLE.md PICTURE.svg")
    picture = svg(*read_table(sys.argv[1]))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
