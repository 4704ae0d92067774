"""The ring as its state machines ran it: four ranks, one element per piece. The bits of a sum say whose values are in it."""

from svg import begin, line, rect, text

N = 4
CELL, CELL_HEIGHT, ROW, GAP, LEFT, TOP = 40, 24, 42, 34, 74, 104
PANEL, HALF_HEIGHT = N * CELL, N * ROW + 92
RULES = """\
    .empty { fill: none; stroke: $grid } .arrived { fill: none; stroke: $ink; stroke-width: 2 }
    .way { stroke: $ink; stroke-width: 1.5 } .tip { fill: $ink }
"""


def cell(x, y, bits, arrived):
    """A stripe for each rank that is in the sum, in its colour."""
    out = rect(x + 1, y, CELL - 3, CELL_HEIGHT, "empty")
    stripe = (CELL - 3) / N
    for r in range(N):
        if bits >> r & 1:
            out += rect(x + 1 + r * stripe, y, stripe, CELL_HEIGHT, f"c{r}")
    return out + (rect(x + 1, y, CELL - 3, CELL_HEIGHT, "arrived") if arrived else "")


def tip(x, y):
    return f'<path d="M{x:.1f} {y:.1f}l-3.5 -5h7z" class="tip"/>\n'


def arrow(x, y_to, wraps, y_bottom):
    """The way a piece took from the rank above. From the last rank to the first it leaves below and comes in above."""
    middle, end, start = x + CELL / 2 - 0.5, y_to - 3, y_to - (ROW - CELL_HEIGHT) + 2
    if not wraps:
        return line(middle, start, middle, end - 2, "way") + tip(middle, end)
    return (line(middle, y_bottom + 2, middle, y_bottom + 10, "way") + tip(middle, y_bottom + 14)
            + text(middle, y_bottom + 27, "tick", "middle", "to rank 0") + line(middle, end - 11, middle, end - 2, "way")
            + tip(middle, end))


def panel(x, y, title, pieces, arrived):
    out = text(x + PANEL / 2, y - 26, "head", "middle", title)
    for p in range(N):
        out += text(x + (p + 0.5) * CELL, y - 10, "tick", "middle", f"{p}")
    for r in range(N):
        row = y + r * ROW + 8
        for p in range(N):
            here = arrived is not None and arrived[r] == p
            out += cell(x + p * CELL, row, pieces[r][p], here)
            if here:
                out += arrow(x + p * CELL, row, r == 0, y + 8 + (N - 1) * ROW + CELL_HEIGHT)
    return out


def row_of_panels(y, name, half):
    out = text(24, y - 52, "head", "start", name)
    for r in range(N):
        row = y + r * ROW + 8
        out += rect(24, row + 7, 10, 10, f"c{r}") + text(38, row + 16, "", "start", f"rank {r}")
    out += panel(LEFT + 16, y, "before", half["before"], None)
    for s, step in enumerate(half["steps"]):
        out += panel(LEFT + 16 + (s + 1) * (PANEL + GAP), y, f"step {s}", step["after"], step["arrived"])
    return out


def draw(trace):
    width, height = LEFT + 16 + N * PANEL + (N - 1) * GAP + 24, TOP + 2 * HALF_HEIGHT + 40
    out = begin(width, height, "A ring of four ranks, as it ran", rules=RULES)
    out += row_of_panels(TOP + 22, "reduce_scatter: pieces 0 to 3 of each rank's buffer", trace["scatter"])
    out += row_of_panels(TOP + 22 + HALF_HEIGHT, "all_gather", trace["gather"])
    out += text(24, height - 36, "muted", "start",
                "A cell is a piece; its stripes show the ranks whose values are summed in it. Framed: what has arrived in this step, "
                "from the rank above")
    out += text(24, height - 18, "muted", "start",
                "(rank 0: from rank 3). Before all_gather, only the piece a rank owns is complete; the others are partial sums.")
    return out + "</svg>\n", ""
