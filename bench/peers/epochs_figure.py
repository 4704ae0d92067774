#!/usr/bin/env python3
"""Draws the table of bench/results/epochs_cpu.md.

bench/peers/epochs_figure.py bench/results/epochs_cpu.md docs/img/epochs.svg
"""

import math
import sys
from html import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 196, 84, 62  # what is around the plot
STYLE = """
    text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12px; fill: #1f2328 }
    .title { font-size: 18px; font-weight: 600 } .head { font-size: 13px; font-weight: 600 }
    .muted { fill: #59636e } .tick { fill: #59636e; font-size: 11px }
    .paper { fill: #ffffff } .axis { stroke: #59636e } .grid { stroke: #d1d9e0 }
    .restart { stroke: #cf222e; fill: #cf222e } .persistent { stroke: #c98a00; fill: #c98a00 }
    .athanor { stroke: #2f6fd6; fill: #2f6fd6 } .curve { fill: none; stroke-width: 2.5 } .dot { stroke: none }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .muted, .tick { fill: #9198a1 }
      .paper { fill: #0d1117 } .axis { stroke: #9198a1 } .grid { stroke: #2a313a }
      .restart { stroke: #ff6a61; fill: #ff6a61 } .persistent { stroke: #e3b341; fill: #e3b341 }
      .athanor { stroke: #5c9dff; fill: #5c9dff } .curve { fill: none }
    }
"""
# Who the table's rows are of, and what is written beside their curve.
SERIES = {"restart": ("pytorch restart", "PyTorch", "workers end with the epoch"),
          "persistent": ("pytorch persistent", "PyTorch", "persistent_workers=True"),
          "athanor": ("athanor", "Athanor", "threads live with the loader")}
WITHOUT_WORKERS = "pytorch inline"  # where both of PyTorch's curves begin


def read_table(path):
    """{who: {workers: median seconds}}, of the rows `| workers | who | median ms | ...`."""
    table = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if line.startswith("|") and cells[0].isdigit():
                table.setdefault(cells[1], {})[int(cells[0])] = float(cells[2].replace(",", "")) * 1e-3
    wanted = [name for name, *_ in SERIES.values()] + [WITHOUT_WORKERS]
    if set(table) != set(wanted):
        sys.exit(f"epochs_figure: the rows of {path} must be of {', '.join(wanted)}, but are of {', '.join(table) or 'nobody'}")
    return table


def duration(seconds):
    return f"{seconds:.2g} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


def text(x, y, style, anchor, words):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>\n'


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>\n'


def svg(table):
    curves = {}
    for style, (name, *_) in SERIES.items():
        curves[style] = dict(table[name])
        if style != "athanor":
            curves[style].update(table[WITHOUT_WORKERS])
    seconds = [value for curve in curves.values() for value in curve.values()]
    workers = sorted(curves["athanor"])
    lowest, highest = math.floor(math.log10(min(seconds))), math.log10(max(seconds) * 1.6)
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT

    def x_of(count):
        return LEFT + 24 + (right - LEFT - 36) * count / workers[-1]

    def y_of(value):
        return bottom - (bottom - TOP) * (math.log10(value) - lowest) / (highest - lowest)

    out = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">\n'
           f"<title>Seconds per epoch by the number of workers</title>\n<style>{STYLE}</style>\n"
           f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" class="paper"/>\n')
    out += text(LEFT, 34, "title", "start", "One epoch of a set that is slow to open")
    out += text(LEFT, 56, "muted", "start", "96 samples of 1 ms; opening takes 1.5 s for each worker, once it is made")
    for decade in range(lowest, math.floor(highest) + 1):
        for part in (1, 2, 5):
            value = part * 10.0**decade
            if math.log10(value) <= highest:
                out += line(LEFT, y_of(value), right, y_of(value), "axis" if part == 1 and decade == lowest else "grid")
                out += text(LEFT - 8, y_of(value) + 4, "tick", "end", duration(value))
    for count in workers:
        out += line(x_of(count), bottom, x_of(count), bottom + 4, "axis")
        out += text(x_of(count), bottom + 18, "tick", "middle", str(count))
    for style, curve in curves.items():
        points = [(x_of(count), y_of(curve[count])) for count in sorted(curve)]
        out += f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" class="{style} curve"/>\n'
        out += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="{style} dot"/>\n' for x, y in points)
    # The names, each at the end of its curve, no closer than two lines of text.
    above = None
    for style, curve in sorted(curves.items(), key=lambda item: -item[1][workers[-1]]):
        last = curve[workers[-1]]
        y = y_of(last) if above is None else max(y_of(last), above + 38)
        above = y
        out += text(right + 10, y, "head", "start", f"{SERIES[style][1]}: {duration(last)}")
        out += text(right + 10, y + 16, "muted", "start", SERIES[style][2])
    out += text(LEFT, HEIGHT - 14, "muted", "start", "Across: workers; with 0 the caller reads. Up: time of one epoch after the first, logarithmic.")
    return out + "</svg>\n"


def main():
    if len(sys.argv) != 3:
        sys.exit("epochs_figure: expected TABLE.md PICTURE.svg")
    picture = svg(read_table(sys.argv[1]))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
