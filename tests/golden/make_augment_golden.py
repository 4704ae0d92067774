#!/usr/bin/env python3
"""Writes augment/rand_augment.safetensors: what torchvision's RandAugment makes of two images, by Pillow.

    python3 make_augment_golden.py augment/rand_augment.safetensors

Made with torchvision 0.29 and Pillow 13. `rgb` [16, 17, 3] and `grey` [18, 30, 1] u8; `rgb_changed` and `grey_changed`
[23, H, W, C] are each operation at magnitudes 9 and 23 of 30, one way and, where there are two, the other.
"""
import sys

import numpy
from PIL import Image
from safetensors.numpy import save_file
from torchvision.transforms import InterpolationMode
from torchvision.transforms.autoaugment import RandAugment, _apply_op

NAMES = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness",
         "Posterize", "Solarize", "AutoContrast", "Equalize"]


def picture(height, width, channels, seed):
    """A gradient with noise, that leaves out the darkest and brightest bytes."""
    y, x, c = numpy.mgrid[:height, :width, :channels]
    slope = 30 + 9 * x * (1 + c) % 120 + 4 * y
    return (slope + numpy.random.default_rng(seed).integers(0, 25, slope.shape)).clip(0, 220).astype(numpy.uint8)


def changed(pixels, magnitude):
    height, width, channels = pixels.shape
    image = Image.fromarray(pixels if channels == 3 else pixels[:, :, 0])
    results = []
    for name in NAMES:
        magnitudes, signed = RandAugment()._augmentation_space(31, (height, width))[name]
        strength = float(magnitudes[magnitude]) if magnitudes.ndim else 0.0
        for sign in (1, -1) if signed else (1,):
            result = _apply_op(image, name, strength * sign, InterpolationMode.NEAREST, None)
            results.append(numpy.asarray(result).reshape(pixels.shape))
    return numpy.stack(results)


rgb, grey = picture(16, 17, 3, 1), picture(18, 30, 1, 2)
save_file({"rgb": rgb, "rgb_changed": changed(rgb, 9), "grey": grey, "grey_changed": changed(grey, 23)}, sys.argv[1])
