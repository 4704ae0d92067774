"""PyTorch's side of a comparison."""

import math

import protocol
import torch


def noise(count, seed=0):
    """32 bits each, as athanor/worker.cpp makes them of seed, seed + 1, ..."""
    words = (torch.arange(count) + seed) & 0xFFFFFFFF
    for shift, factor in ((16, 0x9E3779B1), (15, 0x85EBCA77)):
        words = ((words ^ words >> shift) * factor) & 0xFFFFFFFF
    return words ^ words >> 16


def made_up(shape, seed):
    """The values both sides begin with: element i of a tensor, in [-1, 1)."""
    words = noise(math.prod(shape), seed)
    return ((words >> 8).to(torch.float32) * 2.0**-23 - 1.0).reshape(shape)


def serve(cases):
    protocol.serve("pytorch", torch.__version__, torch.get_num_threads(), cases)
