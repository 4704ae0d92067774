"""naive.py digits|cifar10|imagefolder PATH [flags]: a training script as the articles of examples/ladder find it, before any trick.

A data set that opens and decodes a file for each sample and transforms it with torchvision and Pillow; a DataLoader without
workers; eager f32; loss.item() and (on a GPU) empty_cache() after each step; an evaluation with the batches of training that
records a graph. The network is digits_cnn, as Athanor's nn/models/digits_cnn.cpp. Prints a line of JSON per epoch, with the keys of
Athanor's metrics.jsonl. PATH is digits.csv.gz, the folder of CIFAR-10's binary files, or a folder with train/ and val/. Needs
torch, torchvision and Pillow.
"""

import argparse
import gzip
import itertools
import json
import pathlib
import time

import numpy
import torch
from PIL import Image
from torch import nn
from torch.nn import functional
from torchvision import transforms

# Per class of the digits, as data/digits.cpp splits them: all, and those to test on.
DIGITS = list(zip((178, 182, 177, 183, 181, 182, 181, 179, 174, 180), (36, 37, 35, 37, 36, 36, 36, 36, 35, 36)))


class DigitsCnn(nn.Module):
    def __init__(self, channels, side, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.conv2, self.bn2 = nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.conv3, self.bn3 = nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64)
        self.fc = nn.Linear(64 * (side // 4) ** 2, classes)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        x = functional.max_pool2d(functional.relu(self.bn2(self.conv2(x))), 2)
        x = functional.max_pool2d(functional.relu(self.bn3(self.conv3(x))), 2)
        return self.fc(torch.flatten(x, 1))


class Arrays(torch.utils.data.Dataset):
    """Images in memory, each of which becomes a picture and then a tensor when it is read."""

    def __init__(self, images, labels, transform):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index])), int(self.labels[index])


class Photos(torch.utils.data.Dataset):
    def __init__(self, folder, transform):
        classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
        self.files = [(file, label) for label, name in enumerate(classes) for file in sorted((folder / name).iterdir())]
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file, label = self.files[index]
        return self.transform(Image.open(file).convert("RGB")), label


def digits(path, train):
    rows = numpy.loadtxt(gzip.open(path), delimiter=",", dtype=numpy.int64)
    seen, chosen = [0] * 10, []
    for row in rows:
        label = row[-1]
        (count, test), k = DIGITS[label], seen[label]
        seen[label] += 1
        if ((k + 1) * test // count > k * test // count) != train:
            chosen.append(row)
    chosen = numpy.array(chosen)
    return ((chosen[:, :-1] * 255 + 8) // 16).astype(numpy.uint8).reshape(-1, 8, 8), chosen[:, -1]


def cifar10(folder, train):
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
    rows = numpy.concatenate([numpy.fromfile(pathlib.Path(folder) / name, numpy.uint8) for name in names]).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy(), rows[:, 0]


def data_set(kind, path, train, side):
    if kind == "imagefolder":
        change = [transforms.Resize((side * 8 + 3) // 7), transforms.CenterCrop(side)]
        last = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        return Photos(pathlib.Path(path) / ("train" if train else "val"), transforms.Compose([*change, transforms.ToTensor(), last]))
    if kind == "digits":
        return Arrays(*digits(path, train), transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.305], [0.376])]))
    last = transforms.Normalize([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])
    return Arrays(*cifar10(path, train), transforms.Compose([transforms.ToTensor(), last]))


def train(network, batches, optimizer, device):
    """Images and seconds."""
    network.train()
    begin, images, total_loss = time.perf_counter(), 0, 0.0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        total_loss += loss.item()
        if device == "cuda":
            torch.cuda.empty_cache()
        images += len(y)
    return images, time.perf_counter() - begin


def accuracy(network, batches, device):
    network.eval()
    right = total = 0
    for x, y in batches:
        right += (network(x.to(device)).argmax(1).cpu() == y).sum().item()
        total += len(y)
    return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=["digits", "cifar10", "imagefolder"])
    parser.add_argument("path")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--limit-train-batches", type=int)
    parser.add_argument("--limit-val-batches", type=int)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--image-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sets = [data_set(args.data, args.path, is_train, args.image_size) for is_train in (True, False)]
    loaders = [torch.utils.data.DataLoader(data, args.batch_size, shuffle=is_train, drop_last=is_train)
               for data, is_train in zip(sets, (True, False))]
    channels, side, _ = sets[0][0][0].shape
    network = DigitsCnn(channels, side, 10 if args.data != "imagefolder" else 1 + max(label for _, label in sets[0].files)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    begin = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        images, seconds = train(network, itertools.islice(loaders[0], args.limit_train_batches), optimizer, device)
        measured = accuracy(network, itertools.islice(loaders[1], args.limit_val_batches), device)
        print(json.dumps({"event": "epoch", "epoch": epoch, "images_per_s": images / seconds, "val_accuracy": measured,
                          "wall_s": time.perf_counter() - begin}), flush=True)


if __name__ == "__main__":
    main()
