"""train.py DIR: steps of training of the networks in DIR/MODEL.torch.safetensors. bench/peers/athanor/train.cpp is the same in
Athanor.

Images lie in memory as bytes, and each batch is picked by random indices, made numbers and normalised: less work than a
DataLoader has. "eager" is what most scripts do, "channels_last" the layout that oneDNN likes best, "compile" torch.compile of the
network and the loss, in that layout. bf16 is autocast.
"""

import functools
import math
import sys

import protocol

try:
    import torch
    from safetensors.torch import load_file
except (ImportError, OSError) as missing:
    protocol.say({"error": str(missing)})
    sys.exit()
from torch.nn import functional

from networks import NETWORKS
from worker import noise, serve
from workloads import STEPS

CHECKED = {10: 20, 1000: 3}  # losses that both sides must agree on, by classes: large networks take long


def made_up_images(shape, count, classes):
    """Bytes [N, C, H, W], noise, and labels, as ours."""
    words = noise(count * math.prod(shape))
    return (words >> 24).to(torch.uint8).reshape(count, *shape), torch.arange(count) % classes


class Training:
    def __init__(self, folder, name, count, precision, way):
        self.layout = torch.contiguous_format if way == "eager" else torch.channels_last
        kind = NETWORKS[name]
        self.network = kind.make().to(memory_format=self.layout)
        self.network.load_state_dict(load_file(f"{folder}/{name}.torch.safetensors"), strict=True)
        rate = 0.0000002 if kind.classes == 1000 else 0.002  # athanor/train.cpp says why
        self.optimizer = torch.optim.SGD([p for p in self.network.parameters() if p.requires_grad], lr=rate, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.images, self.labels = made_up_images(kind.image, count, kind.classes)
        self.half = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
        self.loss = torch.compile(self.loss_of) if way == "compile" else self.loss_of

    def loss_of(self, images, labels):
        return functional.cross_entropy(self.network(images), labels)

    def step(self, picked):
        images = self.images[picked].to(memory_format=self.layout).float().div_(255).sub_(0.5).div_(0.25)
        with self.half:
            loss = self.loss(images, self.labels[picked])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def prepare(folder, name, batch, steps, precision, way):
    first = Training(folder, name, batch, precision, way)
    losses = [first.step(torch.arange(batch)).item() for _ in range(CHECKED[NETWORKS[name].classes])]
    training = Training(folder, name, batch * steps, precision, way)

    def run():
        order = torch.randperm(batch * steps)
        for i in range(steps):
            training.step(order[i * batch:(i + 1) * batch])

    return run, losses


if __name__ == "__main__":
    serve({f"{name}/{precision}/train-b{batch}":
           {way: functools.partial(prepare, sys.argv[1], name, batch, steps, precision, way)
            for way in ("eager", "channels_last", "compile")}
           for (name, batch), steps in STEPS.items() for precision in ("f32", "bf16")})
