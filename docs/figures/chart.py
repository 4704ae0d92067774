"""Charts: lines over two axes, and horizontal bars. Every chart has a title, named axes and direct labels."""

import math

from svg import begin, circle, line, polyline, rect, text

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plain(value):
    if value == 0:
        return "0"
    exponent = math.log10(abs(value))
    if abs(exponent) >= 4 and abs(exponent - round(exponent)) < 1e-9:
        return "10" + str(round(exponent)).translate(SUPERSCRIPT)
    return f"{value:,.6g}" if abs(value) < 1e15 else f"{value:.1e}"


class Axis:
    """Maps values of [low, high] to pixels of [start, end], by their logarithm if `log`; what is beyond the ends, to the ends."""

    def __init__(self, low, high, start, end, log=False):
        self.low, self.high, self.start, self.end, self.log = low, high, start, end, log

    def __call__(self, value):
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, words=plain):
        """[(value, words)]: multiples of 1, 2 or 5 times a power of ten; of a logarithm powers of ten, and if these are few 2 and 5 times them."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = max(1, math.ceil((last - first) / 6))
            values = [10.0**e for e in range(first, last + 1, every)]
            if last - first <= 2:
                values = [part * 10.0**e for e in range(first - 1, last + 1) for part in (1, 2, 5)]
            return [(value, words(value)) for value in values if self.low <= value * 1.000001 and value <= self.high * 1.000001]
        span = self.high - self.low
        step = 10 ** math.floor(math.log10(span / 4))
        step *= next(s for s in (1, 2, 5, 10) if span / (step * s) <= 6)
        first = math.ceil(self.low / step - 1e-9)
        return [(i * step, words(i * step)) for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def frame(x_axis, y_axis, x_name="", *, x_ticks=None, y_ticks=None, y_words=True):
    """What is around the lines: a grid of y's ticks, the x axis below, words of both. Ticks: [(value, words)]."""
    left, right, bottom = x_axis.start, x_axis.end, y_axis.start
    out = ""
    for value, words in y_ticks or y_axis.ticks():
        out += line(left, y_axis(value), right, y_axis(value), "grid")
        if y_words:
            out += text(left - 8, y_axis(value) + 4, "tick", "end", words)
    for value, words in x_ticks or x_axis.ticks():
        out += line(x_axis(value), bottom, x_axis(value), bottom + 4, "axis") + text(x_axis(value), bottom + 18, "tick", "middle", words)
    out += line(left, bottom, right, bottom, "axis")
    return out + (text((left + right) / 2, bottom + 36, "tick", "middle", x_name) if x_name else "")


def curve(x_axis, y_axis, points, style, dots=0):
    """A line of style "l0", "l1 dash", ...; with `dots`, circles of that radius on it. Of style "c0", ...: dots alone."""
    places = [(x_axis(x), y_axis(y)) for x, y in points]
    colour = "c" + style.split()[0][1:]
    radius = 2.6 if style[0] == "c" else dots
    out = "" if style[0] == "c" else polyline(places, style)
    return out + ("".join(circle(x, y, radius, colour) for x, y in places) if radius else "")


def end_labels(x, ends, room):
    """Names to the right of curves, at least `room` pixels apart: [(y, name, note)]."""
    out, above = "", -math.inf
    for y, name, note in sorted(ends):
        above = max(y + 4, above + room)
        out += text(x, above, "head", "start", name) + (text(x, above + 16, "muted", "start", note) if note else "")
    return out


def legend(names, width):
    """[(x, y, name, style)], the rows below a chart of that width; and the number of rows."""
    places, at, row = [], 24, 0
    for name, style in names:
        wide = 17 + 6.7 * len(name)
        if at > 24 and at + wide > width - 10:
            at, row = 24, row + 1
        places.append((at, 18 * row, name, style))
        at += wide + 22
    return places, row


def lines(title, x_name, y_name, series, *, x_log=False, y_log=False, x_range=None, y_range=None, note="", marks=(),
          size=(760, 420), x_ticks=None):
    """series: [(name, [(x, y)], style)]; style "l0", "l1 dash", or "c0" for dots. marks: [(x, words)] vertical lines."""
    width, height = size
    xs = [x for _, points, _ in series for x, _ in points]
    ys = [y for _, points, _ in series for _, y in points]
    x_axis = Axis(*(x_range or (min(xs), max(xs))), 76, width - 28, x_log)
    y_axis = Axis(*(y_range or (min(ys), max(ys))), height - 92, 66, y_log)
    keys, rows = legend([(name, style) for name, _, style in series if name], width)
    out = begin(width, height + 18 * rows, title) + text(24, 56, "tick", "start", y_name)
    out += frame(x_axis, y_axis, x_name, x_ticks=x_ticks)
    for value, words in marks:
        out += line(x_axis(value), 66, x_axis(value), height - 92, "mark") + text(x_axis(value) + 4, height - 98, "tick", "start", words)
    out += "".join(curve(x_axis, y_axis, points, style) for _, points, style in series)
    for at, down, name, style in keys:
        y = height - 34 + down
        out += circle(at + 6, y, 2.6, style) if style[0] == "c" else line(at, y, at + 12, y, style)
        out += text(at + 17, height - 30 + down, "", "start", name)
    if note:
        out += text(24, height - 10 + 18 * rows, "tick", "start", note)
    return out + "</svg>\n"


def dots(title, rows, unit, *, note="", width=760, form="{:,.3g}"):
    """rows: [(words, value, class)], drawn downwards: a dot each over a logarithmic axis, which has no place where a bar could begin."""
    left, bottom = 36 + 6.7 * max(len(words) for words, _, _ in rows), 62 + 28 * len(rows)
    values = [value for _, value, _ in rows]
    axis = Axis(10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values))), left, width - 90, log=True)
    out = begin(width, bottom + (72 if note else 48), title)
    for value, words in axis.ticks():
        out += line(axis(value), 54, axis(value), bottom, "grid") + text(axis(value), bottom + 16, "tick", "middle", words)
    out += line(left, bottom, width - 90, bottom, "axis") + text((left + width - 90) / 2, bottom + 34, "tick", "middle", unit + ", logarithmic")
    for i, (words, value, style) in enumerate(rows):
        y = 72 + 28 * i
        out += text(left - 8, y + 4, "", "end", words) + line(left, y, axis(value), y, "grid")
        out += circle(axis(value), y, 6, style) + text(axis(value) + 12, y + 4, "", "start", f"{form.format(value)} {unit}")
    if note:
        out += text(24, bottom + 60, "tick", "start", note)
    return out + "</svg>\n"


def bars(title, rows, unit, *, note="", width=760, form="{:,.3g}", centre=None):
    """rows: [(words, value, class)], drawn downwards; a value is written behind its bar. Bars begin at 0, or of factors at `centre`."""
    left, height = 36 + 6.7 * max(len(words) for words, _, _ in rows), 74 + 28 * len(rows) + (24 if note else 8)
    high = max(value for _, value, _ in rows)
    low = 0 if centre is None else min(value for _, value, _ in rows) / 1.2
    axis = Axis(low, high, left, width - 110, log=centre is not None)
    out = begin(width, height, title)
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
