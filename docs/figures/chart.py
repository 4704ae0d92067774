"""Charts of the chapters: lines over two axes, and horizontal bars. Every chart has a title, named axes and direct labels."""

import math

from svg import RANKS, begin, line, rect, text

STYLE = "".join(f" .l{i} {{ fill: none; stroke: {colour}; stroke-width: 2 }}" for i, colour in enumerate(
    ("#2f6fd6", "#c98a00", "#1a7f37", "#cf222e", "#8250df", "#1b8a9a"))) + """
    .dash { stroke-dasharray: 5 4 } .mark { stroke: #59636e; stroke-dasharray: 2 3 }
    @media (prefers-color-scheme: dark) {
      .l0 { stroke: #5c9dff } .l1 { stroke: #e3b341 } .l2 { stroke: #4ac26b } .l3 { stroke: #ff6a61 }
      .l4 { stroke: #b692ff } .l5 { stroke: #4fc3d4 } .mark { stroke: #9198a1 }
    }
"""
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Axis:
    """Maps values of [low, high] to pixels of [start, end], by their logarithm if `log`."""

    def __init__(self, low, high, start, end, log=False):
        self.low, self.high, self.start, self.end, self.log = low, high, start, end, log

    def __call__(self, value):
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self):
        """[(value, words)]"""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = max(1, math.ceil((last - first) / 6))
            return [(10.0**e, plain(10.0**e)) for e in range(first, last + 1, every)]
        span = self.high - self.low
        step = 10 ** math.floor(math.log10(span / 4))
        step *= next(s for s in (1, 2, 5, 10) if span / (step * s) <= 6)
        first = math.ceil(self.low / step - 1e-9)
        return [(i * step, plain(i * step)) for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def plain(value):
    if value == 0:
        return "0"
    exponent = math.log10(abs(value))
    if abs(exponent) >= 4 and abs(exponent - round(exponent)) < 1e-9:
        return "10" + str(round(exponent)).translate(SUPERSCRIPT)
    return f"{value:,.6g}" if abs(value) < 1e15 else f"{value:.1e}"


def lines(title, x_name, y_name, series, *, x_log=False, y_log=False, x_range=None, y_range=None, note="", marks=(),
          size=(760, 420), x_ticks=None):
    """series: [(name, [(x, y)], style)]; style "l0", "l1 dash", or "c0" for dots. marks: [(x, words)] vertical lines."""
    width, height = size
    xs = [x for _, points, _ in series for x, _ in points]
    ys = [y for _, points, _ in series for _, y in points]
    x_axis = Axis(*(x_range or (min(xs), max(xs))), 76, width - 28, x_log)
    y_axis = Axis(*(y_range or (min(ys), max(ys))), height - 92, 66, y_log)
    keys, at, row = [], 24, 0  # where the name of each series begins, and in which row below the chart
    for name, _, _ in series:
        wide = 17 + 6.7 * len(name)
        if name and at > 24 and at + wide > width - 10:
            at, row = 24, row + 1
        keys.append((at, 18 * row))
        at += wide + 22 if name else 0
    out = begin(width, height + 18 * row, title, RANKS + STYLE) + text(24, 34, "title", "start", title)
    out += text(24, 56, "tick", "start", y_name)
    for value, words in y_axis.ticks():
        out += line(76, y_axis(value), width - 28, y_axis(value), "grid") + text(70, y_axis(value) + 4, "tick", "end", words)
    for value, words in x_ticks or x_axis.ticks():
        out += text(x_axis(value), height - 74, "tick", "middle", words)
    out += line(76, height - 92, width - 28, height - 92, "axis")
    out += text((76 + width - 28) / 2, height - 56, "tick", "middle", x_name)
    for value, words in marks:
        out += line(x_axis(value), 66, x_axis(value), height - 92, "mark") + text(x_axis(value) + 4, height - 98, "tick", "start", words)
    inside = lambda axis, value: min(max(value, axis.low), axis.high)  # noqa: E731
    for (name, points, style), (at, down) in zip(series, keys):
        places = [(x_axis(inside(x_axis, x)), y_axis(inside(y_axis, y))) for x, y in points]
        if style[0] == "c":
            out += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" class="{style}"/>\n' for x, y in places)
        else:
            out += f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" class="{style}"/>\n'
        if not name:
            continue
        colour = "c" + style.split()[0][1:]
        out += "".join(rect(at + x, height - 36 + down, wide, 4, colour) for x, wide in (((0, 5), (7, 5)) if "dash" in style else ((0, 12),)))
        out += text(at + 17, height - 30 + down, "", "start", name)
    if note:
        out += text(24, height - 10 + 18 * row, "tick", "start", note)
    return out + "</svg>\n"


def bars(title, rows, unit, *, note="", log=False, width=760, form="{:,.3g}", centre=None):
    """rows: [(words, value, class)], drawn downwards; a value is written behind its bar. Bars begin at `centre`, if given."""
    left, height = 36 + 6.7 * max(len(words) for words, _, _ in rows), 74 + 28 * len(rows) + (24 if note else 8)
    high = max(value for _, value, _ in rows)
    low = min(value for _, value, _ in rows) / (3 if centre is None else 1.2) if log else 0
    axis = Axis(low, high, left, width - 110, log)
    out = begin(width, height, title, RANKS + STYLE) + text(24, 34, "title", "start", title)
    zero = left if centre is None else axis(centre)
    if centre is not None:
        out += line(zero, 54, zero, 58 + 28 * len(rows), "axis")
    for i, (words, value, style) in enumerate(rows):
        y = 58 + 28 * i
        out += text(left - 8, y + 14, "", "end", words)
        out += rect(min(zero, axis(value)), y, max(abs(axis(value) - zero), 1), 19, style)
        out += text(max(axis(value), zero) + 6, y + 14, "", "start", f"{form.format(value)} {unit}")
    if note:
        out += text(24, height - 10, "tick", "start", note)
    return out + "</svg>\n"
