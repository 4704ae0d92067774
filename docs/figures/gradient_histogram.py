"""Histograms of log2 |gradient|, with the range of f16: what becomes zero or subnormal, what is exact, what overflows."""

import math

from chart import Axis, frame
from svg import begin, escaped, line, rect, text

LEFT, RIGHT = -43, 25  # of the picture, in powers of two
# What f16 does with a value, by its power of two. Below 2^-25 it rounds to zero; from there to 2^-14 it is a multiple of
# 2^-24, with fewer bits the smaller it is; from 65520, as good as 2^16, it rounds to infinity. Last: where a zone begins to
# the eye, which is at a dashed line.
ZONES = (("lost", "become 0", LEFT, -25, LEFT), ("subnormal", "subnormal", -25, -14, -24),
         ("normal", "all 11 bits", -14, 16, LEFT), ("lost", "overflow", 16, RIGHT, LEFT))
MARKS = ((-24, "2⁻²⁴"), (-14, "2⁻¹⁴"), (16, "65504"))
TICKS = ((-40, "2⁻⁴⁰"), (-30, "2⁻³⁰"), (-20, "2⁻²⁰"), (-10, "2⁻¹⁰"), (0, "1"), (10, "2¹⁰"), (20, "2²⁰"))
WIDTH, HEIGHT, HEADROOM = 432, 168, 42  # of a panel; its bars end below the headroom
X = Axis(LEFT, RIGHT, 0, WIDTH)
MARGIN_LEFT, MARGIN_TOP, GAP_X, GAP_Y, MARGIN_RIGHT, MARGIN_BOTTOM = 58, 122, 34, 80, 24, 62
RULES = """\
    .limit { font-size: 11px; font-weight: 600 } .edge { stroke: $ink; stroke-dasharray: 3 3 }
    .normal { fill: $c0 } .subnormal { fill: $c1 } .lost { fill: $c3 } .zone { opacity: 0.11 } .share { font-weight: 600 }
"""


def percent(part, whole):
    if part == 0:
        return "0 %"
    share = 100.0 * part / whole
    return "< 0.1 %" if share < 0.05 else f"{share:.1f} %"


def zones(octaves, total):
    """The zones' tints, and over each its name and the share of the values in it."""
    out = ""
    for style, label, first, last, label_from in ZONES:
        left, right = X(first), X(last)
        out += rect(left, 0, right - left, HEIGHT, f"{style} zone")
        inside = sum(count for octave, count in octaves.items()
                     if (first == LEFT or octave >= first) and (last == RIGHT or octave < last))
        middle = (max(left, X(label_from)) + right) / 2
        out += text(middle, 16, "tick", "middle", label) + text(middle, 32, "share", "middle", percent(inside, total))
    return out


def bars(octaves, total, top_percent):
    out = ""
    for style, _, first, last, _ in ZONES:
        for octave in range(first, last):
            height = (HEIGHT - HEADROOM) * 100 * (octaves.get(octave, 0) / total) / top_percent
            if height >= 0.05:
                out += rect(X(octave) + 0.4, HEIGHT - height, X(LEFT + 1) - 0.8, height, style)
    return out


def panel(title, note, octaves, top_percent, labels_left):
    out = (f'<text y="-26"><tspan class="head">{escaped(title)}</tspan><tspan dx="10" class="muted">{escaped(note)}</tspan>'
           "</text>\n")
    total = sum(octaves.values())
    if total == 0:
        return out + text(WIDTH / 2, HEIGHT / 2, "muted", "middle", "all are 0")
    out += zones(octaves, total) + frame(X, Axis(0, top_percent, HEIGHT, HEADROOM), x_ticks=TICKS, y_words=labels_left,
                                         y_ticks=[(rung, f"{rung} %") for rung in range(0, top_percent + 1, 10 if top_percent > 20 else 5)])
    out += bars(octaves, total, top_percent)
    for octave, label in MARKS:
        out += line(X(octave), -2, X(octave), HEIGHT, "edge") + text(X(octave), -7, "limit", "middle", label)
    return out


def draw(figure):
    panels = [(each["title"], each["note"], {int(octave): count for octave, count in (each["octaves"] or {}).items()})
              for each in figure["panels"]]
    shares = [count / sum(octaves.values()) for _, _, octaves in panels
              for octave, count in octaves.items() if LEFT <= octave < RIGHT]
    top_percent = 10 * math.ceil(max(shares + [0.01]) * 10)  # the largest of any bar, rounded up
    columns, rows = 2, len(panels) // 2
    width = MARGIN_LEFT + columns * WIDTH + (columns - 1) * GAP_X + MARGIN_RIGHT
    height = MARGIN_TOP + rows * HEIGHT + (rows - 1) * GAP_Y + MARGIN_BOTTOM
    out = begin(width, height, "Which gradients can f16 hold?", figure["subtitle"], rules=RULES)
    for i, each in enumerate(panels):
        column, row = i % columns, i // columns
        x, y = MARGIN_LEFT + column * (WIDTH + GAP_X), MARGIN_TOP + row * (HEIGHT + GAP_Y)
        out += f'<g transform="translate({x:.0f} {y:.0f})">\n' + panel(*each, top_percent, column == 0) + "</g>\n"
    out += text(24, height - 14, "muted", "start",
                "Across: size of a gradient; up: share of the gradients in that power of two. Dashed: f16's smallest subnormal, "
                "smallest normal and largest number.")
    return out + "</svg>\n", ""
