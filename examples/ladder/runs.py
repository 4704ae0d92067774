"""Runs of a train program or of the peer's script, each a process of its own, and the statistics over them."""

import dataclasses
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time


class RunFailed(Exception):
    pass


# Student's t, 97.5 %, by degrees of freedom.
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclasses.dataclass
class Factor:
    """A ratio: the mean of its logarithm over repeats, with its standard error (None from one repeat) and degrees of freedom."""

    log: float
    error: float | None
    freedom: float

    @classmethod
    def of(cls, slow, fast):
        """Of pairs, each of the same repeat."""
        logs = [math.log(a / b) for a, b in zip(slow, fast)]
        spread = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else None
        return cls(statistics.fmean(logs), spread, len(logs) - 1)

    @property
    def mean(self):
        return math.exp(self.log)

    @property
    def interval(self):
        """It holds the mean with a probability of 95 %, if logarithms are normal."""
        if self.error is None:
            return None
        half = T[min(int(self.freedom), len(T)) - 1] * self.error
        return [math.exp(self.log - half), math.exp(self.log + half)]

    def times(self, other):
        """The product with an independent one; its degrees of freedom are those of Welch and Satterthwaite."""
        if self.error is None or other.error is None:
            return Factor(self.log + other.log, None, 0)
        parts = [(one.error**2, one.freedom) for one in (self, other)]
        variance = sum(part for part, _ in parts)
        freedom = variance**2 / sum(part**2 / count for part, count in parts) if variance > 0 else min(count for _, count in parts)
        return Factor(self.log + other.log, math.sqrt(variance), freedom)

    def gains(self):
        """Whether it is above 1, as far as the repeats can tell."""
        return (self.interval[0] if self.interval else self.mean) > 1

    def json(self):
        return {"factor": self.mean, "interval": self.interval}


@dataclasses.dataclass
class Sizes:
    """Of the data: images, and batches that a part of an epoch may have."""

    train: int
    val: int


@dataclasses.dataclass
class Timed:
    epoch_s: float     # of a whole epoch with its validation; projected if the run had fewer steps
    memory: int        # bytes: the most that a process of the run held
    images_per_s: float


@dataclasses.dataclass
class Whole:
    """A run to its end: its validations, and what it stopped by."""

    accuracy: float    # of the weights that the run leaves
    epochs: int
    reached: int | None  # the epoch after which the target was reached
    seconds: float


def text_of(flags):
    """A dict of flags as arguments; a value of None is a flag without one, or an argument that belongs to none."""
    out = []
    for name, value in flags.items():
        out += [name] if value is None else [name, str(value)]
    return out


def pairs(words):
    """("--devices", "2", "--data-on-device") as a dict."""
    flags, words = {}, list(words)
    while words:
        name = words.pop(0)
        flags[name] = words.pop(0) if words and not words[0].startswith("--") else None
    return flags


class Runner:
    """Runs commands in turn, and shows which."""

    def __init__(self, log, environment=None):
        self.log = log
        self.environment = {**os.environ, **(environment or {})}

    def process(self, command):
        """Its seconds, output and peak bytes. Throws RunFailed with the last line that it printed."""
        with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
            begin = time.perf_counter()
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self.environment)
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                process.terminate()
                process.wait()
                raise
            seconds = time.perf_counter() - begin
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            text = out.read()
        self.log.write(f"$ {' '.join(command)}\n{text}\n")
        self.log.flush()
        if process.returncode != 0:
            last = [line for line in text.splitlines() if line.strip()][-1:] or ["no output"]
            name = pathlib.Path(command[0]).name
            raise RunFailed(f"{name} ended with code {process.returncode}: {last[0][:300]}; the command: {' '.join(map(str, command))}")
        return seconds, text, usage.ru_maxrss * 1024

    def train(self, program, flags, quiet=True):
        """The events of metrics.jsonl, the output, peak bytes."""
        with tempfile.TemporaryDirectory() as folder:
            metrics = pathlib.Path(folder) / "metrics.jsonl"
            extra = {"--run-dir": "none", "--metrics": metrics}
            if quiet:
                extra["--progress"] = "off"
            _, text, memory = self.process([str(program), *text_of({**flags, **extra})])
            events = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        return events, text, memory


def sizes_of(text):
    """The numbers of images, from what a train program prints when it begins."""
    found = re.search(r"([\d,]+) images? to train on, ([\d,]+) to test", text)
    if not found:
        raise RunFailed("the train program must say how many images it has, but printed: " + text[:300])
    return Sizes(*(int(number.replace(",", "")) for number in found.groups()))


def epochs_of(events):
    """Per epoch: seconds of training, of validation and of what is between epochs, and images that it was trained on per second.

    The first epoch lacks a beginning, since the clock of `wall_s` starts with the run; its files and memory are cold, too.
    """
    epochs = [event for event in events if event["event"] == "epoch"]
    return [(after["wall_s"] - before["wall_s"], after["images_per_s"]) for before, after in zip(epochs, epochs[1:])]


def steps_of(images, batch):
    """An epoch's steps: a smaller last batch is left out, unless there is no other."""
    return max(images // batch, 1)


class Plan:
    """How much of an epoch a timed run makes: the same for all its repeats."""

    def __init__(self, sizes, batch, val_batch, epoch_s, seconds):
        self.steps, self.batch = steps_of(sizes.train, batch), batch
        self.val_batches = math.ceil(sizes.val / val_batch)
        share = min(1.0, seconds / epoch_s)
        whole = share > 0.7  # of a little less, the steps left out would be guessed for nothing
        self.train_steps = self.steps if whole else max(2, round(self.steps * share))
        self.val_steps = self.val_batches if whole else max(1, round(self.val_batches * share))
        self.epochs = 1 + (max(1, min(20, math.ceil(seconds / epoch_s))) if whole else 1)
        self.projected = not whole

    def flags(self):
        flags = {"--epochs": self.epochs}
        if self.projected:
            flags |= {"--limit-train-batches": self.train_steps, "--limit-val-batches": self.val_steps}
        return flags

    def epoch_seconds(self, wall, images_per_s):
        """Of a whole epoch, from the seconds of the part."""
        if not self.projected:
            return wall
        training = self.train_steps * self.batch / images_per_s
        return training * self.steps / self.train_steps + max(wall - training, 0) * self.val_batches / self.val_steps

    def timed(self, parts, memory):
        epochs = [self.epoch_seconds(wall, rate) for wall, rate in parts]
        return Timed(statistics.median(epochs), memory, statistics.median(rate for _, rate in parts))


def whole_of(events, target):
    epochs = [event for event in events if event["event"] == "epoch"]
    end = events[-1]
    if end["event"] != "end":
        raise RunFailed(f"a run must end with its summary, but ended with {end}")
    reached = next((event["epoch"] for event in epochs if event["val_accuracy"] >= target), None)
    return Whole(end["test_accuracy"], end["epochs"], reached, end["wall_s"])
