"""tuned_run.py mnist|cifar10|jpegs DIR EPOCHS: a hand-tuned training loop in PyTorch.

MNIST and CIFAR-10 lie in memory as bytes; a batch is picked, cropped, flipped and normalised as a whole. Photos are decoded by
libjpeg-turbo's binding in worker processes that stay. The network is channels_last. Nothing is logged or saved. Prints the
accuracy on the held-out images last. With 0 epochs, one batch of training and one of validation.
"""

import itertools
import pathlib
import sys

import torch
import whole_run_data as data
from torch.nn import functional
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2


class Photos(torch.utils.data.Dataset):
    def __init__(self, folder, transform):
        classes = sorted(path.name for path in pathlib.Path(folder).iterdir())
        self.files = [(str(file), label) for label, name in enumerate(classes)
                      for file in sorted((pathlib.Path(folder) / name).iterdir())]
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file, label = self.files[index]
        return self.transform(decode_jpeg(read_file(file), mode=ImageReadMode.RGB)), label


def photo_batches(kind, folder, part):
    side = data.SIDE
    train = [v2.RandomResizedCrop(side, antialias=True), v2.RandomHorizontalFlip()]
    middle = [v2.Resize(side * 8 // 7, antialias=True), v2.CenterCrop(side)]
    photos = Photos(f"{folder}/{part}", v2.Compose(train if part == "train" else middle))
    return torch.utils.data.DataLoader(photos, data.BATCH[kind], shuffle=part == "train", drop_last=part == "train",
                                       num_workers=2, persistent_workers=True)


class Resident:
    """Batches of images in memory."""

    def __init__(self, kind, folder, part):
        images, labels = {"mnist": data.mnist, "cifar10": data.cifar10}[kind](folder, part)
        self.images, self.labels = torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)
        self.train, self.crops, self.size = part == "train", kind == "cifar10", data.BATCH[kind] if part == "train" else 256

    def __len__(self):
        return len(self.labels) // self.size

    def __iter__(self):
        order = torch.randperm(len(self.labels)) if self.train else torch.arange(len(self.labels))
        images = self.images
        if self.train and self.crops:  # one shift and one side for each batch, as fast scripts have it
            images = functional.pad(images, (4, 4, 4, 4))
        for rows in order.split(self.size):
            if self.train and len(rows) < self.size:
                return
            batch = images[rows]
            if self.train and self.crops:
                y, x, flip = torch.randint(0, 9, ()), torch.randint(0, 9, ()), torch.rand(()) < 0.5
                batch = batch[:, :, y:y + 32, x:x + 32]
                batch = batch.flip(3) if flip else batch
            yield batch, self.labels[rows]


def main():
    kind, folder, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    train, val = ((photo_batches if kind == "jpegs" else Resident)(kind, folder, part) for part in ("train", "val"))
    network = data.network(kind).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=data.LR[kind], momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = data.schedule(optimizer, kind, max(epochs, 1) * len(train))
    batches = None if epochs else 1
    mean, stddev = (torch.tensor(values[kind]).reshape(1, -1, 1, 1) for values in (data.MEAN, data.STDDEV))

    def normalised(images):
        return ((images.float() / 255 - mean) / stddev).contiguous(memory_format=torch.channels_last)

    for _ in range(max(epochs, 1)):
        network.train()
        for images, labels in itertools.islice(train, batches):
            loss = functional.cross_entropy(network(normalised(images)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        network.eval()
        right = total = 0
        with torch.inference_mode():
            for images, labels in itertools.islice(val, batches):
                right += (network(normalised(images)).argmax(1) == labels).sum().item()
                total += len(labels)
    print(f"accuracy {right / total}")


if __name__ == "__main__":
    main()
