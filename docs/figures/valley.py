"""Optimizers in the valley f(x, y) = 50 x^2 + y^2 / 2 of the chapter, from (1, 1)."""

import math
import random

import chart
from svg import begin, circle, polyline, text

STEPS = 200


def cosine(step):
    return (1 + math.cos(math.pi * step / STEPS)) / 2


def height(point):
    return 50 * point[0] ** 2 + point[1] ** 2 / 2


def descend(rate, momentum, schedule=lambda step: 1, noise=0.0, seed=1):
    """The point after each step of gradient descent with momentum; `noise` is added to each gradient."""
    draw, point, velocity, points = random.Random(seed), [1.0, 1.0], [0.0, 0.0], []
    for step in range(STEPS):
        gradient = [100 * point[0] + noise * draw.gauss(0, 1), point[1] + noise * draw.gauss(0, 1)]
        velocity = [momentum * v + g for v, g in zip(velocity, gradient)]
        point = [p - rate * schedule(step) * v for p, v in zip(point, velocity)]
        points.append(point)
    return points


def adam(rate, beta1=0.9, beta2=0.999):
    point, first, second, points = [1.0, 1.0], [0.0, 0.0], [0.0, 0.0], []
    for step in range(1, STEPS + 1):
        gradient = [100 * point[0], point[1]]
        first = [beta1 * m + (1 - beta1) * g for m, g in zip(first, gradient)]
        second = [beta2 * v + (1 - beta2) * g * g for v, g in zip(second, gradient)]
        point = [p - rate * (m / (1 - beta1**step)) / math.sqrt(v / (1 - beta2**step)) for p, m, v in zip(point, first, second)]
        points.append(point)
    return points


def mean_of(runs):
    return [sum(map(height, points)) / len(points) for points in zip(*runs)]


def paths():
    return {"gradient descent": descend(0.019, 0), "momentum 0.9": descend(0.019, 0.9), "Adam": adam(0.05)}


def results():
    """f after each step."""
    noisy = [mean_of([descend(0.005, 0.9, schedule, 1.0, seed) for seed in range(50)]) for schedule in (lambda step: 1, cosine)]
    return {**{name: [height(point) for point in points] for name, points in paths().items()},
            "noise, constant rate": noisy[0], "noise, cosine": noisy[1]}


def draw():
    styles = ("l3", "l0", "l2", "l1 dash", "l4 dash")
    series = [(name, list(enumerate(values, 1)), style) for (name, values), style in zip(results().items(), styles)]
    return chart.lines("Five ways down a valley that is 100 times as steep across as along", "step", "height above the minimum", series,
                       y_log=True, x_range=(0, STEPS), y_range=(1e-8, 100), size=(760, 440),
                       note="rates 0.019 without noise, Adam 0.05; with noise momentum 0.9 at 0.005, mean of 50 runs")


def draw_map(steps=40):
    """The valley from above, lines of equal height, with the first steps of the three runs without noise."""
    width, high, gap = 232, 300, 18
    out = begin(3 * width + 2 * gap + 60, 452, "The valley from above: the first 40 steps of three optimizers",
                "A grey line joins points of equal height: 50, 20, 5, 1, 0.2 and 0.02. The black dot is the minimum.",
                rules="    .level { fill: none; stroke: $soft } .minimum { fill: $ink }\n")
    for i, (name, points) in enumerate(paths().items()):
        left = 30 + i * (width + gap)
        along, across = chart.Axis(-0.9, 1.1, left, left + width), chart.Axis(-1.1, 1.1, 392, 392 - high)
        out += text(left, 84, "head", "start", name)
        for level in (50, 20, 5, 1, 0.2, 0.02):
            turns = [2 * math.pi * k / 720 for k in range(721)]
            ellipse = [(math.sqrt(2 * level) * math.cos(t), math.sqrt(level / 50) * math.sin(t)) for t in turns]
            run = []
            for y, x in [*ellipse, (math.inf, 0)]:
                if along.low <= y <= along.high:
                    run.append((along(y), across(x)))
                elif run:
                    out += polyline(run, "level")
                    run = []
        places = [(along(y), across(x)) for x, y in [(1.0, 1.0), *points[:steps]]]
        out += polyline(places, f"l{(3, 0, 2)[i]}") + "".join(circle(x, y, 2.2, f"c{(3, 0, 2)[i]}") for x, y in places)
        out += circle(along(0), across(0), 4, "minimum") + text(along(1) - 4, across(1) - 6, "tick", "end", "start")
    out += text(30, 418, "tick", "start", "Along the valley (y) is to the right, across it (x) is upwards; both axes have the same scale in all three maps.")
    out += text(30, 436, "tick", "start", "Rates: 0.019, 0.019 with momentum 0.9, Adam 0.05. A dot is the point after a step.")
    return out + "</svg>\n"


if __name__ == "__main__":
    for name, values in results().items():
        print(f"{name:22}", *(f"{values[at - 1]:9.2g}" for at in (10, 25, 50, 100, 200)))
