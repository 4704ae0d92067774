"""When a backward pass computes and when its buckets travel, under the three kinds of overlap."""

from svg import begin, line, rect, text

LEFT, TOP, WIDTH, RIGHT, BAR, GROUP = 128, 116, 800, 50, 26, 112
TOTAL = TOP + 3 * GROUP + 60
ADVANCED_BY = {"none": "reduce() only", "pumped": "the pass", "thread": "its own thread"}
RULES = """\
    .wait { fill: none; stroke: $muted; stroke-dasharray: 3 3 } .on { fill: $paper; font-size: 11px; font-weight: 600 }
"""


def lane(y, spans, style, x, label):
    out = ""
    for i, (start, end) in enumerate(spans):
        left, width = x(start), max(x(end) - x(start), 1.0)
        out += rect(left + 0.5, y, max(width - 1, 0.5), BAR, style)
        if width > 14:
            out += text(left + width / 2, y + 17, "on", "middle", label(i))
    return out


def group(y, kind, x):
    computed, reduced, layers = kind["layers"][-1][1], kind["reduced"], len(kind["layers"])
    out = text(24, y + 18, "head", "start", kind["name"]) + text(24, y + 36, "tick", "start", "advanced by")
    out += text(24, y + 50, "tick", "start", ADVANCED_BY[kind["name"]])
    out += lane(y, kind["layers"], "c0", x, lambda i: f"{layers - 1 - i}")
    out += rect(x(computed) + 0.5, y, max(x(reduced) - x(computed) - 1, 0.5), BAR, "wait")
    waits = f"waits {reduced - computed:.0f} ms"
    if x(reduced) - x(computed) > 80:
        out += text((x(computed) + x(reduced)) / 2, y + 17, "tick", "middle", waits)
    else:
        out += text(x(reduced) + 6, y + 17, "tick", "start", waits)
    out += lane(y + 34, kind["buckets"], "c1", x, str)
    out += lane(y + 34, kind["agreement"], "c2", x, lambda i: "a")
    return out + line(LEFT, y + 72, LEFT + WIDTH, y + 72, "axis")


def draw(trace):
    longest = max(kind["reduced"] for kind in trace["kinds"])
    buckets, layers = (len(trace["kinds"][0][name]) for name in ("buckets", "layers"))
    owners = f": 0 is layer {layers - 1}'s, {buckets - 1} is layer 0's" if buckets == layers else ""

    def x(ms):
        return LEFT + WIDTH * ms / longest

    out = begin(LEFT + WIDTH + RIGHT, TOTAL, "A backward pass and its buckets",
                f"Rank 0 of 2. {layers} layers, each of which sleeps for {trace['layer_ms']} ms instead of computing; "
                f"{buckets} buckets, from the last layer to the first.",
                "An all-reduce of a bucket sends two messages one after the other, each up to "
                f"{trace['delay_ms']} ms late, at random. Of {trace['steps']} steps the median.", rules=RULES)
    table = "| | backward pass | first bucket leaves | reduce() returns | of that, waiting |\n|---|---|---|---|---|\n"
    for k, kind in enumerate(trace["kinds"]):
        out += group(TOP + k * GROUP, kind, x)
        computed, reduced = kind["layers"][-1][1], kind["reduced"]
        table += (f"| {kind['name']} | {computed:.2f} ms | {kind['buckets'][0][0]:.2f} ms | {reduced:.2f} ms | "
                  f"{reduced - computed:.2f} ms |\n")
    every = 50 if longest > 200 else 20 if longest > 80 else 10 if longest > 40 else 5
    for ms in range(0, int(longest) + 1, every):
        y = TOP + 2 * GROUP + 72
        out += line(x(ms), y, x(ms), y + 4, "axis") + text(x(ms), y + 18, "tick", "middle", f"{ms} ms")
    for at, style, words in ((0, "c0", "backward pass, by layer"),
                             (200, "c1", f"messages, by bucket{owners}"),
                             (560, "c2", "a: norm and overflow agreed on")):
        out += rect(LEFT + at, TOTAL - 26, 12, 12, style) + text(LEFT + at + 18, TOTAL - 16, "muted", "start", words)
    return out + "</svg>\n", table
