#!/usr/bin/env python3
"""Writes resize/photo.safetensors: what torchvision and timm make of one photo, by Pillow.

    python3 make_resize_golden.py resize/photo.safetensors

Made with torchvision 0.29, timm 1.0 and Pillow 13. `photo` [41, 61, 3] u8; the others [H, W, 3] u8 are named after what they show:
`squash_bicubic_70x50` is the whole photo, `pad_nearest_32x32` is letterboxed with 114, `crop_bilinear_24x24_0.875` is what validation
takes at that share.
"""
import math
import sys

import numpy
from PIL import Image
from safetensors.numpy import save_file
from timm.data.transforms import ResizeKeepRatio
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

MODES = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC, "nearest": InterpolationMode.NEAREST}


def photo(height, width):
    """Slopes, edges and noise: overshoots of bicubic are cut off at both ends."""
    y, x, c = numpy.mgrid[:height, :width, :3]
    slope = 7 * x * (1 + c) % 190 + 3 * y + 80 * ((x // 9 + y // 7) % 2)
    return (slope + numpy.random.default_rng(5).integers(-40, 40, slope.shape)).clip(0, 255).astype(numpy.uint8)


def letterboxed(image, height, width, mode):
    ratio = min(height / image.height, width / image.width)
    inner = [max(1, round(image.height * ratio)), max(1, round(image.width * ratio))]
    left, top = (width - inner[1]) // 2, (height - inner[0]) // 2
    return F.pad(F.resize(image, inner, mode), [left, top, width - inner[1] - left, height - inner[0] - top], fill=114)


pixels = photo(41, 61)
image = Image.fromarray(pixels)
found = {"photo": pixels}
for name, mode in MODES.items():
    for height, width in (24, 36), (70, 50), (9, 7):
        found[f"squash_{name}_{height}x{width}"] = F.resize(image, [height, width], mode)
    for height, width in (32, 32), (50, 33), (60, 100):
        found[f"pad_{name}_{height}x{width}"] = letterboxed(image, height, width, mode)
    for share in 0.875, 0.9, 0.95, 1.0:
        found[f"crop_{name}_24x24_{share}"] = F.center_crop(F.resize(image, math.floor(24 / share), mode), [24, 24])
    found[f"crop_{name}_20x36_0.875"] = F.center_crop(ResizeKeepRatio([int(20 / 0.875), int(36 / 0.875)], interpolation=name)(image), [20, 36])
save_file({name: numpy.ascontiguousarray(numpy.asarray(result)) for name, result in found.items()}, sys.argv[1])
