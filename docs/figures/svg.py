"""Pieces of an SVG picture, one line each. Coordinates are pixels, `style` is a class of the picture's sheet."""

BASE = """
    text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12px; fill: #1f2328 }
    .title { font-size: 18px; font-weight: 600 } .head { font-size: 14px; font-weight: 600 }
"""
RANKS = BASE + """\
    .muted { fill: #59636e } .tick { fill: #59636e; font-size: 11px }
    .paper { fill: #ffffff } .axis { stroke: #59636e } .grid { stroke: #d1d9e0 }
    .c0 { fill: #2f6fd6 } .c1 { fill: #c98a00 } .c2 { fill: #1a7f37 } .c3 { fill: #cf222e }
    .c4 { fill: #8250df } .c5 { fill: #1b8a9a } .c6 { fill: #b35900 } .c7 { fill: #bf3989 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .muted, .tick { fill: #9198a1 }
      .paper { fill: #0d1117 } .axis { stroke: #9198a1 } .grid { stroke: #2a313a }
      .c0 { fill: #5c9dff } .c1 { fill: #e3b341 } .c2 { fill: #4ac26b } .c3 { fill: #ff6a61 }
      .c4 { fill: #b692ff } .c5 { fill: #4fc3d4 } .c6 { fill: #f0883e } .c7 { fill: #ff80c8 }
    }
"""


def escaped(words):
    return words.replace("&", "&amp;").replace("<", "&lt;")


def text(x, y, style, anchor, words):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escaped(words)}</text>\n'


def rect(x, y, width, height, style):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{style}"/>\n'


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>\n'


def begin(width, height, title, style):
    """A sheet of paper, whose colours follow the viewer's preference for light or dark. The picture ends with </svg>."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            f'height="{height:.0f}" role="img">\n<title>{escaped(title)}</title>\n<style>{style}</style>\n'
            f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" class="paper"/>\n')
