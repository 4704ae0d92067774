"""Which rank owns which elements in ZeRO-1, from the layout a real arena has, and what the ranks keep."""

from svg import begin, line, rect, text

N = 4
LEFT, TOP, WIDTH, HEIGHT, ROW, RIGHT = 150, 112, 760, 26, 62, 30
TOTAL = TOP + 3 * ROW + N * 34 + 74
RULES = """\
    .bucket { fill: none; stroke: $muted } .parameter { fill: $soft } .other { fill: $faint } .inside { font-size: 11px }
    .padding { fill: none; stroke: $muted; stroke-dasharray: 2 2 } .leader { stroke: $muted } .cut { stroke: $muted; stroke-dasharray: 3 3 }
"""


def bar(x, y, width, style):
    return rect(x + 0.5, y, width - 1, HEIGHT, style)


def title_of(y, head, note):
    return text(LEFT - 14, y + 12, "head", "end", head) + text(LEFT - 14, y + 27, "tick", "end", note)


def memory_table(shares):
    """For a ResNet-18 in bf16 with AdamW: 4 bytes for an f32 master and 8 for two moments, of every element, padding included."""
    table = "| ranks | DDP | ZeRO-1 | saved | padding |\n|---|---|---|---|---|\n"
    for row in shares:
        whole, mine, saved = (12 * float(n) / 1e6 for n in (row["all"], row["mine"], row["all"] - row["mine"]))
        table += f"| {row['ranks']} | {whole:.1f} MB | {mine:.1f} MB | {saved:.1f} MB | {row['padding']} elements |\n"
    return table


def parameters(trace, x_of, y):
    out = title_of(y, "parameters", "declared order")
    all_parameters = trace["parameters"]
    for i, parameter in enumerate(all_parameters):
        following = all_parameters[i + 1]["begin"] if i + 1 < len(all_parameters) else trace["size"]
        x, padding = x_of(parameter["begin"]), x_of(parameter["begin"] + parameter["count"])
        if x_of(following) > padding + 2:
            out += bar(padding, y, x_of(following) - padding, "padding")
        width = padding - x
        middle = x + width / 2
        out += bar(x, y, width, "parameter")
        if width > 60:
            out += text(middle, y + 17, "inside", "middle", parameter["name"])
        else:
            out += line(middle, y - 6, middle, y, "leader") + text(middle, y - 11, "tick", "middle", parameter["name"])
    return out


def draw(trace):
    size, buckets = trace["size"], trace["buckets"]

    def x_of(element):
        return LEFT + WIDTH * float(element) / float(size)

    def shards(rank, y, others):
        return "".join(bar(x_of(begin_), y, x_of(end) - x_of(begin_), "other" if others else f"c{rank}")
                       for begin_, end in (bucket["shards"][rank] for bucket in buckets))

    out = begin(LEFT + WIDTH + RIGHT, TOTAL, "Which rank owns which elements",
                f"{len(trace['parameters'])} parameters of a small network in one arena of {size} elements, its buckets, and their "
                f"shards for {N} ranks", rules=RULES)
    y = TOP
    out += parameters(trace, x_of, y)
    y += ROW
    out += title_of(y, "buckets", "numbered as sent")
    for b, bucket in enumerate(buckets):
        x, width = x_of(bucket["range"][0]), x_of(bucket["range"][1]) - x_of(bucket["range"][0])
        out += bar(x, y, width, "bucket") + text(x + width / 2, y + 17, "inside", "middle", f"bucket {b}")
        out += line(x, TOP - 5, x, TOTAL - 50, "cut")
    out += line(x_of(size), TOP - 5, x_of(size), TOTAL - 50, "cut")
    y += ROW
    out += title_of(y, "shards", "colour: its rank") + "".join(shards(rank, y, False) for rank in range(N))
    y += ROW
    out += text(LEFT + 5, y - 2, "tick", "start", "what each rank keeps of masters and optimizer state")
    y += 8
    for rank in range(N):
        out += text(LEFT - 14, y + 18, "head", "end", f"rank {rank}")
        out += "".join(shards(other, y, other != rank) for other in range(N))
        y += 34
    out += text(24, TOTAL - 16, "muted", "start",
                "A shard may begin in one parameter and end in another. Dashed: padding, zeros that are never saved.")
    return out + "</svg>\n", memory_table(trace["shares"])
