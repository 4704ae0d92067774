#!/usr/bin/env python3
"""Writes models/NAME.json beside this script: what torchvision's models compute in f64 (PyTorch 2.x, torchvision).

Weights and inputs are too large to be kept, so both sides compute them: number i of the tensor `name`, in PyTorch's
layout (images in [N, H, W, C]), is splitmix64 of 2^32 crc32(name) + i, as a number in [-1, 1), times or plus what
values() says. Of a gradient a file holds its product with such a tensor, called "dot " + name, and its norm: an
element that is wrong, or in the wrong place, changes the first. Without dropout and stochastic depth; their
probabilities in the model as it comes are listed.
"""

import json
import pathlib
import sys
import zlib

import numpy
import torch
import torchvision
from torch import nn

FOLDER = pathlib.Path(__file__).resolve().parent / "models"
CLASSES = 7


def numbers(name, shape):
    count = int(numpy.prod(shape, dtype=numpy.int64))
    with numpy.errstate(over="ignore"):
        z = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(zlib.crc32(name.encode()) << 32)
        z = (z + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    unit = (z >> numpy.uint64(11)).astype(numpy.float64) / 2.0**53
    return torch.from_numpy(2 * unit - 1).reshape(shape)


def values(name, shape):
    u = numbers(name, shape)
    if len(shape) > 1:
        return u * (6 / (u.numel() / shape[0])) ** 0.5
    if name.endswith("weight") or name.endswith("running_var"):
        return 1 + 0.5 * u
    return 0.3 * u


class Hardsigmoid(nn.Module):
    """PyTorch 2.15's own has 1 / 6 in f32 in its gradient, in f64, too: wrong by 3e-8."""

    def forward(self, x):
        return nn.functional.relu6(x + 3) / 6


def with_exact_gates(model):
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.Hardsigmoid):
                setattr(module, name, Hardsigmoid())
    return model


class DoubleConv(nn.Module):
    def __init__(self, inside, out):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, out, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)

    def forward(self, x):
        return self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()


class UNet(nn.Module):
    """A peer for ours, in PyTorch's own words."""

    def __init__(self, depth, width, bilinear):
        super().__init__()
        self.depth = depth
        inside = 3
        for i in range(depth):
            self.add_module(f"down{i + 1}", DoubleConv(inside, width << i))
            inside = width << i
        self.bottom = DoubleConv(inside, width << depth)
        for i in reversed(range(depth)):
            out = width << i
            up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
            enlarge = nn.Sequential(up, nn.Conv2d(2 * out, out, 1)) if bilinear else nn.ConvTranspose2d(2 * out, out, 2, 2)
            self.add_module(f"enlarge{i + 1}", enlarge)
            self.add_module(f"up{i + 1}", DoubleConv(2 * out, out))
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        kept = []
        for i in range(self.depth):
            kept.append(getattr(self, f"down{i + 1}")(x))
            x = nn.functional.max_pool2d(kept[i], 2)
        x = self.bottom(x)
        for i in reversed(range(self.depth)):
            x = getattr(self, f"up{i + 1}")(torch.cat([kept[i], getattr(self, f"enlarge{i + 1}")(x)], 1))
        return self.head(x).permute(0, 2, 3, 1)


def vit_tiny(num_classes=1000, **options):
    size = options.pop("image_size", 224)
    return torchvision.models.VisionTransformer(size, 16, 12, 3, 192, 768, num_classes=num_classes, **options)


def torchvisions(name, **options):
    make = vit_tiny if name == "vit_tiny" else getattr(torchvision.models, name)
    drops = {
        key: module.p
        for key, module in make().named_modules()
        if isinstance(module, (nn.Dropout, torchvision.ops.StochasticDepth)) and module.p > 0
    }
    return with_exact_gates(make(num_classes=CLASSES, **options)), drops


def number(x):
    return float(f"{float(x):.14g}")


def digest(name, x):
    return [number((x * numbers("dot " + name, x.shape)).sum()), number(x.norm())]


def write(name, model, shape, drops=None, options=None):
    model = model.double()
    lines = {}
    modes = {}
    for mode in ("train", "eval"):
        state = {key: values(key, value.shape) for key, value in model.state_dict().items() if value.ndim > 0}
        model.load_state_dict(state, strict=False)
        model.train(mode == "train")
        model.zero_grad()
        x = numbers("x", shape).requires_grad_()
        y = model(x.permute(0, 3, 1, 2))
        y.backward(numbers("dy", y.shape))
        few = y.detach().flatten() if y.ndim == 2 else torch.tensor(digest("y", y.detach()), dtype=torch.float64)
        modes[mode] = {"y": [number(v) for v in few], "dx": digest("x", x.grad)}
        for key, value in model.state_dict().items():
            if value.ndim > 0:
                lines.setdefault(key, {"shape": list(value.shape)})
        for key, value in model.named_parameters():
            lines[key][mode] = digest(key, value.grad)
        for key, value in model.named_buffers():
            if mode == "train" and value.ndim > 0:
                lines[key]["moved"] = digest(key, value)
    head = {
        "made_by": f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}, f64",
        "options": options or {},
        "input": shape,
        "drops": drops or {},
        **modes,
    }
    text = json.dumps(head)[:-1] + ',\n"tensors": {\n'
    text += ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in lines.items()) + "}}\n"
    (FOLDER / f"{name}.json").write_text(text)
    print(name, sum(p.numel() for p in model.parameters()), len(text))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    image = [2, 65, 44, 3]
    for name, shape, options in [
        ("resnet18", image, {}),
        ("mobilenet_v2", image, {"dropout": 0}),
        ("mobilenet_v3_large", image, {"dropout": 0}),
        ("mobilenet_v3_small", image, {"dropout": 0}),
        ("efficientnet_b0", image, {"dropout": 0, "stochastic_depth_prob": 0}),
        ("convnext_tiny", [1, 65, 44, 3], {"stochastic_depth_prob": 0}),
        ("vit_tiny", [2, 32, 32, 3], {"image_size": 32}),
    ]:
        if not wanted or name in wanted:
            model, drops = torchvisions(name, **options)
            write(name, model, shape, drops)
    for name, depth, bilinear in [("unet", 3, False), ("unet_bilinear", 2, True)]:
        if not wanted or name in wanted:
            write(name, UNet(depth, 8, bilinear), [2, 24, 16, 3], options={"depth": depth, "width": 8, "bilinear": bilinear})


if __name__ == "__main__":
    main()
