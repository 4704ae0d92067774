"""The tricks of the ladder, in its order, and the data sets that it can train on.

A trick is one or two flags of a train program: `without` is the naive way, `with_` the trick. Claims are those of four articles:
[1] a whole pipeline made ten times faster, [2] a list of PyTorch tips, [3] seven tips for PyTorch, [4] a training that became four
times slower in Lightning (its issue 10389).
"""

import dataclasses
import os

ARTICLES = {"1": "a whole pipeline made ten times faster by six tricks", "2": "a list of PyTorch tips",
            "3": "seven tips for PyTorch", "4": "a training that became four times slower (PyTorch Lightning, issue 10389)"}


@dataclasses.dataclass(frozen=True)
class Trick:
    key: str
    title: str
    claim: str                # what the articles say of it
    because: str              # why it may not pay on this machine: shown only where it does not
    without: tuple = ()       # flags of the naive way
    with_: tuple = ()         # flags of the trick
    data: str = ""            # "packed", "prepared": another form of the same images, made once
    stage: str = "epoch"      # "epoch": less time for the same work; "target": other work, counts in time to the target alone
    optional: bool = False    # the ladder keeps it only if it measures faster here
    gpu: bool = False         # needs a GPU
    on: str = ""              # the trick that it is compared with, if not the ladder so far
    apart: str = ""           # has no flag, because the naive way does not exist here: what to read or run instead


CORES = len(os.sched_getaffinity(0))
IN_MEMORY = "the images are in memory already: there is nothing to read or decode"

TRICKS = [
    Trick("workers", "parallel loading", "workers = CPUs [1], or 4 per GPU [2, 3]; six were half as fast as none [4]",
          "one thread already loads faster than the network trains", ("--workers", "0"), ("--workers", str(CORES))),
    Trick("persistent", "persistent workers", "restarting workers cost 4 s to 15 s per iteration [4]",
          "our workers are threads and start at once; a DataLoader's are processes",
          ("--persistent-workers", "off"), ("--persistent-workers", "on")),
    Trick("packed", "packed format", "\"much faster\" after conversion [2]",
          "the files are in the page cache, where opening one costs little beside decoding it; cold disks and network drives differ",
          data="packed"),
    Trick("prepared", "preprocessing done once", "\"the same effect\" as a packed format [2]", "the images are small already",
          data="prepared"),
    Trick("cache", "no emptied cache per step", "do not call empty_cache() [3]",
          "the tensors of a step are small, and small ones are never returned to the system", ("--empty-cache", "on"),
          ("--empty-cache", "off")),
    Trick("item", "no wait for the device per step", "item(), cpu() and numpy() are \"very slow\" [2, 3]",
          "on a CPU every operation has ended when its call returns, so nothing waits", ("--sync-each-step", "on"),
          ("--sync-each-step", "off")),
    Trick("val-batch", "larger evaluation batch", "a larger batch without gradients [1, 2]",
          "the network fills the cores with the small batch, too", ("--val-batch-size", "BATCH"), ("--val-batch-size", "256")),
    Trick("inference", "inference mode", "less memory, hence larger batches [1, 2]",
          "recording a small graph costs little beside the layers themselves; it saves memory", ("--inference-mode", "off"),
          ("--inference-mode", "on")),
    Trick("fused", "fused kernels and optimizer", "no figure; [2] says to use the libraries' own layers",
          "the tensors of this network fit in the cache, so a pass more over them is cheap", ("--fused", "off"), ("--fused", "on")),
    Trick("pinned", "pinned memory, asynchronous copies", "\"faster\" if there is memory [1, 2, 3]",
          "the copies of images this small take no time beside the steps",
          ("--pin-memory", "off"), ("--pin-memory", "on"), gpu=True),
    Trick("resident", "data and preprocessing on the device", "a GPU loader is fast [2]", "threads read and copy as fast as the network trains",
          (), ("--data-on-device",), gpu=True),
    Trick("graph", "captured step", "not in the articles", "the step's kernels take longer than their launches", ("--graph", "off"),
          ("--graph", "on"), gpu=True),
    Trick("bf16", "mixed precision", "1.5 to 2 times [1]; 3 to 8 times [3]; costs 2 points of accuracy [2]",
          "this CPU's bf16 products are no faster for layers this narrow, and conversions are extra", ("--precision", "f32"),
          ("--precision", "bf16"), optional=True),
    Trick("ddp", "DDP", "\"more scalable\" than DataParallel [1, 3]",
          "one rank already uses all cores; two must also sum gradients", (), ("--devices", "2", "--strategy", "ddp"),
          optional=True),
    Trick("zero1", "ZeRO-1 instead of DDP", "no gain seen in time or memory [1]",
          "the optimizer state of this network is a hundredth of its activations", (), ("--devices", "2", "--strategy", "zero1"),
          optional=True, on="ddp"),
    Trick("batch", "larger batch, scaled rate", "twice the batch, twice the rate, half the time [2]",
          "a small batch fills a CPU, so a larger one makes fewer steps and no faster epochs", ("--batch-size", "BATCH"),
          ("--batch-size", "LARGE", "--scale-lr", "linear:BATCH"), stage="target", optional=True),
    Trick("optimizer", "better optimizer", "AdamW needs fewer epochs than SGD [2]",
          "tuned SGD with momentum is as good on a network this small", (), (), stage="target", optional=True),
    Trick("early-stop", "early stopping", "after 10 evaluations without gain; saves tens of epochs [1]",
          "the run has no epochs to spare", (), ("--early-stop", "val_accuracy:PATIENCE"), stage="target"),
    Trick("device-tensors", "tensors made on the device", "faster than rand().cuda() [3]", "",
          apart="every tensor is made on its device here; there is no other way to measure"),
    Trick("vectorised", "vectorised instead of looped", "about 100 times [2]", "",
          apart="no layer here loops over elements; bench_vectorise times the loops"),
]


@dataclasses.dataclass(frozen=True)
class Data:
    program: str
    flags: tuple             # of every rung
    batch: int
    large: int               # the larger batch
    epochs: int              # of a whole run
    target: float            # accuracy on the held-out images
    patience: int
    lr: str
    optimizer: tuple         # flags of the better one
    seconds: float           # that a timed run measures, at least
    in_memory: bool = False
    side: int = 0            # to which images are scaled; 0: they all have one size
    share: float = 1.0       # of the training images, drawn anew for each epoch


DIGITS = Data("train_digits", ("--augment", "none"), 16, 64, 15, 0.99, 3, "0.01", ("--optimizer", "adamw", "--lr", "0.002"), 0.25, in_memory=True)
CIFAR10 = Data("train_cifar10", ("--model", "digits_cnn", "--label-smoothing", "0", "--augment", "none"), 32, 128, 6, 0.50, 2, "0.01",
               ("--optimizer", "adamw", "--lr", "0.002"), 0.7, in_memory=True, share=0.1)
FOLDER = Data("train_images", ("--model", "digits_cnn", "--label-smoothing", "0", "--augment", "none"), 32, 128, 15, 0.85, 3, "0.01", ("--optimizer", "adamw", "--lr", "0.002"), 1.0, side=32)
