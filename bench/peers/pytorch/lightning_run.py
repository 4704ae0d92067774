"""lightning_run.py mnist|cifar10|jpegs DIR EPOCHS: a training script as people write it with Lightning.

Data sets of single samples with torchvision's transforms, a DataLoader with two workers, and a LightningModule with the
defaults of its Trainer: a progress bar, CSV logs, a checkpoint. Prints the accuracy on the held-out images last.
With 0 epochs, one batch of training and one of validation.
"""

import logging
import sys
import tempfile
import warnings

import lightning
import torch
import whole_run_data as data
from PIL import Image
from torch.nn import functional
from torchvision import datasets, transforms

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Samples(torch.utils.data.Dataset):
    def __init__(self, images, labels, transform):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index].squeeze())), int(self.labels[index])


class Classifier(lightning.LightningModule):
    def __init__(self, kind, steps):
        super().__init__()
        self.kind, self.steps, self.network = kind, steps, data.network(kind)

    def training_step(self, batch, _):
        loss = functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        logits = self.network(batch[0])
        self.log("val_loss", functional.cross_entropy(logits, batch[1]), prog_bar=True)
        self.log("val_accuracy", (logits.argmax(1) == batch[1]).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=data.LR[self.kind], momentum=0.9, nesterov=True, weight_decay=5e-4)
        return [optimizer], [{"scheduler": data.schedule(optimizer, self.kind, self.steps), "interval": "step"}]


def data_sets(kind, folder):
    last = [transforms.ToTensor(), transforms.Normalize(data.MEAN[kind], data.STDDEV[kind])]
    if kind == "jpegs":
        train = [transforms.RandomResizedCrop(data.SIDE), transforms.RandomHorizontalFlip(), *last]
        middle = [transforms.Resize(data.SIDE * 8 // 7), transforms.CenterCrop(data.SIDE), *last]
        return (datasets.ImageFolder(f"{folder}/train", transforms.Compose(train)),
                datasets.ImageFolder(f"{folder}/val", transforms.Compose(middle)))
    read, augment = {"mnist": (data.mnist, []), "cifar10": (
        data.cifar10, [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()])}[kind]
    return (Samples(*read(folder, "train"), transforms.Compose([*augment, *last])),
            Samples(*read(folder, "test"), transforms.Compose(last)))


def main():
    kind, folder, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    train, val = data_sets(kind, folder)
    train = torch.utils.data.DataLoader(train, data.BATCH[kind], shuffle=True, drop_last=True, num_workers=2)
    val = torch.utils.data.DataLoader(val, 256, num_workers=2)
    with tempfile.TemporaryDirectory() as out:
        trainer = lightning.Trainer(accelerator="cpu", max_epochs=max(epochs, 1), default_root_dir=out, fast_dev_run=epochs == 0)
        trainer.fit(Classifier(kind, max(epochs, 1) * len(train)), train, val)
        print(f"accuracy {float(trainer.callback_metrics['val_accuracy'])}")


if __name__ == "__main__":
    main()
