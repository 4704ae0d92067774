"""Photos from files to batches of bytes: bench/peers/athanor/loader.cpp is the same in Athanor.

A DataLoader with as many workers as Athanor has threads, which stay between passes. "pil" decodes by Pillow, as
torchvision's ImageFolder does; "tensor" by torchvision.io, which wraps libjpeg-turbo. Needs torchvision and Pillow.
"""

import functools
import glob
import os

import torch
from PIL import Image
from torchvision import io, transforms
from torchvision.transforms import v2

from worker import serve

IMAGES, BATCH, SIDE = 256, 64, 224


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


def prepare(training, pil):
    if pil:
        change = [transforms.RandomResizedCrop(SIDE)] if training else [transforms.Resize(256), transforms.CenterCrop(SIDE)]
        photos = Photos(with_pillow, transforms.Compose(change + [transforms.PILToTensor()]))
    else:
        change = ([v2.RandomResizedCrop(SIDE, antialias=True)] if training
                  else [v2.Resize(256, antialias=True), v2.CenterCrop(SIDE)])
        photos = Photos(with_torchvision, v2.Compose(change))
    workers = torch.get_num_threads()
    loader = torch.utils.data.DataLoader(photos, batch_size=BATCH, num_workers=workers, persistent_workers=True)

    def run():
        for _ in loader:
            pass

    count = labels = total = 0
    for images, targets in loader:
        count += len(images)
        labels += int(targets.sum())
        total += int(images.sum(dtype=torch.int64))
    check = [count, labels]
    if not training:
        check.append(round(total / (count * SIDE * SIDE * 3)))
    return run, check


if __name__ == "__main__":
    serve({
        case: {way: functools.partial(prepare, case == "crop224", way == "pil") for way in ("pil", "tensor")}
        for case in ("crop224", "middle224")
    })
