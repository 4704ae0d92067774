#!/usr/bin/env python3
"""Writes augment/rand_augment.safetensors: what torchvision's RandAugment makes of two images, by Pillow; and
augment/trivial_augment.safetensors: what its TrivialAugmentWide, RandomRotation and GaussianBlur make of the same ones.

    python3 make_augment_golden.py augment/rand_augment.safetensors augment/trivial_augment.safetensors

Made with torchvision 0.29 and Pillow 13. `rgb` [16, 17, 3] and `grey` [18, 30, 1] u8; `rgb_changed` and `grey_changed`
[23, H, W, C] are each operation at magnitudes 9 and 23 of 30, one way and, where there are two, the other. In the second file,
`rgb_changed` and `grey_changed` are those of magnitudes 26 and 11; `turned` [5, H, W, C] is `rgb` rotated by -180, -37.5, 10, 90 and
171 degrees, `blurred` [4, H, W, C] is `grey` blurred by 0.1, 0.7, 1.3 and 2 pixels.
"""
import sys

import numpy
from PIL import Image
from safetensors.numpy import save_file
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F
from torchvision.transforms.autoaugment import RandAugment, TrivialAugmentWide, _apply_op

NAMES = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness",
         "Posterize", "Solarize", "AutoContrast", "Equalize"]


def picture(height, width, channels, seed):
    """A gradient with noise, that leaves out the darkest and brightest bytes."""
    y, x, c = numpy.mgrid[:height, :width, :channels]
    slope = 30 + 9 * x * (1 + c) % 120 + 4 * y
    return (slope + numpy.random.default_rng(seed).integers(0, 25, slope.shape)).clip(0, 220).astype(numpy.uint8)


def image_of(pixels):
    return Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])


def changed(pixels, magnitude, wide=False):
    height, width, channels = pixels.shape
    image = image_of(pixels)
    results = []
    for name in NAMES:
        space = TrivialAugmentWide()._augmentation_space(31) if wide else RandAugment()._augmentation_space(31, (height, width))
        magnitudes, signed = space[name]
        strength = float(magnitudes[magnitude]) if magnitudes.ndim else 0.0
        for sign in (1, -1) if signed else (1,):
            result = _apply_op(image, name, strength * sign, InterpolationMode.NEAREST, None)
            results.append(numpy.asarray(result).reshape(pixels.shape))
    return numpy.stack(results)


rgb, grey = picture(16, 17, 3, 1), picture(18, 30, 1, 2)
save_file({"rgb": rgb, "rgb_changed": changed(rgb, 9), "grey": grey, "grey_changed": changed(grey, 23)}, sys.argv[1])
turned = [F.rotate(image_of(rgb), angle, InterpolationMode.NEAREST) for angle in (-180, -37.5, 10, 90, 171)]
blurred = [F.gaussian_blur(image_of(grey), [23, 23], [deviation] * 2) for deviation in (0.1, 0.7, 1.3, 2)]
save_file({"rgb": rgb, "rgb_changed": changed(rgb, 26, True), "grey": grey, "grey_changed": changed(grey, 11, True),
           "turned": numpy.stack([numpy.asarray(image) for image in turned]),
           "blurred": numpy.stack([numpy.asarray(image)[:, :, None] for image in blurred])}, sys.argv[2])
