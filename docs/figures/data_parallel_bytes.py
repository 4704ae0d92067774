"""What a step sends, counted: one rank that sends everything and collects, and ranks that are equal."""

import math

from svg import RANKS, begin, line, text

WEIGHTS_MB = 11_689_512 * 4e-6  # ResNet-18 in f32
IMAGES_MB = 32 * 224 * 224 * 3e-6 * 4  # 32 images in f32
LEFT, TOP, WIDTH, HEIGHT, RIGHT, BOTTOM = 86, 92, 560, 300, 210, 88
LOW_MB, HIGH_MB = 50, 10_000
TICKS = ((50, "50 MB"), (100, "100 MB"), (200, "200 MB"), (500, "500 MB"), (1000, "1 GB"), (2000, "2 GB"), (5000, "5 GB"),
         (10_000, "10 GB"))
STYLE = """
    .curve { fill: none; stroke-width: 2 } .c0-line { stroke: #2f6fd6 } .c1-line { stroke: #c98a00 } .c3-line { stroke: #cf222e }
    @media (prefers-color-scheme: dark) {
      .c0-line { stroke: #5c9dff } .c1-line { stroke: #e3b341 } .c3-line { stroke: #ff6a61 }
    }
"""


def of_ranks(traffic):
    return [w * WEIGHTS_MB + i * IMAGES_MB for w, i in zip(traffic["weights"], traffic["images"])]


def mb(traffic):
    """Of the rank that has most."""
    return max(of_ranks(traffic))


def check(row):
    """What must have been counted: rank 0 and each of the others have a formula."""
    others, one, chain = row["ranks"] - 1, row["one"], row["chain"]
    holds = one["weights"] == [2 * others] + [2] * others and one["images"] == [others] + [1] * others
    holds = holds and chain["weights"] == [2] + [4] * (others - 1) + [2] and chain["images"] == one["images"]
    if not holds or any(abs(w - 4 * others / row["ranks"]) >= 1e-12 for w in row["equals"]["weights"]):
        raise ValueError(f"what {row['ranks']} ranks send is not what the formula says")


def x_of(ranks):
    return LEFT + WIDTH * (math.log2(ranks) - 1) / 5


def y_of(megabytes):
    return TOP + HEIGHT * (1 - math.log10(megabytes / LOW_MB) / math.log10(HIGH_MB / LOW_MB))


def curve(rows, scheme, color, label):
    points = [(x_of(row["ranks"]), y_of(mb(row[scheme]))) for row in rows]
    path = "".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    out = f'<path d="{path}" class="curve {color}-line"/>\n'
    out += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="{color}"/>\n' for x, y in points)
    return out + text(x_of(64) + 14, points[-1][1] + 4, "", "start", label)


def draw(rows):
    table = "| ranks | one rank sends all | along a chain | images, of rank 0 in both | DDP, every rank |\n|---|---|---|---|---|\n"
    for row in rows:
        check(row)
        images = max(row["one"]["images"]) * IMAGES_MB
        table += (f"| {row['ranks']} | {mb(row['one']):.0f} MB | {mb(row['chain']):.0f} MB | {images:.0f} MB | "
                  f"{mb(row['equals']):.0f} MB |\n")
    out = begin(LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM, "Bytes of the busiest rank", RANKS + STYLE)
    out += text(24, 34, "title", "start", "Bytes in and out of the busiest rank, per step")
    out += text(24, 56, "muted", "start",
                "ResNet-18 in f32 (46.8 MB of weights), 32 images of 224 x 224 in f32 per rank; both axes logarithmic")
    for megabytes, label in TICKS:
        y = y_of(megabytes)
        out += line(LEFT, y, LEFT + WIDTH, y, "axis" if megabytes == LOW_MB else "grid")
        out += text(LEFT - 10, y + 4, "tick", "end", label)
    for row in rows:
        x = x_of(row["ranks"])
        out += line(x, TOP + HEIGHT, x, TOP + HEIGHT + 4, "axis")
        out += text(x, TOP + HEIGHT + 18, "tick", "middle", f"{row['ranks']}")
    out += text(LEFT + WIDTH / 2, TOP + HEIGHT + 42, "muted", "middle", "ranks")
    # A rank in the middle of a chain moves more, as long as images are few.
    bend = next(row["ranks"] for row in rows if row["ranks"] > 2 and of_ranks(row["chain"])[0] == mb(row["chain"]))
    out += text(24, TOP + HEIGHT + 70, "muted", "start",
                f"Along a chain, rank 0 is the busiest from {bend} ranks on: it sends the images of every other rank. With {bend // 2}, "
                "a rank in the middle is.")
    out += curve(rows, "one", "c3", "one rank sends all")
    out += curve(rows, "chain", "c1", "along a chain")
    out += curve(rows, "equals", "c0", "DDP: every rank")
    return out + "</svg>\n", table
