#!/usr/bin/env python3
"""Draws the table of steps in bench/results/scale_smpi.md.

bench/scale/figure.py bench/results/scale_smpi.md docs/img/scale.svg
"""

import math
import re
import sys
from html import escape

WIDTH, HEIGHT = 800, 492
LEFT, RIGHT, TOP, BOTTOM = 72, 214, 128, 108  # what is around the plot
BUCKET = "25"
STYLE = """
    text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12px; fill: #1f2328 }
    .title { font-size: 18px; font-weight: 600 } .head { font-size: 13px; font-weight: 600 }
    .muted { fill: #59636e } .tick { fill: #59636e; font-size: 11px }
    .paper { fill: #ffffff } .axis { stroke: #59636e } .grid { stroke: #d1d9e0 }
    .ring { stroke: #cf222e; fill: #cf222e } .order { stroke: #c98a00; fill: #c98a00 }
    .blocking { stroke: #8250df; fill: #8250df } .hierarchical { stroke: #2f6fd6; fill: #2f6fd6 }
    .curve { fill: none; stroke-width: 2.5 } .model { fill: none; stroke-width: 2; stroke-dasharray: 5 5 }
    .dot { stroke: none } .hollow { stroke-width: 2 }
    .hollow { fill: #ffffff } .break { fill: none; stroke: #59636e }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .muted, .tick { fill: #9198a1 }
      .paper { fill: #0d1117 } .axis { stroke: #9198a1 } .grid { stroke: #2a313a }
      .ring { stroke: #ff6a61; fill: #ff6a61 } .order { stroke: #e3b341; fill: #e3b341 }
      .blocking { stroke: #b38cff; fill: #b38cff } .hierarchical { stroke: #5c9dff; fill: #5c9dff }
      .curve, .model { fill: none } .hollow { fill: #0d1117 } .break { stroke: #9198a1 }
    }
"""
# The table's name of each curve, and what is written beside it. The last one lies on top.
SERIES = {"hierarchical": ("hierarchical", "hierarchical ring", "in nodes, then between"),
          "blocking": ("hierarchical, no overlap", "hierarchical ring", "no overlap"),
          "ring": ("ring", "flat ring", "one ring of all ranks"),
          "order": ("rank_order", "rank_order", "all to all")}


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
    missing = {name for name, *_ in SERIES.values()} - set(table)
    if missing or not network:
        sys.exit(f"figure: {path} has no steps of {', '.join(sorted(missing)) or 'a named network'}")
    return table, network


def text(x, y, style, anchor, words):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>\n'


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>\n'


def svg(table, network):
    curves = {style: table[name] for style, (name, *_) in SERIES.items()}
    worlds = sorted({ranks for curve in curves.values() for ranks in curve})
    lowest = math.floor(min(value for curve in curves.values() for value, _ in curve.values()) / 10) * 10
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    span = math.log2(worlds[-1] / worlds[0])

    def x_of(ranks):
        return LEFT + 20 + (right - LEFT - 32) * math.log2(ranks / worlds[0]) / span

    def y_of(value):
        return bottom - (bottom - TOP) * (value - lowest) / (100 - lowest)

    out = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">\n'
           f"<title>Efficiency of a training step by the number of ranks, simulated</title>\n<style>{STYLE}</style>\n"
           f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" class="paper"/>\n')
    out += text(LEFT, 34, "title", "start", "A step of ResNet-50 on many ranks, simulated")
    out += text(LEFT, 54, "muted", "start", "Uncalibrated network: nodes of 8; " + network.split("; ")[1].replace(" per rank", "") + ".")
    out += text(LEFT, 72, "muted", "start", "DDP, bf16 gradients in buckets of 25 MiB, 32 samples per rank at 40 TFLOP/s.")
    out += text(LEFT - 8, TOP - 18, "tick", "end", "efficiency")
    out += text((LEFT + right) / 2, bottom + 36, "tick", "middle", "ranks")
    step = 5 if 100 - lowest <= 40 else 10
    for value in range(lowest, 101, step):
        out += line(LEFT, y_of(value), right, y_of(value), "axis" if value == lowest else "grid")
        out += text(LEFT - 8, y_of(value) + 4, "tick", "end", f"{value} %")
    if lowest > 0:  # the axis goes on below, and is cut off
        out += f'<path d="M{LEFT} {bottom}v4l-5 3l10 5l-5 3v4" class="break"/>\n'
    for ranks in worlds:
        out += line(x_of(ranks), bottom, x_of(ranks), bottom + 4, "axis")
        out += text(x_of(ranks), bottom + 18, "tick", "middle", f"{ranks:,}")
    for style, curve in curves.items():
        simulated = [ranks for ranks in sorted(curve) if not curve[ranks][1]]
        points = " ".join(f"{x_of(ranks):.1f},{y_of(curve[ranks][0]):.1f}" for ranks in simulated)
        out += f'<polyline points="{points}" class="{style} curve"/>\n'
        before = simulated[-1]
        for ranks in sorted(set(curve) - set(simulated)):
            out += line(x_of(before), y_of(curve[before][0]), x_of(ranks), y_of(curve[ranks][0]), f"{style} model")
            out += f'<circle cx="{x_of(ranks):.1f}" cy="{y_of(curve[ranks][0]):.1f}" r="4" class="{style} hollow"/>\n'
            before = ranks
        out += "".join(f'<circle cx="{x_of(ranks):.1f}" cy="{y_of(curve[ranks][0]):.1f}" r="4" class="{style} dot"/>\n' for ranks in simulated)
    # The names at the curves' ends: in order on the right; above the plot, with a leader, of one that ends before.
    above = None
    for style, curve in sorted(curves.items(), key=lambda item: -item[1][max(item[1])][0]):
        last = curve[max(curve)][0]
        name = f"{SERIES[style][1]}: {last:.0f} %"
        if max(curve) < worlds[-1]:
            x, y = x_of(max(curve)), y_of(last)
            out += line(x + 3, y - 3, x + 34, TOP - 8, "axis")
            out += text(x + 40, TOP - 8, "head", "start", f"{name} on {max(curve):,} ranks, the most simulated")
            continue
        y = y_of(last) + 4 if above is None else max(y_of(last) + 4, above + 40)
        above = y
        out += text(right + 12, y, "head", "start", name)
        out += text(right + 12, y + 16, "muted", "start", SERIES[style][2])
    out += text(LEFT, HEIGHT - 46, "muted", "start",
                f"Efficiency: time of a step on one rank divided by that of this one; the axis begins at {lowest} %.")
    out += text(LEFT, HEIGHT - 30, "muted", "start", "Hollow and dashed: from the alpha-beta model, not simulated.")
    if worlds[-1] > 64:  # scripts/simulate_scale.sh
        out += text(LEFT, HEIGHT - 14, "muted", "start",
                    f"Past 64 ranks the agreement on norm and overflow is a formula, too, at most {7 + worlds[-1] * 200 / 50e3:.0f} us of a step.")
    return out + "</svg>\n"


def main():
    if len(sys.argv) != 3:
        sys.exit("figure: expected TABLE.md PICTURE.svg")
    picture = svg(*read_table(sys.argv[1]))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
