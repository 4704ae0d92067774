#!/usr/bin/env python3
"""Writes optim.json: what PyTorch's f32 optimizers make of a fixed gradient sequence, and how far that is from f64.

    python3 make_optim_golden.py > optim.json

Made with torch 2.15 on the CPU. tests/optim_golden_test.cpp builds the same sequence from the same seed, runs the same formulas in
f64, and asks of our optimizers at most twice PyTorch's error. Per case the file holds PyTorch's root mean square and largest
error (of its default loop and of its fused kernel) and the first eight results, which show that both
references compute the same thing.
"""
import json
import math

import torch

SEED, STEPS, ROWS, COLUMNS = 12345, 100, 24, 40
COUNT = ROWS * COLUMNS
MASK = (1 << 64) - 1


def mix64(z):
    """SplitMix64's finaliser, as kernels/hash.h has it."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def uniform(index):
    """In [-1, 1), exactly representable in f32."""
    return (mix64((index * 0x9E3779B97F4A7C15 + SEED) & MASK) >> 40) / 2.0**23 - 1.0


def weights():
    return torch.tensor([uniform(i) for i in range(COUNT)], dtype=torch.float64)


def gradient(step):
    """Sizes from 1 to 2^-7, and a part that stays the same, so that averages do not all end near 0."""
    first = COUNT * (step + 1)
    return torch.tensor(
        [(uniform(first + i) + 0.5 * uniform(i)) * 2.0 ** -(i % 8) for i in range(COUNT)], dtype=torch.float64
    )


CASES = {
    "sgd": ("SGD", dict(lr=0.125)),
    "sgd_decay": ("SGD", dict(lr=0.125, weight_decay=0.01)),
    "momentum": ("SGD", dict(lr=0.125, momentum=0.9)),
    "momentum_dampening_decay": ("SGD", dict(lr=0.125, momentum=0.9, dampening=0.3, weight_decay=0.01)),
    "nesterov_decay": ("SGD", dict(lr=0.125, momentum=0.9, nesterov=True, weight_decay=0.0005)),
    "adam": ("Adam", dict(lr=2.0**-7)),
    "adam_decay": ("Adam", dict(lr=2.0**-7, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1)),
    "adamw": ("AdamW", dict(lr=2.0**-7, weight_decay=0.01)),
    "adamw_fast": ("AdamW", dict(lr=2.0**-4, betas=(0.95, 0.95), weight_decay=0.5)),
    "muon": ("Muon", dict(lr=0.0625, weight_decay=0.1, momentum=0.95)),
    "muon_rms": ("Muon", dict(lr=0.0625, weight_decay=0.0, momentum=0.6, nesterov=False, ns_steps=3, adjust_lr_fn="match_rms_adamw")),
}


def run(kind, options, dtype, **extra):
    shape = (ROWS, COLUMNS) if kind == "Muon" else (COUNT,)
    parameter = torch.nn.Parameter(weights().to(dtype).reshape(shape))
    optimizer = getattr(torch.optim, kind)([parameter], **options, **extra)
    for step in range(STEPS):
        parameter.grad = gradient(step).to(dtype).reshape(shape)
        optimizer.step()
    return parameter.detach().double().flatten()


def muon_f64(lr, weight_decay, momentum, nesterov=True, ns_steps=5, adjust_lr_fn="original"):
    """torch.optim.Muon in f64: its own Newton-Schulz is bf16 whatever the dtype."""
    a, b, c = 3.4445, -4.7750, 2.0315
    w, buf = weights().reshape(ROWS, COLUMNS), torch.zeros(ROWS, COLUMNS, dtype=torch.float64)
    ratio = math.sqrt(max(1, ROWS / COLUMNS)) if adjust_lr_fn == "original" else 0.2 * math.sqrt(max(ROWS, COLUMNS))
    for step in range(STEPS):
        g = gradient(step).reshape(ROWS, COLUMNS)
        buf = momentum * buf + (1 - momentum) * g
        x = (1 - momentum) * g + momentum * buf if nesterov else buf
        x = x / x.norm().clamp(min=1e-7)
        for _ in range(ns_steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        w = w * (1 - lr * weight_decay) - lr * ratio * x
    return w.flatten()


def errors(got, reference):
    difference = got - reference
    return dict(rms=difference.pow(2).mean().sqrt().item(), max=difference.abs().max().item())


def main():
    golden = dict(torch=torch.__version__.split("+")[0], seed=SEED, steps=STEPS, rows=ROWS, columns=COLUMNS, cases={})
    for name, (kind, options) in CASES.items():
        reference = muon_f64(**options) if kind == "Muon" else run(kind, options, torch.float64)
        single = run(kind, options, torch.float32)
        case = dict(options=options, default=errors(single, reference))
        if kind != "Muon":
            case["fused"] = errors(run(kind, options, torch.float32, fused=True), reference)
        case["first"] = single[:8].tolist()
        golden["cases"][name] = case
    print(json.dumps(golden, indent=1))


if __name__ == "__main__":
    main()
