"""speedrun.py DIR f32|bf16 eager|compile EPOCHS BATCHES TEST_IMAGES: the recipe of examples/speedrun_cifar10.cpp in PyTorch.

The images lie in memory; all of an epoch are shifted and mirrored at once, and a batch is a slice of them by random rows. The
network is channels_last; bf16 is autocast over f32 weights. An epoch has BATCHES batches of 2,000 images; at its end a line says
how it went. The last epoch tests six views of each image, the others one. Prints the accuracy on the first TEST_IMAGES images last.
"""

import sys

import torch
from networks import CifarNet, Norm
from torch import nn
from torch.nn import functional
from whole_run_data import MEAN, STDDEV, cifar10

BATCH, TEST_BATCH, PAD = 2000, 1000, 2
MUON_LR, BIAS_LR, HEAD_LR, DECAY = 0.24, 0.053, 0.67, 2e-6 * BATCH
WHITENING_EPOCHS = 3


class Muon(torch.optim.Optimizer):
    """SGD with Nesterov momentum, its update made nearly orthogonal; filters keep their norm. Products are of `dtype`."""

    def __init__(self, filters, lr, momentum, dtype):
        super().__init__(filters, {"lr": lr, "momentum": momentum, "dtype": dtype})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for filters in group["params"]:
                sum_of = self.state[filters].setdefault("momentum", torch.zeros_like(filters))
                sum_of.mul_(group["momentum"]).add_(filters.grad)
                update = filters.grad.add(sum_of, alpha=group["momentum"]).reshape(len(filters), -1)
                filters.mul_(len(filters) ** 0.5 / filters.norm())
                filters.add_(orthogonal(update.to(group["dtype"])).view_as(filters), alpha=-group["lr"])


def orthogonal(x, iterations=3):
    """Newton and Schulz's iteration, with the coefficients of Muon's source; x [rows, columns]."""
    wide = x.T if x.shape[0] > x.shape[1] else x
    wide = wide / (wide.norm() + 1e-7)
    for _ in range(iterations):
        gram = wide @ wide.T
        wide = 3.4445 * wide + (-4.7750 * gram + 2.0315 * gram @ gram) @ wide
    return wide.T if x.shape[0] > x.shape[1] else wide


def initialise(network, images):
    """Filters begin as the identity, the head with deviation 1; the first convolution whitens 2 x 2 patches of `images`."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and module is not network.whiten:
            nn.init.dirac_(module.weight[:module.in_channels])
    network.head.weight.data.div_(network.head.weight.std())
    patches = functional.unfold(images, 2).transpose(1, 2).reshape(-1, 12)  # channel by channel, as filters are
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    vectors = (vectors / (values + 5e-4).sqrt()).T.flip(0).reshape(12, 3, 2, 2)
    network.whiten.weight.data.copy_(torch.cat([vectors, -vectors]))
    nn.init.zeros_(network.whiten.bias)


def optimizers(network, dtype):
    filters = [module.weight for module in network.modules() if isinstance(module, nn.Conv2d) and module.weight.requires_grad]
    rest = [{"params": [network.whiten.bias], "lr": BIAS_LR, "weight_decay": DECAY / BIAS_LR},
            {"params": [norm.bias for norm in network.modules() if isinstance(norm, Norm)], "lr": BIAS_LR, "weight_decay": DECAY / BIAS_LR},
            {"params": [network.head.weight], "lr": HEAD_LR, "weight_decay": DECAY / HEAD_LR}]
    return Muon(filters, MUON_LR, 0.6, dtype), torch.optim.SGD(rest, momentum=0.85, nesterov=True)


class Images:
    """All of the training images, reflected beyond their edges once."""

    def __init__(self, images, labels):
        self.padded = functional.pad(images, (PAD,) * 4, "reflect").contiguous(memory_format=torch.channels_last)
        self.labels, self.mirrored = labels, torch.rand(len(images)) < 0.5

    def batches(self, epoch, count):
        """Of images that are shifted by up to PAD pixels, and mirrored in every other epoch."""
        rows = torch.randperm(len(self.labels))[:count * BATCH]
        shifts, shifted = torch.randint(0, 2 * PAD + 1, (len(rows), 2)), torch.empty(len(rows), 3, 32, 32).contiguous(memory_format=torch.channels_last)
        for y in range(2 * PAD + 1):
            for x in range(2 * PAD + 1):
                here = (shifts[:, 0] == y) & (shifts[:, 1] == x)
                shifted[here] = self.padded[rows[here], :, y:y + 32, x:x + 32]
        mirrored = (self.mirrored[rows] ^ (epoch % 2 == 1)).view(-1, 1, 1, 1)
        shifted = torch.where(mirrored, shifted.flip(3), shifted)
        for i in range(count):
            part = slice(i * BATCH, (i + 1) * BATCH)
            yield shifted[part].contiguous(memory_format=torch.channels_last), self.labels[rows[part]]


def six_views(network, x):
    padded = functional.pad(x, (1,) * 4, "reflect")
    both = [network(view) + network(view.flip(3)) for view in (x, padded[:, :, :32, :32], padded[:, :, 2:, 2:])]
    return both[0] / 4 + (both[1] + both[2]) / 8


def main():
    folder, precision, way, *counts = sys.argv[1:]
    epochs, count, tested = map(int, counts)
    mean, stddev = (torch.tensor(values["cifar10"]).reshape(1, 3, 1, 1) for values in (MEAN, STDDEV))
    (train, labels), (test, test_labels) = (
        ((torch.from_numpy(images).permute(0, 3, 1, 2) / 255 - mean) / stddev, torch.from_numpy(classes))
        for images, classes in (cifar10(folder, part) for part in ("train", "test")))
    network = CifarNet().to(memory_format=torch.channels_last)
    initialise(network, train[:5000])
    muon, sgd = optimizers(network, torch.bfloat16 if precision == "bf16" else torch.float32)
    begin = [group["lr"] for group in sgd.param_groups]
    half = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
    forward = torch.compile(network) if way == "compile" else network
    data, steps = Images(train, labels), 0
    for epoch in range(epochs):
        network.train()
        network.whiten.bias.requires_grad_(epoch < WHITENING_EPOCHS)
        for images, classes in data.batches(epoch, count):
            left = 1 - steps / (epochs * count)
            muon.param_groups[0]["lr"] = MUON_LR * left
            for group, rate in zip(sgd.param_groups, begin):
                group["lr"] = rate * left
            sgd.param_groups[0]["lr"] = BIAS_LR * max(1 - steps / (WHITENING_EPOCHS * count), 0)
            with half:
                loss = functional.cross_entropy(forward(images), classes, label_smoothing=0.2, reduction="sum")
            muon.zero_grad()
            sgd.zero_grad()
            loss.backward()
            muon.step()
            sgd.step()
            steps += 1
        network.eval()
        right = 0
        with torch.inference_mode(), half:
            for x, classes in zip(test[:tested].split(TEST_BATCH), test_labels[:tested].split(TEST_BATCH)):
                logits = six_views(forward, x.contiguous(memory_format=torch.channels_last)) if epoch + 1 == epochs else forward(x)
                right += (logits.argmax(1) == classes).sum().item()
        print(f"epoch {epoch + 1} loss {loss.item() / BATCH:.4f}", flush=True)
    print(f"accuracy {right / tested}")


if __name__ == "__main__":
    main()
