"""PyTorch's side of a comparison."""

import math

import protocol
import torch


def made_up(shape, seed):
    """The values both sides begin with: element i of a tensor, in [-1, 1)."""
    words = ((torch.arange(math.prod(shape)) + seed) * 2654435761) & 0xFFFFFFFF
    return ((words >> 8).to(torch.float32) * 2.0**-23 - 1.0).reshape(shape)


def serve(cases):
    protocol.serve("pytorch", torch.__version__, torch.get_num_threads(), cases)
