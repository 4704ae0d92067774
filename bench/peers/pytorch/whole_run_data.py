"""The data and networks of the whole runs, for both scripts: lightning_run.py and tuned_run.py."""

import pathlib

import numpy
import torch
from networks import NETWORKS

NETWORK = {"mnist": "lenet5", "cifar10": "resnet20", "jpegs": "resnet20"}
BATCH = {"mnist": 64, "cifar10": 128, "jpegs": 64}
LR = {"mnist": 0.05, "cifar10": 0.2, "jpegs": 0.2}
MEAN = {"mnist": [0.1307], "cifar10": [0.4914, 0.4822, 0.4465], "jpegs": [0.485, 0.456, 0.406]}
STDDEV = {"mnist": [0.3081], "cifar10": [0.2470, 0.2435, 0.2616], "jpegs": [0.229, 0.224, 0.225]}
SIDE = 64  # of the photos, as they are trained on


def network(kind):
    return NETWORKS[NETWORK[kind]].make()


def mnist(folder, part):
    """Bytes [N, 28, 28, 1] and labels of "train", or of the test set."""
    prefix = pathlib.Path(folder) / "mnist" / ("train" if part == "train" else "t10k")
    images = numpy.fromfile(f"{prefix}-images-idx3-ubyte", numpy.uint8)[16:].reshape(-1, 28, 28, 1)
    return images, numpy.fromfile(f"{prefix}-labels-idx1-ubyte", numpy.uint8)[8:].astype(numpy.int64)


def cifar10(folder, part):
    """Bytes [N, 32, 32, 3] and labels."""
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if part == "train" else ["test_batch.bin"]
    rows = numpy.concatenate([numpy.fromfile(pathlib.Path(folder) / "cifar10" / name, numpy.uint8) for name in names])
    rows = rows.reshape(-1, 1 + 3 * 32 * 32)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy(), rows[:, 0].astype(numpy.int64)


def schedule(optimizer, kind, steps):
    """Up and down again, as ours."""
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LR[kind], total_steps=steps)
