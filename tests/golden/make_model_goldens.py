#!/usr/bin/env python3
"""Writes models/NAME.json beside this script: what torchvision's models compute in f64 (PyTorch 2.x, torchvision, timm). Without
arguments, all of them; zoo.json has a row for each model of the table that has a peer.

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
import timm
import torch
import torchvision
from timm.models.resnet import Bottleneck, ResNet
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models.regnet import BlockParams

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


def resnet_d():
    return ResNet(Bottleneck, (1, 2, 1, 1), CLASSES, stem_width=4, stem_type="deep", avg_down=True, channels=(8, 16, 32, 64))


def resnext():
    block = torchvision.models.resnet.Bottleneck
    return torchvision.models.ResNet(block, (1, 2, 1, 1), CLASSES, groups=4, width_per_group=8)


def regnet():
    params = BlockParams((1, 2, 1, 1), (16, 24, 32, 48), (8, 8, 8, 8), (1.0,) * 4, (2,) * 4, 0.25)
    return torchvision.models.RegNet(params, CLASSES)


def densenet():
    return torchvision.models.DenseNet(8, (2, 3, 2, 2), 16, num_classes=CLASSES)


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


IMAGE_SIZES = {"efficientnet_b1": 240, "efficientnet_b2": 288, "efficientnet_b3": 300, "efficientnet_b4": 380}
OF_TIMM = {
    "resnet50d": "resnet50d",
    "mobilenet_v3_large_075": "mobilenetv3_large_075",
    "mobilenet_v3_small_075": "mobilenetv3_small_075",
}
# Factors of the norms' scales, by the name's beginning: sums over so many blocks stay so small that rounding does, too.
NORM_SCALES = {"resnet": 0.5, "resnext": 0.5, "wide_resnet": 0.5, "regnet": 0.5, "mobilenet_v2": 0.75}
VIT_WIDTHS = {"vit_tiny": 192, "vit_s_16": 384, "vit_b_16": 768}  # of 12 layers and heads of 64 channels
WITH_FILES = ["resnet18", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "vit_tiny"]
FOR_SIZES = ["alexnet", "vgg11_bn", "resnet34", "resnet50", "vit_b_16"]
ZOO = [
    *("resnet101", "resnet152", "resnet50d", "wide_resnet50_2", "resnext50_32x4d"),
    *("mobilenet_v2_050", "mobilenet_v2_140", "mobilenet_v3_large_075", "mobilenet_v3_small_075"),
    *("efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4"),
    *("regnet_y_400mf", "regnet_y_1_6gf", "densenet121", "convnext_small", "convnext_base", "vit_s_16"),
]


def peer(name, classes, size, plain=True):
    """A model of the table, if plain without dropout and stochastic depth, and torchvision's names of its tensors where it has others."""
    if name in OF_TIMM:
        model = timm.create_model(OF_TIMM[name], num_classes=classes)
        if name == "resnet50d":
            return model, {}
        make = getattr(torchvision.models, name.removesuffix("_075"))
        return model, dict(zip(model.state_dict(), make(width_mult=0.75).state_dict(), strict=True))
    if name in VIT_WIDTHS:
        width = VIT_WIDTHS[name]
        return torchvision.models.VisionTransformer(size, 16, 12, width // 64, width, 4 * width, num_classes=classes), {}
    options = {}
    if name.startswith("mobilenet_v2_"):
        options = {"width_mult": int(name[-3:]) / 100}
        name = "mobilenet_v2"
    if plain and name.startswith(("mobilenet", "efficientnet")):
        options["dropout"] = 0
    if plain and name.startswith(("convnext", "efficientnet")):
        options["stochastic_depth_prob"] = 0
    return with_exact_gates(getattr(torchvision.models, name)(num_classes=classes, **options)), {}


def multiply_adds(model, size):
    with FlopCounterMode(display=False) as counter:
        model.eval().to("meta")(torch.empty(1, 3, size, size, device="meta"))
    return counter.get_total_flops() // 2


def zoo_row(name):
    size = IMAGE_SIZES.get(name, 224)
    published, _ = peer(name, 1000, size, plain=False)
    row = {"parameters": sum(p.numel() for p in published.parameters()), "multiply_adds": multiply_adds(published, size)}
    if name not in ZOO:
        return row
    drops = (nn.Dropout, torchvision.ops.StochasticDepth)
    row["drops"] = [module.p for module in published.modules() if isinstance(module, drops) and module.p > 0]
    side = 32 if name in VIT_WIDTHS else 65 if name == "densenet121" else 33  # several pixels for its last norms
    model, names = peer(name, CLASSES, side)
    model = with_exact_gates(model).double()
    row["norm_scale"] = next((scale for beginning, scale in NORM_SCALES.items() if name.startswith(beginning)), 1)
    ours = {key: names.get(key, key) for key in model.state_dict()}
    state = {key: values(ours[key], value.shape) for key, value in model.state_dict().items() if value.ndim > 0}
    for key, value in state.items():
        if value.ndim == 1 and key.endswith("weight"):
            value *= row["norm_scale"]
    model.load_state_dict(state, strict=False)
    x = numbers("x", [2, side, side, 3]).requires_grad_()
    row["input"] = list(x.shape)
    with torch.no_grad():
        row["eval"] = [number(v) for v in model.eval()(x.permute(0, 3, 1, 2)).flatten()]
    y = model.train()(x.permute(0, 3, 1, 2))
    y.backward(numbers("dy", y.shape))
    digests = numpy.array([digest(ours[key], value.grad) for key, value in model.named_parameters()])
    row["train"] = [number(v) for v in y.detach().flatten()]
    row["dx"] = digest("x", x.grad)
    row["gradients"] = [number(digests[:, 0].sum()), number(numpy.square(digests[:, 1]).sum() ** 0.5)]
    return row


def write_zoo():
    rows = [f'"made_by": {json.dumps(f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}, timm {timm.__version__}, f64")}']
    for name in WITH_FILES + FOR_SIZES + ZOO:
        rows.append(f"{json.dumps(name)}: {json.dumps(zoo_row(name))}")
        print(rows[-1][:100], flush=True)
    (FOLDER / "zoo.json").write_text("{" + ",\n".join(rows) + "}\n")


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
    for name, make in [("resnet_d", resnet_d), ("resnext", resnext), ("regnet", regnet), ("densenet", densenet)]:
        if not wanted or name in wanted:
            write(name, make(), image)
    if not wanted or "zoo" in wanted:
        write_zoo()
    for name, depth, bilinear in [("unet", 3, False), ("unet_bilinear", 2, True)]:
        if not wanted or name in wanted:
            write(name, UNet(depth, 8, bilinear), [2, 24, 16, 3], options={"depth": depth, "width": 8, "bilinear": bilinear})


if __name__ == "__main__":
    main()
