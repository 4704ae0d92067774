"""Optimizers in the valley f(x, y) = 50 x^2 + y^2 / 2 of the chapter, from (1, 1)."""

import math
import random

import chart

STEPS = 200


def cosine(step):
    return (1 + math.cos(math.pi * step / STEPS)) / 2


def descend(rate, momentum, schedule=lambda step: 1, noise=0.0, seed=1):
    """f after each step of gradient descent with momentum; `noise` is added to each gradient."""
    draw, point, velocity, values = random.Random(seed), [1.0, 1.0], [0.0, 0.0], []
    for step in range(STEPS):
        gradient = [100 * point[0] + noise * draw.gauss(0, 1), point[1] + noise * draw.gauss(0, 1)]
        velocity = [momentum * v + g for v, g in zip(velocity, gradient)]
        point = [p - rate * schedule(step) * v for p, v in zip(point, velocity)]
        values.append(50 * point[0] ** 2 + point[1] ** 2 / 2)
    return values


def adam(rate, beta1=0.9, beta2=0.999):
    point, first, second, values = [1.0, 1.0], [0.0, 0.0], [0.0, 0.0], []
    for step in range(1, STEPS + 1):
        gradient = [100 * point[0], point[1]]
        first = [beta1 * m + (1 - beta1) * g for m, g in zip(first, gradient)]
        second = [beta2 * v + (1 - beta2) * g * g for v, g in zip(second, gradient)]
        point = [p - rate * (m / (1 - beta1**step)) / math.sqrt(v / (1 - beta2**step)) for p, m, v in zip(point, first, second)]
        values.append(50 * point[0] ** 2 + point[1] ** 2 / 2)
    return values


def mean_of(runs):
    return [sum(values) / len(values) for values in zip(*runs)]


def results():
    noisy = [mean_of([descend(0.005, 0.9, schedule, 1.0, seed) for seed in range(50)]) for schedule in (lambda step: 1, cosine)]
    return {"gradient descent": descend(0.019, 0), "momentum 0.9": descend(0.019, 0.9), "Adam": adam(0.05),
            "noise, constant rate": noisy[0], "noise, cosine": noisy[1]}


def draw():
    styles = ("l3", "l0", "l2", "l1 dash", "l4 dash")
    series = [(name, list(enumerate(values, 1)), style) for (name, values), style in zip(results().items(), styles)]
    return chart.lines("Five ways down a valley that is 100 times as steep across as along", "step", "height above the minimum", series,
                       y_log=True, x_range=(0, STEPS), y_range=(1e-8, 100), size=(760, 440),
                       note="rates 0.019 without noise, Adam 0.05; with noise momentum 0.9 at 0.005, mean of 50 runs")


if __name__ == "__main__":
    for name, values in results().items():
        print(f"{name:22}", *(f"{values[at - 1]:9.2g}" for at in (10, 25, 50, 100, 200)))
