"""The ladder as an SVG: the seconds per epoch of each rung, on a logarithmic axis."""

import pathlib
import statistics
import sys

from report import number

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/figures"))
from chart import Axis  # noqa: E402
from svg import begin, circle, line, text  # noqa: E402

LEFT, TOP, WIDTH, RIGHT, ROW = 262, 126, 400, 228, 27
RULES = """\
    .guide { stroke: $grid; stroke-dasharray: 2 4 } .spread { stroke: $muted; stroke-width: 2 } .strong { font-weight: 600 }
    .hollow { fill: $paper; stroke: $muted; stroke-width: 2 }
"""


def factor(found):
    return number(found["factor"]) if found else ""


def rows_of(result):
    """Title, seconds of all repeats, style, the trick's factor, that from the naive rung, whether projected."""
    peer = result["peer"]
    if peer:
        yield peer["title"], peer["epoch_s_of"], "c3", "", "", peer["projected"]
    for row in result["rows"]:
        if row["stage"] == "epoch":
            naive = row["key"] == "naive"
            style = "c1" if naive else "c0" if row["kept"] else "hollow"
            yield (row["title"] if naive else "+ " + row["title"], row["epoch_s_of"], style, factor(row.get("factor")),
                   factor(row["from_naive"]) if not naive and row["kept"] else "" if naive else "left out", row["projected"])


def head_of(result):
    total, machine, peer = result["total"], result["machine"], result["peer"]
    beside = f", {number(peer['to_full']['factor'])} times faster than {peer['title']}" if peer else ""
    return (f"An epoch of the same work, {number(total['factor']['factor'])} times faster",
            f"{result['program']} --model {result['model']}, {result['images']:,} images, {result['data']}{beside}.",
            f"Medians of {result['repeats']} repeats in turns; the line spans them. {machine['cores']} cores of "
            f"{machine['processor']}, {result['date']}, load {machine['load_before']:.1f} to {machine['load_after']:.1f}.")


def draw(result):
    rows = list(rows_of(result))
    every = [seconds for _, repeats, *_ in rows for seconds in repeats]
    bottom, right = TOP + len(rows) * ROW, LEFT + WIDTH
    x = Axis(min(every) / 1.25, max(every) * 1.25, LEFT, right, log=True)
    out = begin(right + RIGHT, bottom + 60, *head_of(result), rules=RULES)
    for column, words in ((68, "s/epoch"), (134, "the trick"), (212, "from naive")):
        out += text(right + column, TOP - 14, "muted", "end", words)
    for value, words in x.ticks(lambda value: f"{value:g} s"):
        out += line(x(value), TOP - 6, x(value), bottom, "grid") + text(x(value), bottom + 16, "tick", "middle", words)
    for i, (title, repeats, style, gain, total, projected) in enumerate(rows):
        y, middle = TOP + i * ROW + ROW / 2, statistics.median(repeats)
        out += text(LEFT - 12, y + 4, "head" if style in ("c1", "c3") else "", "end", title)
        out += line(LEFT, y, x(middle), y, "guide") + line(x(min(repeats)), y, x(max(repeats)), y, "spread") + circle(x(middle), y, 6, style)
        out += text(right + 68, y + 4, "", "end", ("~" if projected else "") + number(middle))
        out += text(right + 134, y + 4, "muted" if style == "hollow" else "strong", "end", gain and gain + "x")
        out += text(right + 212, y + 4, "muted", "end", total if total in ("", "left out") else total + "x")
    out += line(LEFT, TOP - 6, LEFT, bottom, "axis")
    out += text(24, bottom + 44, "muted", "start",
                "Seconds per epoch with its validation, logarithmic; ~ projected from fewer steps. Hollow: measured, but left out of the rungs below.")
    return out + "</svg>\n"
