#!/usr/bin/env python3
"""peer_digits.py EPOCHS OUT: what PyTorch draws with the networks and the training of its C++ tutorial on a GAN.

Trains on MNIST ($ATHANOR_DATA_DIR/mnist), as bench/peers/pytorch/dcgan.py times it, and writes OUT.safetensors, 1,000
samples [1000, 28, 28, 1] for judge_digits, and OUT.png, 8 x 8 of them. Needs torch and Pillow.
"""

import json
import pathlib
import sys

import numpy
import torch
from PIL import Image

PEERS = pathlib.Path(__file__).resolve().parents[2] / "bench/peers"
sys.path[:0] = [str(PEERS), str(PEERS / "pytorch")]
import dcgan  # noqa: E402

SAMPLES, SIDE = 1000, 8


def train(epochs):
    g = dcgan.generator().to(memory_format=torch.channels_last)
    d = dcgan.discriminator().to(memory_format=torch.channels_last)
    g_optimizer, d_optimizer = (torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (g, d))
    images = dcgan.digits().contiguous(memory_format=torch.channels_last)
    for epoch in range(epochs):
        for rows in torch.randperm(len(images)).split(dcgan.BATCH):
            real = images[rows]
            fake = g(torch.randn(len(rows), 100, 1, 1))
            d_optimizer.zero_grad()
            (dcgan.loss_of(d(real), 1) + dcgan.loss_of(d(fake.detach()), 0)).backward()
            d_optimizer.step()
            g_optimizer.zero_grad()
            dcgan.loss_of(d(fake), 1).backward()
            g_optimizer.step()
        print(f"epoch {epoch + 1} of {epochs}", flush=True)
    return g


def save(path, samples):
    header = json.dumps({"samples": {"dtype": "F32", "shape": list(samples.shape), "data_offsets": [0, samples.nbytes]}})
    header = header.encode() + b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + samples.tobytes())


def main():
    epochs, out = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    torch.manual_seed(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    g = train(epochs).eval()
    with torch.no_grad():
        drawn = torch.cat([g(torch.randn(100, 100, 1, 1)) for _ in range(SAMPLES // 100)])
    samples = numpy.ascontiguousarray(drawn.permute(0, 2, 3, 1).numpy(), numpy.float32)
    save(out.with_suffix(".safetensors"), samples)
    grid = samples[: SIDE * SIDE, :, :, 0].reshape(SIDE, SIDE, 28, 28).swapaxes(1, 2).reshape(SIDE * 28, SIDE * 28)
    Image.fromarray(((grid + 1) * 127.5).astype(numpy.uint8)).save(out.with_suffix(".png"))


if __name__ == "__main__":
    main()
