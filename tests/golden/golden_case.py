"""One golden file of make_goldens.py.

It holds the inputs of one op under their names, dL/dy as `dy`, and what PyTorch computed from them: `expect.y`,
`expect.dx` for an input x, and `expect.running_mean` for a buffer the op moves. Its metadata names the `op` and its
`attributes` (JSON), as `athanor run-op` reads them. Inputs are f32; PyTorch computes in f64 and the result is rounded
once, so that a difference is ours. Images are [N, H, W, C] in the files: the permutations to PyTorch's [N, C, H, W]
are part of the graph PyTorch differentiates.
"""

import json
import pathlib
import zlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).resolve().parent


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


ACTIVATIONS = {"none": lambda x: x, "relu": F.relu, "gelu": F.gelu, "silu": F.silu}


def case(name, op, shapes, compute, attributes=None, buffers=(), given=None):
    """shapes: input name -> shape, drawn from a normal distribution; given: input name -> tensor.
    compute: inputs (a dict, f64) -> y. buffers: inputs without a gradient; written where compute moved them."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    inputs = {key: torch.randn(shape, generator=generator) for key, shape in shapes.items()}
    inputs.update(given(generator) if callable(given) else given or {})

    work = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
    wanted = [key for key, value in work.items() if value.is_floating_point() and key not in buffers]
    for key in wanted:
        work[key].requires_grad_()
    for key in buffers:
        work[key] = work[key].clone()
    y = compute(work)

    tensors = dict(inputs)
    tensors["expect.y"] = y
    if y.requires_grad:
        tensors["dy"] = torch.randn(y.shape, generator=generator)
        gradients = torch.autograd.grad(y, [work[key] for key in wanted], tensors["dy"].double())
        tensors.update({f"expect.d{key}": gradient for key, gradient in zip(wanted, gradients)})
    for key in buffers:
        if not torch.equal(work[key], inputs[key].double()):
            tensors[f"expect.{key}"] = work[key]

    tensors = {
        key: (value.detach().float() if value.is_floating_point() else value).contiguous()
        for key, value in tensors.items()
    }
    metadata = {"op": op, "attributes": json.dumps(attributes or {}), "made_by": f"PyTorch {torch.__version__}, f64"}
    save_file(tensors, FOLDER / f"{name}.safetensors", metadata)
