#!/usr/bin/env python3
"""Trains the same network on the same data from the naive pipeline to the full one, a trick at a time, and measures each.

    examples/ladder/ladder.py --data digits
    examples/ladder/ladder.py --make-jpegs photos && examples/ladder/ladder.py --data imagefolder:photos
    examples/ladder/ladder.py --data cifar10 --leave-one-out

Every rung is a command of a train program with its flags, and is printed. Writes ladder.json, ladder.md and ladder.svg.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time

import picture
import report
from runs import Factor, Plan, RunFailed, Runner, Sizes, epochs_of, pairs, sizes_of, steps_of, whole_of
from tricks import CIFAR10, CORES, DIGITS, FOLDER, TRICKS

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = "naive PyTorch"
READING = ("workers", "persistent", "packed", "prepared")  # tricks for images that are files
RESIDENT = ("resident",)                                    # for images that are in memory
TRIALS = 3                                                  # pairs of runs that decide whether an optional trick is kept
LEAST_GAIN = 1.02                                           # that keeps it


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="KIND", help="digits, cifar10 (in --data-dir) or imagefolder:DIR")
    parser.add_argument("--make-jpegs", metavar="DIR", help="write a folder of JPEGs for training, and stop")
    parser.add_argument("--jpeg-side", type=int, default=1024, help="width and height of these JPEGs [%(default)s]")
    parser.add_argument("--jpeg-limit", type=int, default=0, help="most JPEGs in each of train/ and val/ [all: 1,437 and 360]")
    parser.add_argument("--leave-one-out", action="store_true", help="also measure the full rung without each of its tricks")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each rung, in turns [%(default)s]")
    parser.add_argument("--seeds", type=int, help="full runs per set of weights [3; cifar10: 1]")
    parser.add_argument("--seconds", type=float, help="length of a timed run; a longer epoch is projected [digits: 0.25; cifar10: 0.7; else 1]")
    parser.add_argument("--epochs", type=int, help="epochs of a full run [by data set]")
    parser.add_argument("--share", type=float, help="part of the training images that an epoch takes [cifar10: 0.1; else 1]")
    parser.add_argument("--target", type=float, help="target accuracy [by data set]")
    parser.add_argument("--model", help="model of the train program [digits_cnn]; the peer has digits_cnn only")
    parser.add_argument("--image-size", type=int, help="side of the images of an image folder [32]")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the results and packed files [runs/ladder/DATA]")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/cpu/bin", help="folder of the programs [build/cpu/bin]")
    parser.add_argument("--data-dir", type=pathlib.Path, default=os.environ.get("ATHANOR_DATA_DIR", ROOT / "data-cache"),
                        help="folder that holds cifar10/ [$ATHANOR_DATA_DIR, else data-cache]")
    parser.add_argument("--peer", type=pathlib.Path, help="python with torch, torchvision and Pillow; none: leave PyTorch out "
                        "[~/.cache/athanor/peers/bin/python, if it is there]")
    parser.add_argument("--publish", action="store_true", help="also write the result into bench/results and docs, for a commit")
    parser.add_argument("--draw", nargs=2, metavar=("JSON", "SVG"), help="only draw the chart of a result again")
    parser.add_argument("--show", metavar="JSON", help="only print the text of a result again")
    args = parser.parse_args()
    if args.repeats < 1 or (args.seeds or 1) < 1:
        parser.error("--repeats and --seeds must be at least 1")
    if args.share is not None and not 0 < args.share <= 1:
        parser.error(f"--share must be more than 0, and at most 1, but is {args.share}")
    return parser, args


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    known = ("avx2", "avx512f", "avx512_bf16", "amx_tile")
    flags = re.search(r"^flags\s*:(.*)$", text, re.M)
    return name[1] if name else platform.machine(), [flag for flag in known if flags and flag in flags[1].split()]


def stolen_and_all():
    ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text(encoding="utf-8").split("\n")[0].split()[1:9]]
    return ticks[7], sum(ticks)


@dataclasses.dataclass
class Rung:
    trick: object            # None: the naive rung
    on: frozenset            # keys of the tricks of this rung
    parent: frozenset | None # what it is compared with
    kept: bool = True


class Ladder:
    def __init__(self, args, data, path, out, log):
        self.args, self.data, self.path, self.out = args, data, path, out
        self.side = args.image_size or data.side
        self.runner = Runner(log)
        self.program = self.relative(args.bin / data.program)
        self.help = self.runner.process([self.program, "--help"])[1].replace(",", " ")
        self.seconds = args.seconds or data.seconds
        self.epochs, self.target = args.epochs or data.epochs, args.target or data.target
        self.share = args.share or data.share
        self.seeds = args.seeds or (1 if data is CIFAR10 else 3)
        self.packing, self.has_gpu, self.sizes = [], False, Sizes(0, 0)
        self.checked, self.runs, self.timed = {}, {}, {}
        self.peer = self.find_peer()

    @staticmethod
    def relative(path):
        """From here, if that is shorter: commands are there to be typed again."""
        near = os.path.relpath(path)
        return near if len(near) < len(str(path)) else str(path)

    # Flags ----------------------------------------------------------------------------------------------------------------

    def measurable(self, trick):
        if trick.apart or (trick.gpu and not self.has_gpu) or not self.knows(trick):
            return False
        return trick.key not in (READING if self.data.in_memory else RESIDENT)

    def knows(self, trick):
        """Whether the train program has the trick's flags."""
        return all(f"{word} " in self.help for word in trick.without + trick.with_ if word.startswith("--"))

    def flags_of(self, on):
        flags = {**pairs(self.data.flags), **self.data_flags(on), "--batch-size": self.data.batch, "--lr": self.data.lr,
                 "--schedule": "constant"}
        if self.args.model:
            flags["--model"] = self.args.model
        if self.side:
            flags["--image-size"] = self.side
        if self.share < 1:
            flags["--limit-train-batches"] = self.share
        for trick in TRICKS:
            if not self.measurable(trick):
                continue
            words = trick.with_ if trick.key in on else trick.without
            if trick.key == "optimizer" and trick.key in on:
                words = self.data.optimizer
            names = {"BATCH": self.data.batch, "LARGE": self.data.large, "PATIENCE": self.data.patience}
            words = [re.sub("|".join(names), lambda found: str(names[found[0]]), word) for word in words]
            flags |= pairs(words)
        return flags

    def data_flags(self, on):
        if self.data is DIGITS:
            return {}
        if self.data is CIFAR10:
            return {"--data-dir": self.relative(self.args.data_dir)}
        kind = "prepared" if "prepared" in on else "packed" if "packed" in on else ""
        if not (self.path / "train").is_dir():
            return {str(self.file_of(kind, "all") if kind else self.relative(self.path)): None}
        return {f"--{part}": self.file_of(kind, part) if kind else f"{self.relative(self.path)}/{part}" for part in ("train", "val")}

    def file_of(self, kind, part):
        return self.relative(self.out / f"{part}.{kind}.athp")

    def pack(self):
        """The forms of a folder's images that the tricks read, each made once."""
        if self.data is not FOLDER:
            return
        parts = ("train", "val") if (self.path / "train").is_dir() else ("all",)
        side = (self.side * 8 + 3) // 7  # what train_images scales the shorter side to, before it cuts out the middle
        for kind, flags in (("packed", []), ("prepared", ["--raw", f"{side}x{side}"])):
            for part in parts:
                source = self.relative(self.path) + ("" if part == "all" else f"/{part}")
                command = [self.relative(self.args.bin / "athanor"), "pack", source, self.file_of(kind, part), *flags]
                seconds, _, _ = self.runner.process(command)
                print(f"  {seconds:6.1f} s  {' '.join(command)}", flush=True)
                self.packing.append({"command": " ".join(command), "seconds": seconds})

    # Runs -----------------------------------------------------------------------------------------------------------------

    def batches(self, on):
        flags = self.flags_of(on)
        batch = int(flags["--batch-size"])
        return batch, int(flags.get("--val-batch-size", max(batch, 256)))

    def plan(self, on):
        return Plan(self.sizes, *self.batches(on), self.check(on)[1], self.seconds)

    def look(self):
        """The size of the data, and whether there is a GPU."""
        flags = self.flags_of(frozenset()) | {"--epochs": 1, "--limit-train-batches": 1, "--limit-val-batches": 1}
        _, text, _ = self.runner.train(self.program, flags, quiet=False)
        sizes = sizes_of(text)
        self.all_images, self.has_gpu = sizes.train, "device cuda" in text
        self.sizes = dataclasses.replace(sizes, train=round(sizes.train * self.share))

    def check(self, on):
        """The hash of the weights after the same few steps, and a first idea of the seconds of an epoch."""
        if on not in self.checked:
            plan = Plan(self.sizes, *self.batches(on), 1.0, 1e-9)
            plan.train_steps, plan.val_steps = min(6, plan.steps), min(2, plan.val_batches)
            events, _, memory = self.runner.train(self.program, self.flags_of(on) | plan.flags())
            timed = plan.timed(epochs_of(events), memory)
            self.checked[on] = events[-1]["weights_hash"], timed.epoch_s
        return self.checked[on]

    def time(self, on):
        """One timed run."""
        plan = self.plan(on)
        events, _, memory = self.runner.train(self.program, self.flags_of(on) | plan.flags())
        return plan.timed(epochs_of(events), memory)

    def gain(self, slow, fast):
        """Of an optional trick, from a few pairs of runs."""
        both = [(self.time(slow).epoch_s, self.time(fast).epoch_s) for _ in range(min(TRIALS, self.args.repeats))]
        return Factor.of(*zip(*both))

    def whole(self, on):
        """Runs to the end: what the weights of this rung need. Made with the fastest rung that trains the same weights."""
        key = self.check(on)[0], "early-stop" in on
        if key not in self.runs:
            # A resize in two steps rounds otherwise than one: "prepared" keeps the bits of square images alone.
            tried = (on | self.fast, (on | self.fast) - {"prepared"})
            chosen = next((one for one in tried if self.check(one)[0] == key[0]), on)
            flags = self.flags_of(chosen) | {"--epochs": self.epochs}
            self.runs[key] = [whole_of(self.runner.train(self.program, flags | {"--seed": seed})[0], self.target)
                              for seed in range(self.seeds)]
        return self.runs[key]

    def to_target(self, on):
        """Epochs to the target, by seed; None if a run did not reach it."""
        reached = [run.reached for run in self.whole(on)]
        return None if None in reached else reached

    def vectorised(self):
        """How many times the CPU time of a vectorised loop a loop over elements takes, by the benchmark; None without it."""
        program = self.args.bin / "bench_vectorise"
        if not program.exists():
            return None
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.json"
            self.runner.process([self.relative(program), "--benchmark_filter=1048576", "--benchmark_min_time=0.05",
                                 f"--benchmark_out={out}", "--benchmark_out_format=json"])
            rows = json.loads(out.read_text(encoding="utf-8"))["benchmarks"]
        seconds = {row["name"].rpartition("/")[2]: row["cpu_time"] for row in rows}
        return seconds["item"] / seconds["pointer"]

    # The peer -------------------------------------------------------------------------------------------------------------

    def find_peer(self):
        python = self.args.peer or pathlib.Path("~/.cache/athanor/peers/bin/python").expanduser()
        if str(python) == "none" or self.args.model or (self.data is FOLDER and not (self.path / "train").is_dir()):
            return None
        ready = python.exists() and subprocess.run([python, "-c", "import torch, torchvision, PIL"], stderr=subprocess.DEVNULL,
                                                   check=False).returncode == 0
        if not ready and self.args.peer:
            raise RunFailed(f"--peer: {python} must be a python with torch, torchvision and Pillow")
        return python if ready else None

    def peer_command(self):
        kind, path = {id(DIGITS): ("digits", ROOT / "data/digits/digits.csv.gz"),
                      id(CIFAR10): ("cifar10", self.args.data_dir / "cifar10")}.get(id(self.data), ("imagefolder", self.path))
        return [str(self.peer), self.relative(ROOT / "bench/peers/pytorch/naive.py"), kind, self.relative(path), "--batch-size",
                str(self.data.batch), "--lr", self.data.lr, *(["--image-size", str(self.side)] if self.side else []),
                *(["--limit-train-batches", str(steps_of(self.sizes.train, self.data.batch))] if self.share < 1 else [])]

    def time_peer(self, plan=None):
        """The same steps in PyTorch, with as many threads as ours."""
        pilot = plan is None
        if pilot:
            plan = Plan(self.sizes, self.data.batch, self.data.batch, 1.0, 1e-9)
            plan.train_steps, plan.val_steps = min(6, plan.steps), min(2, plan.val_batches)
        threads = 1 if self.data is DIGITS else CORES
        runner = Runner(self.runner.log, {"OMP_NUM_THREADS": str(threads)})
        flags = [word for pair in plan.flags().items() for word in map(str, pair)]
        _, text, memory = runner.process([*self.peer_command(), *flags])
        events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        timed = plan.timed(epochs_of(events), memory)
        return Plan(self.sizes, self.data.batch, self.data.batch, timed.epoch_s, self.seconds) if pilot else timed

    # The ladder -----------------------------------------------------------------------------------------------------------

    def climb(self):
        """The rungs: which tricks are kept is decided here."""
        rungs, at = [Rung(None, frozenset(), None)], frozenset()
        self.fast = {trick.key for trick in TRICKS if trick.stage == "epoch" and self.measurable(trick) and not trick.optional}
        for trick in TRICKS:
            if not self.measurable(trick):
                continue
            parent = at | {trick.on} if trick.on else at
            on = (parent - {trick.on}) | {trick.key}
            keeps = not trick.optional or self.keeps(trick, parent, on)
            rungs.append(Rung(trick, on, parent, keeps))
            at = on if keeps else at
            print(f"  {'kept' if keeps else 'left out':<8}  {trick.title}", flush=True)
        return rungs, at

    def keeps(self, trick, parent, on):
        if trick.stage == "epoch":
            return self.gain(parent, on).mean > LEAST_GAIN
        before, after = self.to_target(parent), self.to_target(on)
        if not before or not after:
            return bool(after)
        return self.gain(parent, on).mean * sum(before) / sum(after) > LEAST_GAIN

    def rounds(self, rungs, extra):
        """Times all rungs in turns, so that a busy or slow moment meets all of them."""
        turns = list(dict.fromkeys([rung.on for rung in rungs if not rung.trick or rung.trick.key != "early-stop"] + extra))
        plan = self.time_peer() if self.peer else None
        for turn in turns:
            self.check(turn)
        self.timed = {turn: [] for turn in turns} | ({PEER: []} if self.peer else {})
        for repeat in range(self.args.repeats):
            begin = time.monotonic()
            if self.peer:
                self.timed[PEER].append(self.time_peer(plan))
            for turn in turns:
                self.timed[turn].append(self.time(turn))
            print(f"  round {repeat + 1} of {self.args.repeats}: {len(self.timed)} runs, {time.monotonic() - begin:.0f} s", flush=True)
        self.peer_plan = plan

    def seconds_of(self, on):
        """By repeat. Early stopping changes no epoch."""
        return [run.epoch_s for run in self.timed[on if on in self.timed else on - {"early-stop"}]]

    def memory_of(self, on):
        return max(run.memory for run in self.timed[on if on in self.timed else on - {"early-stop"}])

    def epoch_factor(self, slow, fast):
        return Factor.of(self.seconds_of(slow), self.seconds_of(fast))

    def target_factor(self, slow, fast):
        """In time to the target; of early stopping, in the time of the whole run."""
        stops = "early-stop" in fast and "early-stop" not in slow
        counts = [[run.epochs for run in self.whole(on)] if stops else self.to_target(on) for on in (slow, fast)]
        if None in counts:
            return None
        return self.epoch_factor(slow, fast).times(Factor.of(*counts))


def measure(ladder):
    args = ladder.args
    load, stolen = os.getloadavg()[0], stolen_and_all()
    began = time.monotonic()
    print("Looks at the data, and packs it" if ladder.data is FOLDER else "Looks at the data", flush=True)
    ladder.pack()
    ladder.look()
    print(f"  {ladder.sizes.train:,} images to train on, {ladder.sizes.val:,} to test", flush=True)
    print("Chooses the tricks, and runs each set of weights to its end", flush=True)
    rungs, full = ladder.climb()
    naive = frozenset()
    alone = {rung.trick.key: frozenset({rung.trick.key}) for rung in rungs[1:]}
    last = report.epoch_part(full)
    left_out = {key: last - {key} for key in sorted(last) if args.leave_one_out}
    without = {key: on for key, on in left_out.items() if ladder.flags_of(on) != ladder.flags_of(last)}  # prepared images are packed
    for on in [rung.on for rung in rungs] + list(alone.values()):
        ladder.whole(on)
    print("Times all rungs in turns", flush=True)
    ladder.looped = ladder.vectorised()
    ladder.rounds(rungs, [on for key, on in alone.items() if key != "early-stop"] + list(without.values()))
    now = stolen_and_all()
    name, isa = processor()
    return report.collect(ladder, rungs, full, naive, alone, without) | {
        "data": args.data, "command": " ".join(["examples/ladder/ladder.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(), "minutes": (time.monotonic() - began) / 60,
        "machine": {"processor": name, "isa": isa, "cores": CORES, "gpu": ladder.has_gpu, "load_before": load,
                    "load_after": os.getloadavg()[0], "stolen": (now[0] - stolen[0]) / max(now[1] - stolen[1], 1)}}


def write(path, text):
    """Complete or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def portable(result):
    """Its commands as anybody would type them in the root of a checkout."""
    text = json.dumps(result).replace(f"{ROOT}/", "").replace(f"{pathlib.Path.home()}/", "~/")
    return json.loads(text)


def publish(result):
    """The committed result, its picture, and the tables that the chapter quotes."""
    result = portable(result)
    text, page = report.text(result), ROOT / "docs/the_ladder.md"
    begin, end = "<!-- ladder -->\n", "<!-- end of ladder -->"
    words = page.read_text(encoding="utf-8")
    head, tail = words[:words.index(begin) + len(begin)], words[words.index(end):]
    write(ROOT / "bench/results/ladder.json", json.dumps(result, indent=1) + "\n")
    write(ROOT / "bench/results/ladder.md", text)
    write(ROOT / "docs/img/ladder.svg", picture.draw(result))
    write(page, head + report.quoted(result) + tail)


def climb(parser, args):
    kind, _, path = args.data.partition(":")
    data = {"digits": DIGITS, "cifar10": CIFAR10, "imagefolder": FOLDER}.get(kind)
    if data is None or (kind == "imagefolder") != bool(path):
        parser.error(f"--data: must be digits, cifar10 or imagefolder:DIR, but is {args.data}")
    if args.image_size and not path:
        parser.error("--image-size: is for imagefolder:DIR; the others have images of one size")
    if path and not pathlib.Path(path).is_dir():
        parser.error(f"--data: {path} must be a folder; --make-jpegs {path} makes one")
    for name in (data.program, *(["athanor"] if path else [])):
        if not (args.bin / name).exists():
            parser.error(f"{args.bin / name} must be built: scripts/ladder.sh builds it, or name its folder with --bin")
    out = args.out or pathlib.Path("runs/ladder") / kind
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.athp"):
        old.unlink()  # of other images, maybe
    with open(out / "ladder.log", "w", encoding="utf-8") as log:
        result = measure(Ladder(args, data, pathlib.Path(path), out, log))
    for name, text in (("ladder.json", json.dumps(result, indent=1) + "\n"), ("ladder.md", report.text(result)),
                       ("ladder.svg", picture.draw(result))):
        write(out / name, text)
    if args.publish:
        publish(result)
    print(f"\n{report.text(result)}\n{out}/ladder.json, ladder.md, ladder.svg; every run's output is in ladder.log")


def main():
    parser, args = arguments()
    if args.draw or args.show:
        result = json.loads(pathlib.Path(args.show or args.draw[0]).read_text(encoding="utf-8"))
        if args.draw:
            write(pathlib.Path(args.draw[1]), picture.draw(result))
        if args.show:
            print(report.text(result), end="")
    elif args.make_jpegs:
        program = args.bin / "ladder_jpegs"
        if not program.exists():
            parser.error(f"{program} must be built: scripts/ladder.sh builds it, or name its folder with --bin")
        sys.exit(subprocess.run([program, args.make_jpegs, "--side", str(args.jpeg_side), "--limit", str(args.jpeg_limit)],
                                check=False).returncode)
    elif args.data:
        climb(parser, args)
    else:
        parser.error("--data or --make-jpegs must be given")


if __name__ == "__main__":
    try:
        main()
    except (RunFailed, OSError) as error:
        sys.exit(f"ladder: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
