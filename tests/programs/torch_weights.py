#!/usr/bin/env python3
"""torch_weights.py ATHANOR [MODEL...]: torchvision's networks with random weights, saved by PyTorch in both forms, go through
`athanor convert` and come back bit for bit, into load_state_dict(strict=True). `athanor predict` has the logits of torchvision's
network, and torchvision's network with converted weights of timm's has timm's: within 1e-4 of the largest. Prints a row for each
model. Ends with 77 where there is no torch, torchvision or safetensors; without timm, its part is left out."""
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    import torchvision.models as vision
    from PIL import Image
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
try:
    import timm
except ImportError:
    timm = None

TIMM = {
    "resnet18": "resnet18",
    "resnet34": "resnet34",
    "resnet50": "resnet50",
    "resnet101": "resnet101",
    "resnet152": "resnet152",
    "resnet50d": "resnet50d",
    "wide_resnet50_2": "wide_resnet50_2",
    "resnext50_32x4d": "resnext50_32x4d",
    "vgg11_bn": "vgg11_bn",
    "mobilenet_v2": "mobilenetv2_100",
    "mobilenet_v2_050": "mobilenetv2_050",
    "mobilenet_v2_140": "mobilenetv2_140",
    "mobilenet_v3_large": "mobilenetv3_large_100",
    "mobilenet_v3_small": "mobilenetv3_small_100",
    "efficientnet_b0": "efficientnet_b0",
    "efficientnet_b1": "efficientnet_b1",
    "efficientnet_b2": "efficientnet_b2",
    "efficientnet_b3": "efficientnet_b3",
    "efficientnet_b4": "efficientnet_b4",
    "regnet_y_400mf": "regnety_004",
    "regnet_y_1_6gf": "regnety_016",
    "densenet121": "densenet121",
    "convnext_tiny": "convnext_tiny",
    "convnext_small": "convnext_small",
    "convnext_base": "convnext_base",
    "vit_tiny": "vit_tiny_patch16_224",
    "vit_s_16": "vit_small_patch16_224",
    "vit_b_16": "vit_base_patch16_224",
}


def torchvision_model(name):
    """With its names, whoever has it."""
    if name == "vit_tiny":
        return vision.VisionTransformer(224, 16, 12, 3, 192, 768)
    if name == "vit_s_16":
        return vision.VisionTransformer(224, 16, 12, 6, 384, 1536)
    if name.startswith("mobilenet_v2_"):
        return vision.mobilenet_v2(width_mult=int(name[-3:]) / 100)
    if name == "resnet50d":
        return timm.create_model(name)
    return vision.get_model(name, weights=None)


@torch.no_grad()
def randomise(model):
    """Of every parameter and statistic: zeros and ones would hide a mistake. Statistics are as far from those of images as
    keeps activations as large as they are in a trained network: where they grow, rounding alone does 1e-4."""
    for name, value in model.state_dict().items():
        if not value.is_floating_point():
            continue
        if name.endswith("running_var") or value.ndim == 1:
            value.uniform_(0.5, 1.5)
        elif value.ndim > 1:
            value.normal_(0, (2 / value[0].numel()) ** 0.5)
    model.eval()
    for norm in norms(model):
        norm.train().momentum = 1
    model(torch.randn(2, 3, 224, 224))
    for norm in norms(model):
        norm.running_mean += norm.running_var.sqrt() * torch.empty_like(norm.running_mean).uniform_(-0.5, 0.5)
        norm.running_var *= torch.empty_like(norm.running_var).uniform_(0.5, 1.5)
        norm.num_batches_tracked.zero_()  # nothing uses it, and convert writes 0
    return model.eval()


MOST = 1e-4  # of the largest logit
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@torch.no_grad()
def tamed(model):
    """Its last layer made so small that no probability is 0: the largest of some logits becomes 20."""
    head = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
    scale = 20 / model(torch.randn(2, 3, 224, 224)).abs().max()
    head.weight *= scale
    head.bias *= scale
    return model


def convert(tool, source, out, *options):
    done = subprocess.run([tool, "convert", source, out, *options], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"convert {source}: {done.stderr}")


def round_trip(tool, name, folder):
    model = tamed(randomise(torchvision_model(name)))
    state = model.state_dict()
    for new in (True, False):
        torch.save(state, folder / "in.pth", _use_new_zipfile_serialization=new)
        convert(tool, folder / "in.pth", folder / "ours.safetensors", "--model", name, "--image-size", "224")
        convert(tool, folder / "ours.safetensors", folder / "out.safetensors", "--layout", "torch")
        back = load_file(folder / "out.safetensors")
        torchvision_model(name).load_state_dict(back, strict=True)
        for key, value in state.items():
            if back[key].dtype != value.dtype or not torch.equal(back[key], value):
                sys.exit(f"{name}: {key} has changed")
    # What training programs save: more than the weights, of several GPUs, as parameters.
    wrapped = {"module." + key: value for key, value in model.named_parameters()}
    wrapped |= {"module." + key: value for key, value in model.named_buffers()}
    torch.save({"epoch": 3, "state_dict": wrapped, "best": 0.5}, folder / "in.pth")
    convert(tool, folder / "in.pth", folder / "out.safetensors", "--model", name, "--layout", "torch")
    back = load_file(folder / "out.safetensors")
    if not all(torch.equal(back[key], value) for key, value in state.items()):
        sys.exit(f"{name}: a checkpoint of DistributedDataParallel has changed")
    return model, len(state)


@torch.no_grad()
def predicted(tool, model, folder):
    """How far what `athanor predict` says of ours.safetensors is from the model's logits, and how large the largest is. The logarithm
    of a probability is its logit less a number that all logits of an image share: the mean of each image's logits is set to 0."""
    pixels = torch.randint(0, 256, (2, 256, 256, 3), dtype=torch.uint8)
    files = [str(folder / f"{i}.png") for i in range(2)]
    for file, image in zip(files, pixels):
        Image.fromarray(image.numpy()).save(file)
    command = [tool, "predict", folder / "ours.safetensors", *files, "--top", "1000", "--json"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    ours = torch.empty(2, 1000, dtype=torch.float64)
    for row, line in zip(ours, lines, strict=True):
        for one in json.loads(line)["top"]:
            row[one["index"]] = math.log(one["probability"])
    middle = pixels[:, 16:240, 16:240].permute(0, 3, 1, 2) / 255
    logits = model((middle - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)).double()
    largest = logits.abs().max().item()
    difference = (ours - ours.mean(1, True)) - (logits - logits.mean(1, True))
    return difference.abs().max().item() / largest, largest


@torch.no_grad()
def from_timm(tool, name, folder):
    theirs = randomise(timm.create_model(TIMM[name], pretrained=False))
    torch.save(theirs.state_dict(), folder / "in.pth")
    convert(tool, folder / "in.pth", folder / "out.safetensors", "--model", name, "--layout", "torch")
    ours = torchvision_model(name).eval()
    ours.load_state_dict(load_file(folder / "out.safetensors"), strict=True)
    for one, other in zip(norms(theirs), norms(ours)):  # MobileNetV3's epsilon is torchvision's own
        one.eps = other.eps
    x = torch.randn(2, 3, 224, 224)
    a, b = theirs(x), ours(x)
    return ((a - b).abs().max() / b.abs().max()).item()


def norms(model):
    return [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]


def main():
    tool, names = sys.argv[1], sys.argv[2:] or ["alexnet", *TIMM]
    if timm is None:
        names = [name for name in names if name != "resnet50d"]
    torch.manual_seed(1)
    torch.set_num_threads(1)
    print("| model | tensors, equal bit for bit there and back | largest logit | `athanor predict` and torchvision | timm and torchvision |")
    print("|---|---|---|---|---|")
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            model, tensors = round_trip(tool, name, Path(folder))
            error, largest = predicted(tool, model, Path(folder))
            errors, timms = [error], "-"
            if timm is not None and name in TIMM:
                errors.append(from_timm(tool, name, Path(folder)))
                timms = f"`{TIMM[name]}`: {errors[1]:.1e}"
            print(f"| `{name}` | {tensors} | {largest:.3g} | {error:.1e} | {timms} |", flush=True)
            if not all(error < MOST for error in errors):
                wrong.append(name)
    print(f"{len(names)} models, {len(wrong)} wrong", *wrong)
    sys.exit(bool(wrong))


main()
