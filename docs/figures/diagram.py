"""Boxes and arrows of the chapters' diagrams, with the words in them."""

import math

from svg import begin, line, rect, text

RULES = """\
    .box { fill: $tint0; stroke: $c0 } .plain { fill: $paper; stroke: $muted } .warm { fill: $tint1; stroke: $c1 }
    .good { fill: $tint2; stroke: $c2 } .bad { fill: $tint3; stroke: $c3 }
    .way { stroke: $ink; stroke-width: 1.5; fill: none } .tip { fill: $ink }
    .back { stroke: $c3; stroke-width: 1.5; fill: none } .back_tip { fill: $c3 }
    .code { font-family: "DejaVu Sans Mono", ui-monospace, Menlo, Consolas, monospace }
"""


class Diagram:
    def __init__(self, width, height, title):
        self.out = begin(width, height, title, rules=RULES)

    def words(self, x, y, words, style="", anchor="start"):
        self.out += text(x, y, style, anchor, words)
        return self

    def box(self, x, y, width, height, words="", style="box", word_style=""):
        """A box with lines of words in its middle; returns its centre."""
        self.out += f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4" class="{style}"/>\n'
        rows = words.split("\n") if words else []
        for i, row in enumerate(rows):
            self.out += text(x + width / 2, y + height / 2 + 4 + 15 * (i - (len(rows) - 1) / 2), word_style, "middle", row)
        return x + width / 2, y + height / 2

    def fill(self, x, y, width, height, style):
        self.out += rect(x, y, width, height, style)
        return self

    def rule(self, x1, y1, x2, y2, style="grid"):
        self.out += line(x1, y1, x2, y2, style)
        return self

    def arrow(self, x1, y1, x2, y2, style="way", words="", above=True):
        self.out += f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{style}"/>\n'
        self.tip(x1, y1, x2, y2, style)
        if words:
            self.out += text((x1 + x2) / 2, (y1 + y2) / 2 + (-6 if above else 15), "tick", "middle", words)
        return self

    def curve(self, x1, y1, x2, y2, bend, style="way", words=""):
        """An arc from one point to the other, `bend` pixels to the side at its middle."""
        mx, my = (x1 + x2) / 2, (y1 + y2) / 2
        length = math.hypot(x2 - x1, y2 - y1)
        cx, cy = mx + 2 * bend * (y2 - y1) / length, my - 2 * bend * (x2 - x1) / length
        self.out += f'<path d="M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}" class="{style}"/>\n'
        self.tip(cx, cy, x2, y2, style)
        if words:
            self.out += text((mx + cx) / 2, (my + cy) / 2 + (-5 if bend > 0 else 14), "tick", "middle", words)
        return self

    def tip(self, x1, y1, x2, y2, style):
        angle = math.atan2(y2 - y1, x2 - x1)
        points = [(x2 - 8 * math.cos(angle + side), y2 - 8 * math.sin(angle + side)) for side in (0.42, -0.42)]
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(x2, y2), *points])
        self.out += f'<polygon points="{places}" class="{"back_tip" if style == "back" else "tip"}"/>\n'

    def done(self):
        return self.out + "</svg>\n"
