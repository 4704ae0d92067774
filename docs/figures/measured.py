"""Charts of what a program measured or computed (data/NAME.json), and of the chapters' own tables."""

import json
import pathlib

import chart
import conv_roofs
from diagram import Diagram
from tables import number, table

DATA = pathlib.Path(__file__).resolve().parent / "data"


def data_of(name):
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def style_of(i, colours):
    """The style of line number i: all colours solid, then all dashed."""
    return f"l{colours[i % len(colours)]}" + (" dash" if i // len(colours) % 2 else "")


def gradcheck():
    data = data_of("gradcheck")
    series = [("computed in f64", list(zip(data["step"], data["f64"])), "l0"), ("in f32", data["f32"], "l3"),
              ("h² / 6", [(h, h * h / 6) for h in data["step"] if h > 1e-6], "l2 dash")]
    return chart.lines("The error of a central difference by its step", "step h", "largest error, of 64 places", series, x_log=True,
                       y_log=True, x_range=(1e-12, 1), y_range=(1e-12, 1),
                       note="left of the lowest point rounding is the error, right of it the curve between x - h and x + h")


def tensor_cores():
    """Which lane holds which element of y += a b, and the banks of a tile's pieces with and without the swizzle."""
    data = data_of("tensor_cores_by_hand")
    d = Diagram(820, 512, "One mma.sync, in the registers of 32 lanes")
    registers, lane_shown = ("box", "warm", "good", "bad"), 5
    for name, x, title in (("a", 24, "a: 16 x 8, four registers"), ("b", 300, "b: 8 x 8, two registers"), ("y", 576, "y: 16 x 8, four registers")):
        d.words(x, 66, title, "head")
        for row, owners in enumerate(data[name]):
            for column, (lane, register) in enumerate(owners):
                d.box(x + 27 * column, 76 + 15 * row, 26, 14, "", registers[register])
                d.words(x + 27 * column + 13, 76 + 15 * row + 11, f"{lane}.{register}", "" if lane == lane_shown else "tick", "middle")
                if lane == lane_shown:
                    d.box(x + 27 * column, 76 + 15 * row, 26, 14, "", "way")
    for register, style in enumerate(registers):
        d.box(300 + 54 * register, 212, 26, 14, f"*.{register}", style, "tick")
    d.words(300, 246, "A number is lane.register; the colour", "muted").words(300, 262, "is the register. Lane 5 has a black edge:", "muted")
    d.words(300, 278, "it holds 4 elements of a, 2 of b, 4 of y.", "muted")
    for x, words in ((24, "Eight lines of 128 bytes"), (300, "The same, swizzled")):
        d.words(x, 348, words, "head").words(x, 474, "each line: banks 0 to 3, 4 to 7, ..., 28 to 31", "tick")
    for name, x in (("straight", 24), ("turned", 300)):
        for line, pieces in enumerate(data[name]):
            for piece, bank in enumerate(pieces):
                d.fill(x + 26 * bank, 358 + 12 * line, 24, 10, f"c{piece}")
    for i, words in enumerate(("Here a colour is one of the eight pieces", "of 16 bytes of a line. ldmatrix reads", "one colour, from all eight lines. On the",
                               "left these lie in the same four banks", "and take eight rounds. On the right each", "has banks of its own: one round.")):
        d.words(576, 370 + 16 * i, words, "muted")
    return d.done()


def cpu_roofs():
    return conv_roofs.draw(data_of("where_time_goes_on_a_cpu"))[0]


def initialisation():
    data = data_of("initialisation")
    series = []
    for i, (name, rows) in enumerate(data.items()):
        series.append((name, list(enumerate(rows["activations"], 1)), f"l{i}"))
        series.append(("", list(enumerate(rows["gradients"], 1)), f"l{i} dash"))
    return chart.lines("Through 24 layers: activations (solid) and gradients (dashed)", "layer", "root mean square", series, y_log=True,
                       y_range=(1e-10, 1e4), x_range=(1, 24), note="3 x 3 convolutions of 32 channels with ReLU, no norm; gradients flow from layer 24 to layer 1")


def batch_norm():
    data = data_of("batch_norm")
    fast, slow = data["0.1"], data["0.01"]
    series = [("training mode", [(s, 100 * t) for s, _, t in fast], "l2"),
              ("evaluation, momentum 0.1", [(s, 100 * e) for s, e, _ in fast], "l0"),
              ("evaluation, momentum 0.01", [(s, 100 * e) for s, e, _ in slow], "l3")]
    return chart.lines("The same weights, measured in both modes", "step", "test accuracy, %", series, y_range=(0, 100), x_range=(0, 132),
                       marks=((44, "1 epoch"), (88, "2 epochs")), note="the running statistics begin at 0 and 1, and move by the momentum in each step")


def stuck_until(rows):
    """The last of the steps through which the distance stays near that of step 10; 0 if it leaves within 50 steps."""
    near = next((1.2 * distance for step, distance, *_ in rows if step == 10), 0)
    last = 0
    for step, distance, *_ in rows:
        if distance > near:
            break
        last = step
    return last if last > 50 else 0


def determinism():
    data = dict(sorted(data_of("determinism").items(), key=lambda one: float(one[0])))
    series = [(f"rate {rate}", [(s, max(d, 1e-10)) for s, d, *_ in rows], style_of(i, (2, 3, 0, 1, 4, 5))) for i, (rate, rows) in enumerate(data.items())]
    marks, stuck = (), stuck_until(data.get("1", []))
    if stuck:
        marks = ((stuck, "rate 1: stuck until here"),)
    return chart.lines("Two trainings that began one last bit apart", "step", "distance of the weights, relative", series, y_log=True,
                       y_range=(1e-10, 10), x_range=(0, max(rows[-1][0] for rows in data.values())), marks=marks,
                       note="one weight of 6,000 was changed to the next float before the first step; nothing else differs")


def activation_memory():
    data = data_of("activation_memory")
    names, styles, others = {0: "all kept", 1: "checkpoint of each layer"}, {0: "l3", 4: "l0", 1: "l2"}, 0
    series = []
    for segment in sorted(map(int, data), key=lambda s: (s > 0, -s)):  # without segments, then from the longest to the shortest
        if segment not in styles:
            styles[segment], others = style_of(others, (1, 4, 5)), others + 1
        points = data[str(segment)]["bytes"]
        series.append((names.get(segment, f"checkpoint of {segment} layers"), [(j / (len(points) - 1) * 100, b / 1e6) for j, b in enumerate(points)],
                       styles[segment]))
    return chart.lines("Memory through a step: up forwards, down backwards", "progress through the ops of the step, %", "live megabytes",
                       series, y_range=(0, max(y for _, points, _ in series for _, y in points) * 1.05), x_range=(0, 100),
                       note="16 convolutions with ReLU, 16 images of 32 x 32 with 16 channels: 1.05 MB for one result")


def matrix_product():
    data = data_of("matrix_product")
    rows = {row["name"]: row for row in data["rows"]}
    peak, bandwidth = rows["multiply-adds"]["gflops"], rows["copy"]["gbs"]
    series = [("the roof", [(0.1, 0.1 * bandwidth), (peak / bandwidth, peak), (200, peak)], "l5 dash")]
    for name, style in (("naive", "3"), ("reordered", "1"), ("blocked", "2"), ("library", "0"), ("matrix times vector", "4")):
        points = [(row["intensity"], row["gflops"]) for key, row in rows.items() if key.startswith(name)]
        series += [(name, points, ("c" if "vector" in name else "l") + style), ("", points, "c" + style)]
    return chart.lines("One core: products of n x n matrices under its roof", "FLOPs for each byte of the operands", "GFLOP/s", series, x_log=True,
                       y_log=True, x_range=(0.1, 200), y_range=(0.1, 1000), marks=((peak / bandwidth, "compute is the limit from here on"),),
                       note="n = 16 to 512 from left to right; left of the ridge the roof is what memory delivers, right of it what the core computes")


def attention():
    """The softmax of one query, key by key, as in the chapter's example; below it the measured memory of many."""
    d = Diagram(760, 590, "Attention: one pass over the keys, and its memory")
    passes = (("score 0, value (7, 0)", "m = 0", "t = 1", "o = (7, 0)"), ("score ln 2, value (7, 7)", "m = ln 2", "t = 1/2 + 1", "o = (7, 0)/2 + (7, 7)"),
              ("score ln 4, value (0, 7)", "m = ln 4", "t = 1.5/2 + 1", "o = (10.5, 7)/2 + (0, 7)"))
    for i, (key, largest, total, mixed) in enumerate(passes):
        x = 24 + 200 * i
        d.words(x, 66, f"key {i + 1}", "head").words(x, 84, key, "tick")
        d.box(x, 94, 168, 78, f"{largest}\n{total}\n{mixed}", "warm" if i else "box")
        if i:
            d.arrow(x - 32, 133, x, 133)
    d.arrow(592, 133, 624, 133).words(630, 110, "result", "head")
    d.words(630, 130, "(5.25, 10.5) / 1.75").words(630, 148, "= (3, 6)")
    d.words(24, 194, "m: the largest score so far; t: the sum of exp(score - m); o: the same, times the values.", "muted")
    d.words(24, 212, "Here each new maximum halves the earlier sums.", "muted")
    rows = data_of("attention")
    d.words(24, 242, "the most megabytes alive at once, one head of 64 channels", "tick")
    x_axis, y_axis = chart.Axis(128, 4096, 76, 560, True), chart.Axis(0.05, 500, 520, 250, True)
    d.out += chart.frame(x_axis, y_axis, "tokens", x_ticks=[(row["tokens"], f"{row['tokens']:,}") for row in rows])
    ends = []
    for key, name, style in (("table, step", "whole table, step", "l3"), ("table", "whole table, forward", "l3 dash"),
                             ("blocks, step", "in blocks, step", "l0"), ("blocks", "in blocks, forward", "l0 dash")):
        points = [(row["tokens"], row[key] / 1e6) for row in rows]
        d.out += chart.curve(x_axis, y_axis, points, style, 2.6)
        ends.append((y_axis(points[-1][1]), name, ""))
    d.out += chart.end_labels(572, ends, 18)
    return d.done()


def convolution_three_ways():
    data = data_of("convolution_three_ways")
    styles = {"seven loops": "c3", "im2col": "c1", "im2col and a product": "c0", "oneDNN": "c4", "Winograd": "c2"}
    names = {"im2col": "im2col alone", "im2col and a product": "im2col and product"}
    rows = [(names.get(row["name"], row["name"]), row["ms"], styles[row["name"]]) for row in data["rows"]]
    return chart.dots("One convolution in four programs, one core", rows, "ms",
                      note="8 images of 32 x 32, 64 to 64 channels, 3 x 3: 0.6 GFLOP. im2col alone is a part of the program below it")


def measuring_under_noise():
    data = data_of("measuring_under_noise")
    series = []
    for key, style in (("in blocks", "3"), ("in turns", "0")):
        ordered = sorted(data[key])
        series.append((f"medians of 20, {key}", [(100 * (ratio - 1), 100 * (i + 0.5) / len(ordered)) for i, ratio in enumerate(ordered)], "l" + style))
    return chart.lines("A program compared with itself, 200 times", "how much slower A seems than A, %", "share of comparisons below, %", series,
                       x_range=(-50, 50), y_range=(0, 100), marks=((0, "the true value"),),
                       note="in blocks: 20 runs of the one, then 20 of the other; in turns: one of each, and which one is first alternates")


def early_stopping():
    rows = table("early_stopping", "images that choose")
    points = []
    for cells in rows:
        points.append((f"{cells[0]} images, by {cells[1].strip('`')}", number(cells[2]) - number(cells[3]), "c3" if "accuracy" in cells[1] else "c0"))
    return chart.bars("How much of the best epoch is luck", points, "points", form="{:.1f}",
                      note="accuracy of the best weights on the images that chose them, minus that on all other images; mean of twelve seeds")


def batch_size():
    rows = table("batch_size_and_noise", "batch | loss lowest")
    split = lambda words: [float(x) for x in words.split(",")]  # noqa: E731
    low = [(number(c[0]), sorted(split(c[1]))[1]) for c in rows]
    high = [(number(c[0]), sorted(split(c[2]))[1]) for c in rows]
    first, rate = low[0]
    series = [("diverges from", high, "l3"), ("loss lowest at", low, "l0"), ("linear rule", [(b, rate * b / first) for b, _ in low], "l5 dash"),
              ("square root", [(b, rate * (b / first) ** 0.5) for b, _ in low], "l2 dash")]
    return chart.lines("Which rate a batch allows", "batch", "learning rate, median of three seeds", series, x_log=True, y_log=True,
                       x_range=(8, 512), y_range=(0.005, 1), x_ticks=[(b, f"{b:g}") for b, _ in low],
                       note="the two rules begin at the lowest loss of 8 images; from 128 to 512 images both rates grow less than either rule")


def inference():
    rows = table("inference_mode", "way")
    points = [(cells[0].replace("`", "").replace("()", "").split(":")[0] + (", recorded" if cells[0].startswith("plain") else ""), number(cells[6]), "c3" if "recorded" in cells[0] else "c0") for cells in rows]
    return chart.bars("Peak memory of a forward pass, 64 images", points, "MB", note="ResNet-20; what is recorded keeps every activation for a backward pass")


def emptying():
    rows = table("emptying_the_cache", "work")
    points = []
    for cells in rows[:3]:
        first = lambda words: float(words.split()[0])  # noqa: E731
        points += [(f"{cells[0]}, cached", first(cells[1]), "c0"), ("emptied after each", first(cells[2]), "c3")]
    return chart.dots("The price of a fresh page", points, "ms", note="CPU time of one thread, the fastest of three runs")


def profile():
    text = (DATA.parent.parent / "reading_a_profile.md").read_text(encoding="utf-8")
    block = text.split("    where the time went\n", 1)[1].split("\n\n", 1)[0]
    rows = [(line.split()[0], number(line.split()[3]), "c0" if line.split()[0] in ("forward", "backward", "update") else "c1") for line in block.splitlines()]
    return chart.bars("Where the time of this run went", rows, "%", note="blue is training itself; the rest is what can be made rarer or moved to other threads")


def articles():
    rows = [cells for cells in table("what_the_articles_say", "the article's") if "×" in cells[2]]
    points = []
    for cells in rows:
        factor = number(cells[2])
        points.append((cells[0], factor, "c2" if factor > 1.05 else "c3" if factor < 0.95 else "c1"))
    return chart.bars("What the advice gave here: times as fast", points, "×", form="{:,.4g}", width=860, centre=1.0,
                      note="bars begin at 1, which is no change; the axis is logarithmic. Where each was measured, and against what, is in the table")
