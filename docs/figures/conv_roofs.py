"""A roofline of convolutions: what oneDNN and Athanor reach, pass by pass, from the JSON of bench_conv_choices."""

import math

from svg import RANKS, begin, escaped, line, text

PASSES = (("forward", "forward"), ("backward_data", "backward: data"), ("backward_weights", "backward: weights"))
LOW_X, HIGH_X, LOW_Y, HIGH_Y = 1.5, 1000, 40, 2000
WIDTH, HEIGHT, LEFT, TOP, GAP = 250, 260, 62, 128, 26
STYLE = RANKS + """\
    .roof { stroke: #1f2328; stroke-width: 1.5; fill: none } .peer { fill: none; stroke: #59636e; stroke-width: 1.5 }
    .ours { fill: #2f6fd6 } .won { fill: #c98a00 } .gain { stroke: #d1d9e0 }
    @media (prefers-color-scheme: dark) {
      .roof { stroke: #e6edf3 } .peer { stroke: #9198a1 } .ours { fill: #5c9dff } .won { fill: #e3b341 } .gain { stroke: #3d444d }
    }
"""


def x_of(intensity):
    return WIDTH * math.log(intensity / LOW_X) / math.log(HIGH_X / LOW_X)


def y_of(gflops):
    return HEIGHT * (1 - math.log(max(gflops, LOW_Y) / LOW_Y) / math.log(HIGH_Y / LOW_Y))


def circle(x, y, radius, style, title):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{style}"><title>{escaped(title)}</title></circle>\n'


def roof(peak, bandwidth):
    ridge = peak / bandwidth
    points = ((LOW_Y / bandwidth, LOW_Y) if LOW_Y / bandwidth > LOW_X else (LOW_X, LOW_X * bandwidth), (ridge, peak), (HIGH_X, peak))
    return '<polyline class="roof" points="' + " ".join(f"{x_of(a):.1f},{y_of(b):.1f}" for a, b in points) + '"/>\n'


def panel(name, rows, peak, bandwidth, first):
    out = text(0, -10, "head", "start", name)
    for gflops in (50, 100, 200, 400, 800, 1600):
        out += line(0, y_of(gflops), WIDTH, y_of(gflops), "grid")
        if first:
            out += text(-8, y_of(gflops) + 4, "tick", "end", str(gflops))
    for intensity in (2, 10, 100, 1000):
        out += text(x_of(intensity), HEIGHT + 18, "tick", "middle", str(intensity))
    out += line(0, HEIGHT, WIDTH, HEIGHT, "axis") + roof(peak, bandwidth)
    for row in rows:
        x = x_of(row["flops"] / row["bytes"])
        ours, peer = (row["flops"] / row["seconds"][who] * 1e-9 for who in ("rule", "vendor"))
        won = "winograd" in row["seconds"] and ours > 1.1 * peer
        out += line(x, y_of(peer), x, y_of(ours), "gain") + circle(x, y_of(peer), 4, "peer", f"oneDNN: {row['conv']}")
        out += circle(x, y_of(ours), 4, "won" if won else "ours", f"Athanor: {row['conv']}")
    return out


def draw(found):
    peak, bandwidth = found["flops_per_s"] * 1e-9, found["bytes_per_s"] * 1e-9
    rows = [row for row in found["rows"] if row["conv"].split()[1] == "f32" and "vendor" in row["seconds"]]
    title = "Convolutions against the roof"
    out = begin(LEFT + 3 * WIDTH + 2 * GAP + 30, TOP + HEIGHT + 62, title, STYLE) + text(24, 34, "title", "start", title)
    out += text(24, 58, "muted", "start", f"Each dot is one convolution of a training step in f32: GFLOP/s of its definition. The roof: "
                f"{peak:.0f} GFLOP/s, {bandwidth:.0f} GB/s.")
    for x, style, words in ((28, "peer", "oneDNN"), (110, "ours", "Athanor, by the definition or oneDNN"),
                            (370, "won", "Athanor, by Winograd's algorithm, with a quarter of the multiplications")):
        out += circle(x, 80, 4, style, words) + text(x + 10, 84, "muted", "start", words)
    table = ["pass              convolutions  ms oneDNN  ms Athanor"]
    for i, (name, words) in enumerate(PASSES):
        mine = [row for row in rows if row["conv"].split()[0] == name]
        out += f'<g transform="translate({LEFT + i * (WIDTH + GAP)}, {TOP})">\n{panel(words, mine, peak, bandwidth, i == 0)}</g>\n'
        table.append(f"{name:<17} {len(mine):>12} {1e3 * sum(r['seconds']['vendor'] for r in mine):>10.1f} "
                     f"{1e3 * sum(r['seconds']['rule'] for r in mine):>11.1f}")
    out += text(LEFT + 1.5 * WIDTH + GAP, TOP + HEIGHT + 44, "muted", "middle", "FLOPs for each byte of images, filters and results")
    return out + "</svg>\n", "\n".join(table)
