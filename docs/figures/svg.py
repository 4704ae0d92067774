"""Pieces of an SVG picture, one line each. Coordinates are pixels, `style` is a class of the picture's sheet."""

import re
import string

# What a rule may call $NAME: the colour on light paper, and that on dark.
COLOURS = {
    "ink": ("#1f2328", "#e6edf3"), "muted": ("#59636e", "#9198a1"), "grid": ("#d1d9e0", "#2a313a"), "paper": ("#ffffff", "#0d1117"),
    "soft": ("#d1d9e0", "#3d444d"), "faint": ("#eaeef2", "#1c2229"),
    "c0": ("#2f6fd6", "#5c9dff"), "c1": ("#c98a00", "#e3b341"), "c2": ("#1a7f37", "#4ac26b"), "c3": ("#cf222e", "#ff6a61"),
    "c4": ("#8250df", "#b692ff"), "c5": ("#1b8a9a", "#4fc3d4"), "c6": ("#b35900", "#f0883e"), "c7": ("#bf3989", "#ff80c8"),
    "tint0": ("#eef3fb", "#14233a"), "tint1": ("#fdf3dc", "#33290f"), "tint2": ("#e4f4e8", "#10301b"), "tint3": ("#fde8e8", "#3a1616"),
}
RULES = """
    text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12px; fill: $ink }
    .title { font-size: 18px; font-weight: 600 } .head { font-size: 14px; font-weight: 600 }
    .muted { fill: $muted } .tick { fill: $muted; font-size: 11px }
    .paper { fill: $paper } .axis { stroke: $muted } .grid { stroke: $grid }
""" + "".join(f"    .c{i} {{ fill: $c{i} }} .l{i} {{ fill: none; stroke: $c{i}; stroke-width: 2 }}\n" for i in range(8)) + """\
    .dash { stroke-dasharray: 5 4 } .mark { stroke: $muted; stroke-dasharray: 2 3 }
"""


def escaped(words):
    return words.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def titled(element, title):
    """The end of an element without words of its own, whose title is shown under the pointer."""
    return f"><title>{escaped(title)}</title></{element}>\n" if title else "/>\n"


def text(x, y, style, anchor, words):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escaped(words)}</text>\n'


def rect(x, y, width, height, style, title=""):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{style}"' + titled("rect", title)


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>\n'


def circle(x, y, radius, style, title=""):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{style}"' + titled("circle", title)


def polyline(points, style):
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" class="{style}"/>\n'


def sheet(rules):
    """The rules with the colours of light paper, and again those with colours for viewers who prefer dark."""
    light, dark = ({name: pair[i] for name, pair in COLOURS.items()} for i in range(2))
    coloured = ""
    for selector, body in re.findall(r"([^{}]+){([^{}]*)}", rules):
        kept = "; ".join(part.strip() for part in body.split(";") if "$" in part)
        coloured += f" {selector.strip()} {{ {kept} }}" if kept else ""
    return (string.Template(rules).substitute(light) + "    @media (prefers-color-scheme: dark) {"
            + string.Template(coloured).substitute(dark) + " }\n")


def begin(width, height, title, *notes, rules=""):
    """Paper with a title and lines of notes below it. The picture ends with </svg>."""
    out = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
           f'height="{height:.0f}" role="img">\n<title>{escaped(title)}</title>\n<style>{sheet(RULES + rules)}</style>\n'
           f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" class="paper"/>\n')
    out += text(24, 34, "title", "start", title)
    return out + "".join(text(24, 56 + 18 * i, "muted", "start", note) for i, note in enumerate(notes))
