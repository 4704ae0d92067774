"""The networks and the step of PyTorch's C++ tutorial on a GAN: bench/peers/athanor/dcgan.cpp is the same in Athanor.

"eager" is the tutorial's way; "channels_last" the layout that oneDNN likes best, "compile" torch.compile on top of it.
The digits lie in memory as numbers, shuffled by one randperm: less work than the tutorial's DataLoader has.
"""

import functools
import os

import numpy
import torch
from torch import nn
from torch.nn import functional

from worker import made_up, serve

BATCH, STEPS = 64, 5


def generator():
    return nn.Sequential(
        nn.ConvTranspose2d(100, 256, 4, bias=False), nn.BatchNorm2d(256), nn.ReLU(),
        nn.ConvTranspose2d(256, 128, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU(),
        nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 1, 4, stride=2, padding=1, bias=False), nn.Tanh())


def discriminator():
    return nn.Sequential(
        nn.Conv2d(1, 64, 4, stride=2, padding=1, bias=False), nn.LeakyReLU(0.2),
        nn.Conv2d(64, 128, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(128), nn.LeakyReLU(0.2),
        nn.Conv2d(128, 256, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(256), nn.LeakyReLU(0.2),
        nn.Conv2d(256, 1, 3, bias=False), nn.Flatten(0))


def loss_of(logits, target):
    return functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))


def check():
    """Losses of a first step, and how large the gradients are, in f64."""
    networks = [generator(), discriminator()]
    for network in networks:
        for weight in network.parameters():
            if weight.dim() == 4:
                weight.data = made_up(tuple(weight.shape), 0) * 0.05
        network.double()
    fake = networks[0](made_up((BATCH, 100, 1, 1), 2).double())
    of_real = loss_of(networks[1](made_up((BATCH, 1, 28, 28), 1).double()), 1)
    of_fake = loss_of(networks[1](fake), 1)
    (of_real + of_fake).backward()
    gradients = [weight.grad.norm().item() for network in networks for weight in network.parameters() if weight.dim() == 4]
    return [of_real.item(), of_fake.item()] + gradients


def digits():
    path = os.path.join(os.environ["ATHANOR_DATA_DIR"], "mnist", "train-images-idx3-ubyte")
    pixels = numpy.fromfile(path, numpy.uint8)[16:].reshape(-1, 1, 28, 28)
    return torch.from_numpy(pixels.astype(numpy.float32) / 127.5 - 1)


def prepare(precision, way):
    layout = torch.contiguous_format if way == "eager" else torch.channels_last
    g, d = generator().to(memory_format=layout), discriminator().to(memory_format=layout)
    d_optimizer = torch.optim.Adam(d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    g_optimizer = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    images = digits().contiguous(memory_format=layout)
    half = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
    run_g, run_d = (torch.compile(g), torch.compile(d)) if way == "compile" else (g, d)

    def step(real):
        with half:
            fake = run_g(torch.randn(BATCH, 100, 1, 1))
            d_loss = loss_of(run_d(real), 1) + loss_of(run_d(fake.detach()), 0)
        d_optimizer.zero_grad()
        d_loss.backward()
        d_optimizer.step()
        with half:
            g_loss = loss_of(run_d(fake), 1)
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()

    def run():
        order = torch.randperm(len(images))
        for i in range(STEPS):
            step(images[order[i * BATCH:(i + 1) * BATCH]])

    return run, check()


if __name__ == "__main__":
    serve({
        f"dcgan/{precision}/{STEPS}_steps_of_{BATCH}":
            {way: functools.partial(prepare, precision, way) for way in ("eager", "channels_last", "compile")}
        for precision in ("f32", "bf16")
    })
