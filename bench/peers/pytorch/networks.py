"""The networks of the comparisons, with torchvision's names; bench/peers/athanor/networks.cpp gives them their weights."""

import dataclasses
import importlib
import typing

import torch
from torch import nn
from torch.nn import functional


class LeNet5(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(functional.relu(self.fc2(x)))


class Block(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or inputs != width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + shortcut)


class ResNet(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        inputs, self.stages = width, len(blocks)
        for stage, count in enumerate(blocks):
            outputs = width << stage
            layers = [Block(inputs if i == 0 else outputs, outputs, 2 if i == 0 and stage > 0 else 1) for i in range(count)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
            inputs = outputs
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


class Norm(nn.BatchNorm2d):
    """With a shift and no scale, as ours saves it."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-12, momentum=0.4)
        self.register_parameter("weight", None)


class Group(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), Norm(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), Norm(outputs)

    def forward(self, x):
        x = functional.gelu(self.bn1(functional.max_pool2d(self.conv1(x), 2)))
        return functional.gelu(self.bn2(self.conv2(x)))


class CifarNet(nn.Module):
    """Of the CIFAR-10 speed records: nn/models/cifarnet.h."""

    def __init__(self):
        super().__init__()
        self.whiten = nn.Conv2d(3, 24, 2)
        self.whiten.weight.requires_grad_(False)
        self.group1, self.group2, self.group3 = Group(24, 64), Group(64, 256), Group(256, 256)
        self.head = nn.Linear(256, 10, bias=False)

    def forward(self, x):
        x = self.group3(self.group2(self.group1(functional.gelu(self.whiten(x)))))
        return self.head(torch.flatten(functional.max_pool2d(x, 3), 1)) / 256


@dataclasses.dataclass
class Network:
    make: typing.Callable[[], nn.Module]
    image: tuple = (3, 32, 32)
    classes: int = 10


def of_torchvision(name, **options):
    """Needs torchvision when it is made."""
    return lambda: getattr(importlib.import_module("torchvision.models"), name)(**options)


NETWORKS = {
    "lenet5": Network(LeNet5, (1, 28, 28)),
    "resnet20": Network(lambda: ResNet(16, (3, 3, 3))),
    "resnet18_cifar": Network(lambda: ResNet(64, (2, 2, 2, 2))),
    "cifarnet": Network(CifarNet),
    "resnet50": Network(of_torchvision("resnet50"), (3, 224, 224), 1000),
    # Without dropout and stochastic depth, of which each side would draw other masks.
    "mobilenet_v2": Network(of_torchvision("mobilenet_v2", dropout=0), (3, 224, 224), 1000),
    "mobilenet_v3_small": Network(of_torchvision("mobilenet_v3_small", dropout=0), (3, 224, 224), 1000),
    "efficientnet_b0": Network(of_torchvision("efficientnet_b0", dropout=0, stochastic_depth_prob=0), (3, 224, 224), 1000),
    "regnet_y_400mf": Network(of_torchvision("regnet_y_400mf"), (3, 224, 224), 1000),
    "densenet121": Network(of_torchvision("densenet121"), (3, 224, 224), 1000),
    "convnext_tiny": Network(of_torchvision("convnext_tiny", stochastic_depth_prob=0), (3, 224, 224), 1000),
    "vit_tiny": Network(of_torchvision("VisionTransformer", image_size=224, patch_size=16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768),
                        (3, 224, 224), 1000),
}
