"""Boxes and arrows of the chapters' diagrams, with the words in them."""

import math

from svg import RANKS, begin, line, rect, text

STYLE = """
    .box { fill: #eef3fb; stroke: #2f6fd6 } .plain { fill: #ffffff; stroke: #59636e } .warm { fill: #fdf3dc; stroke: #c98a00 }
    .good { fill: #e4f4e8; stroke: #1a7f37 } .bad { fill: #fde8e8; stroke: #cf222e }
    .way { stroke: #1f2328; stroke-width: 1.5; fill: none } .tip { fill: #1f2328 }
    .back { stroke: #cf222e; stroke-width: 1.5; fill: none } .back_tip { fill: #cf222e }
    .code { font-family: "DejaVu Sans Mono", ui-monospace, Menlo, Consolas, monospace }
    @media (prefers-color-scheme: dark) {
      .box { fill: #14233a; stroke: #5c9dff } .plain { fill: #0d1117; stroke: #9198a1 } .warm { fill: #33290f; stroke: #e3b341 }
      .good { fill: #10301b; stroke: #4ac26b } .bad { fill: #3a1616; stroke: #ff6a61 }
      .way { stroke: #e6edf3 } .tip { fill: #e6edf3 } .back { stroke: #ff6a61 } .back_tip { fill: #ff6a61 }
    }
"""


class Diagram:
    def __init__(self, width, height, title):
        self.out = begin(width, height, title, RANKS + STYLE) + text(24, 34, "title", "start", title)

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
