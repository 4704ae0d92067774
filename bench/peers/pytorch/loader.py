"""From files to batches of bytes: bench/peers/athanor/loader.cpp is the same in Athanor.

A DataLoader with as many workers as Athanor has threads, which stay between passes. "pil" decodes by Pillow, as
torchvision's ImageFolder does; "tensor" by torchvision.io, which wraps libjpeg-turbo. CIFAR-10 is torchvision's CIFAR10,
which has the images in memory: "bytes" by PILToTensor, "floats" by ToTensor, as most programs do. Needs torchvision and
Pillow.
"""

import functools
import glob
import os

import numpy
import torch
from PIL import Image
from torchvision import datasets, io, transforms
from torchvision.transforms import v2

from worker import serve

IMAGES, BATCH = 256, 64
SMALL, SMALL_BATCH = 5_000, 128


class Photos(torch.utils.data.Dataset):
    def __init__(self, decode, transform):
        folder = os.path.join(os.environ.get("ATHANOR_DATA_DIR", "data-cache"), "imagenet-sample")
        self.paths = sorted(glob.glob(os.path.join(folder, "*.JPEG")))[:IMAGES]
        if len(self.paths) < IMAGES:
            raise FileNotFoundError(f"{folder} must hold {IMAGES} .JPEG files; set ATHANOR_DATA_DIR")
        self.decode, self.transform = decode, transform

    def __len__(self):
        return IMAGES

    def __getitem__(self, index):
        return self.transform(self.decode(self.paths[index])), index % 10


def with_pillow(path):
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def with_torchvision(path):
    return io.decode_jpeg(io.read_file(path), mode=io.ImageReadMode.RGB)


def prepare(training, side, pil):
    if pil:
        change = ([transforms.RandomResizedCrop(side)] if training
                  else [transforms.Resize(256), transforms.CenterCrop(side)])
        photos = Photos(with_pillow, transforms.Compose(change + [transforms.PILToTensor()]))
    else:
        change = ([v2.RandomResizedCrop(side, antialias=True)] if training
                  else [v2.Resize(256, antialias=True), v2.CenterCrop(side)])
        photos = Photos(with_torchvision, v2.Compose(change))
    return ready(photos, BATCH, False, None if training else 0)


class Cifar(datasets.CIFAR10):
    """torchvision's own, but that its bytes come from the binary files instead of the pickled ones."""

    def __init__(self, transform):
        folder = os.path.join(os.environ.get("ATHANOR_DATA_DIR", "data-cache"), "cifar10")
        datasets.VisionDataset.__init__(self, folder, transform=transform)
        files = [os.path.join(folder, f"data_batch_{i}.bin") for i in range(1, 6)]
        records = numpy.concatenate([numpy.fromfile(file, numpy.uint8).reshape(-1, 3073) for file in files])[:SMALL]
        self.targets = records[:, 0].tolist()
        self.data = numpy.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def prepare_cifar(change):
    return ready(Cifar(change), SMALL_BATCH, True, 2)


def ready(data, batch, shuffle, digits):
    workers = torch.get_num_threads()
    loader = torch.utils.data.DataLoader(data, batch_size=batch, shuffle=shuffle, num_workers=workers,
                                         persistent_workers=True)

    def run():
        for _ in loader:
            pass

    count = labels = total = size = 0
    for images, targets in loader:
        count += len(images)
        labels += int(targets.sum())
        size += images.numel()
        total += float(images.sum(dtype=torch.float64)) * (255 if images.is_floating_point() else 1)
    check = [count, labels]
    if digits is not None:
        check.append(round(total / size, digits))
    return run, check


if __name__ == "__main__":
    cases = {
        name: {way: functools.partial(prepare, name.startswith("crop"), side, way == "pil") for way in ("pil", "tensor")}
        for name, side in {"crop224": 224, "crop160": 160, "middle224": 224}.items()
    }
    cases["cifar10"] = {"bytes": functools.partial(prepare_cifar, transforms.PILToTensor()),
                        "floats": functools.partial(prepare_cifar, transforms.ToTensor())}
    serve(cases)
