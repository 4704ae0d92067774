#!/usr/bin/env python3
"""make_checkpoints.py [DIR]: checkpoints as other trainers save them, of a network of 36 values, for tests/trainer/weights_file_test.cpp.
The weights are 1 and their running average 2, or all are 1. Needs torch, timm and lightning; made with 2.15, 1.0.31 and 2.6.6."""
import argparse
import pathlib
import sys
import tempfile

import lightning
import timm.utils
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import nn
from torch.optim.swa_utils import AveragedModel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.bn = nn.BatchNorm2d(2)
        self.fc = nn.Linear(2, 3)

    def forward(self, x):
        return self.fc(self.bn(self.conv(x)).mean((2, 3)))


@torch.no_grad()
def fill(module, value):
    for tensor in [*module.parameters(), *module.buffers()]:
        tensor.fill_(value)
    return module


def sgd(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.zeros(2, 1, 3, 3)).sum().backward()
    optimizer.step()  # which then has a state to save
    return optimizer


def of_timm(file, scratch):
    net = Net()
    optimizer, average = sgd(net), timm.utils.ModelEmaV3(net)
    fill(net, 1), fill(average.module, 2)
    saver = timm.utils.CheckpointSaver(net, optimizer, argparse.Namespace(model="net", lr=0.1), model_ema=average, checkpoint_dir=scratch)
    saver.save_checkpoint(0, metric=71.5)
    pathlib.Path(scratch, "checkpoint-0.pth.tar").rename(file)


def of_torchvision(file, scratch):
    """As references/classification/train.py saves them, of a network in DistributedDataParallel's place."""
    net = Net()
    optimizer, average = sgd(net), AveragedModel(net, use_buffers=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 30)
    fill(net, 1), fill(average.module, 2)
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "lr_scheduler": schedule.state_dict(), "epoch": 3,
                "args": argparse.Namespace(model="net", data_path=pathlib.Path("/data")), "model_ema": average.state_dict()}, file)


class Classifier(lightning.LightningModule):
    def __init__(self, own_average):
        super().__init__()
        self.save_hyperparameters()
        self.criterion = nn.CrossEntropyLoss(weight=torch.ones(3))
        self.net = Net()
        if own_average:
            self.ema = timm.utils.ModelEmaV2(self.net)

    def training_step(self, batch, index):
        return self.criterion(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)


class Save(lightning.Callback):
    def __init__(self, file, averaging):
        self.file, self.averaging = file, averaging

    def on_train_epoch_end(self, trainer, module):
        fill(module, 1)
        if self.averaging:
            fill(self.averaging._average_model.module, 2)
        else:
            fill(module.ema, 2)
        trainer.save_checkpoint(self.file)


def of_lightning(file, scratch, averaging):
    callbacks = [averaging] if averaging else []
    data = torch.utils.data.TensorDataset(torch.zeros(4, 1, 3, 3), torch.zeros(4, dtype=torch.long))
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False, default_root_dir=scratch, callbacks=[*callbacks, Save(file, averaging)])
    trainer.fit(Classifier(own_average=not averaging), torch.utils.data.DataLoader(data, batch_size=2))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "checkpoints").resolve()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        of_timm(folder / "timm.pth.tar", scratch)
        of_torchvision(folder / "torchvision.pth", scratch)
        of_lightning(folder / "lightning_averaging.ckpt", scratch, EMAWeightAveraging())
        of_lightning(folder / "lightning_module.ckpt", scratch, None)
        torch.save(fill(Net(), 1).state_dict(), folder / "plain.pth")


main()
