"""Parameter updates: bench/peers/athanor/update.cpp is the same in Athanor.

Half precision is mixed: f32 masters, half gradients and a half copy of the weights, which PyTorch converts by
_foreach_copy_ around the step.
"""

import functools
import math

import torch

from worker import made_up, serve

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def resnet50_shapes():
    shapes = [(64, 3, 7, 7), (64,), (64,)]

    def convolution(out, side, into):
        shapes.extend([(out, into, side, side), (out,), (out,)])

    into, width = 64, 64
    for blocks in (3, 4, 6, 3):
        for block in range(blocks):
            convolution(width, 1, into)
            convolution(width, 3, width)
            convolution(4 * width, 1, width)
            if block == 0:
                convolution(4 * width, 1, into)
            into = 4 * width
        width *= 2
    return shapes + [(1000, 2048), (1000,)]


SHAPES = {
    "resnet50": resnet50_shapes(),
    "flat": [(sum(math.prod(shape) for shape in resnet50_shapes()),)],
    "tiny": [(8, 3), (8,)],
}


def prepare(op, dtype, shapes, **how):
    masters = [made_up(shape, 0).requires_grad_() for shape in shapes]
    gradients = [made_up(shape, 1000).to(dtype) for shape in shapes]
    mixed = dtype != torch.float32
    weights = [master.detach().to(dtype) for master in masters] if mixed else []
    for master, gradient in zip(masters, gradients):
        master.grad = torch.empty_like(master) if mixed else gradient
    if op == "sgd_momentum":
        optimizer = torch.optim.SGD(masters, lr=1e-3, momentum=0.9, weight_decay=1e-4, **how)
    else:
        optimizer = torch.optim.AdamW(masters, lr=1e-3, weight_decay=0.01, **how)
    values = [master.detach() for master in masters]
    averages = [value.clone() for value in values] if op == "adamw_ema" else []

    def run():
        with torch.no_grad():
            if mixed:
                torch._foreach_copy_([master.grad for master in masters], gradients)
            optimizer.step()
            if mixed:
                torch._foreach_copy_(weights, values)
            if averages:
                torch._foreach_lerp_(averages, values, 1 - 0.999)

    run()
    return run, values[0].flatten()[:8].tolist()


def cases():
    """PyTorch's plain loop over tensors ("for") was slower than both; it is left out."""
    ways = {"fused": {"fused": True}, "foreach": {"foreach": True}}
    return {
        f"{op}/{precision}/{shapes}": {
            way: functools.partial(prepare, op, DTYPES[precision], SHAPES[shapes], **how) for way, how in ways.items()
        }
        for precision in DTYPES
        for shapes in SHAPES
        for op in ("sgd_momentum", "adamw", "adamw_ema")
    }


if __name__ == "__main__":
    serve(cases())
