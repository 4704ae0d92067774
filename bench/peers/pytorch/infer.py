"""infer.py DIR: forward passes of the networks in DIR/MODEL.torch.safetensors, which `athanor convert --layout torch` has
written. bench/peers/athanor/infer.cpp is the same in Athanor.

"frozen" is torch.jit.freeze and optimize_for_inference of what torch.jit.trace finds; bf16 is a network and images in bf16.
"""

import functools
import sys
import warnings

import protocol

try:
    import torch
    from safetensors.torch import load_file
except (ImportError, OSError) as missing:
    protocol.say({"error": str(missing)})
    sys.exit()
from torch import nn
from torch.nn import functional

from worker import made_up, serve

warnings.filterwarnings("ignore", category=DeprecationWarning)


class LeNet5(nn.Module):
    image = (1, 28, 28)

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
    image = (3, 32, 32)

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


NETWORKS = {
    "lenet5": LeNet5,
    "resnet20": functools.partial(ResNet, 16, (3, 3, 3)),
    "resnet18_cifar": functools.partial(ResNet, 64, (2, 2, 2, 2)),
}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def channels_last(network, images):
    return network.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)


def eager(network, images):
    return lambda: network(images)


def eager_channels_last(network, images):
    return eager(*channels_last(network, images))


def frozen(network, images):
    traced = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(network, images)))
    return lambda: traced(images)


def frozen_channels_last(network, images):
    return frozen(*channels_last(network, images))


def compiled(network, images):
    fast = torch.compile(network)
    return lambda: fast(images)


WAYS = {"eager": eager, "channels_last": eager_channels_last, "frozen": frozen,
        "frozen_channels_last": frozen_channels_last, "compile": compiled}


def prepare(folder, name, precision, batch, way):
    network = NETWORKS[name]().eval()
    network.load_state_dict(load_file(f"{folder}/{name}.torch.safetensors"), strict=True)
    images = made_up((batch, *network.image), 7).to(DTYPES[precision])
    run = way(network.to(DTYPES[precision]), images)
    return run, run().flatten().tolist()


def cases(folder):
    return {f"{name}/{precision}/infer-b{batch}":
            {label: functools.partial(prepare, folder, name, precision, batch, way) for label, way in WAYS.items()}
            for name in NETWORKS for precision in DTYPES for batch in (1, 64)}


if __name__ == "__main__":
    with torch.inference_mode():
        serve(cases(sys.argv[1]))
