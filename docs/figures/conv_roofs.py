"""A roofline of convolutions: what oneDNN and Athanor reach, pass by pass, from the JSON of bench_conv_choices."""

from chart import Axis, frame
from svg import begin, circle, line, polyline, text

PASSES = (("forward", "forward"), ("backward_data", "backward: data"), ("backward_weights", "backward: weights"))
WIDTH, HEIGHT, LEFT, TOP, GAP = 250, 260, 62, 128, 26
X, Y = Axis(1.5, 1000, 0, WIDTH, log=True), Axis(40, 2000, HEIGHT, 0, log=True)
RULES = """\
    .roof { stroke: $ink; stroke-width: 1.5; fill: none } .peer { fill: none; stroke: $muted; stroke-width: 1.5 }
    .ours { fill: $c0 } .won { fill: $c1 } .gain { stroke: $soft }
"""


def panel(name, rows, peak, bandwidth, first):
    out = text(0, -10, "head", "start", name)
    out += frame(X, Y, x_ticks=[(i, str(i)) for i in (2, 10, 100, 1000)], y_ticks=[(g, str(g)) for g in (50, 100, 200, 400, 800, 1600)],
                 y_words=first)
    begin_roof = max(X.low, Y.low / bandwidth)
    out += polyline([(X(i), Y(min(i * bandwidth, peak))) for i in (begin_roof, peak / bandwidth, X.high)], "roof")
    for row in rows:
        x = X(row["flops"] / row["bytes"])
        ours, peer = (row["flops"] / row["seconds"][who] * 1e-9 for who in ("rule", "vendor"))
        won = "winograd" in row["seconds"] and ours > 1.1 * peer
        out += line(x, Y(peer), x, Y(ours), "gain") + circle(x, Y(peer), 4, "peer", f"oneDNN: {row['conv']}")
        out += circle(x, Y(ours), 4, "won" if won else "ours", f"Athanor: {row['conv']}")
    return out


def draw(found):
    peak, bandwidth = found["flops_per_s"] * 1e-9, found["bytes_per_s"] * 1e-9
    rows = [row for row in found["rows"] if row["conv"].split()[1] == "f32" and "vendor" in row["seconds"]]
    out = begin(LEFT + 3 * WIDTH + 2 * GAP + 30, TOP + HEIGHT + 62, "Convolutions against the roof",
                f"Each dot is one convolution of a training step in f32: GFLOP/s of its definition. The roof: {peak:.0f} GFLOP/s, "
                f"{bandwidth:.0f} GB/s.", rules=RULES)
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
