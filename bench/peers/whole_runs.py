#!/usr/bin/env python3
"""Times whole training runs, from the start of the process to its end, in Athanor and in two PyTorch scripts, in turns.

The scripts are pytorch/lightning_run.py, as people write it, and pytorch/tuned_run.py, by hand. A ratio is the median over all
pairs, ours and then theirs, with the interval that holds it with a probability of 95 % at least. Above 1, the other takes longer.

speedrun-run is the recipe of examples/speedrun_cifar10.cpp beside pytorch/speedrun.py. It takes minutes, so both sides train three
epochs of a fifth of the images, and the time of a whole run is projected from the ends of these epochs.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from compare import MOST_STOLEN, interval, processor, stolen_and_all

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = "{:<12} {:<24} {:>9} {:>9} {:>6}  {:<14} {:>8} {:>8} {:>8} {:>8}"
LEAST_ACCURACY = {"mnist-run": 0.97, "cifar10-run": 0.3, "speedrun-run": 0.3}  # of every side: else it has not trained
EPOCHS = {"mnist-run": 3, "cifar10-run": 1, "jpegs-run": 1, "first-step": 0, "speedrun-run": 3}
SPEEDRUN_EPOCHS, SPEEDRUN_SHARE = 8, 5  # of the recipe; one image in five
SPEEDRUN_BATCHES, SPEEDRUN_TEST_BATCHES = 25 // SPEEDRUN_SHARE, 10 // SPEEDRUN_SHARE  # of 2,000 and 1,000 images


def link_photos(photos, folder):
    """A folder for each of ten classes, nine in ten photos to train on: what both sides know how to read."""
    for i, photo in enumerate(sorted(photos.glob("[!.]*"))):
        place = pathlib.Path(folder) / ("val" if i % 100 < 10 else "train") / str(i % 10)
        place.mkdir(parents=True, exist_ok=True)
        (place / photo.name).symlink_to(photo)


def ways(args, kind, folder, epochs):
    """Title and command of each side; with 0 epochs, one batch of training and one of validation."""
    data = folder if kind == "jpegs" else args.data
    ours = {"mnist": ["train_mnist", "--data-dir", args.data],
            "cifar10": ["train_cifar10", "--data-dir", args.data, "--model", "resnet20", "--augment", "crop:4,flip"],
            "jpegs": ["train_images", "--train", f"{folder}/train", "--val", f"{folder}/val", "--model", "resnet20", "--image-size",
                      "64", "--batch-size", "64", "--lr", "0.2", "--augment", "resized-crop,flip"],
            "speedrun": ["speedrun_cifar10", "--data-dir", args.data, "--precision", args.precision, "--limit-train-batches",
                         str(SPEEDRUN_BATCHES), "--limit-val-batches", str(SPEEDRUN_TEST_BATCHES)]}[kind]
    ours += ["--epochs", str(epochs), "--run-dir", f"{folder}/run"] if epochs else ["--fast-dev-run"]
    athanor = [f"{args.bin}/{ours[0]}", *ours[1:]]
    yield "athanor", athanor
    yield "athanor again (A/A)", athanor
    if kind == "speedrun":
        counts = [epochs, SPEEDRUN_BATCHES, SPEEDRUN_TEST_BATCHES * 1000] if epochs else [1, 1, 1000]
        for way in ("eager", "compile"):
            yield f"pytorch {way}", [args.python, f"{HERE}/pytorch/speedrun.py", data, args.precision, way, *map(str, counts)]
        return
    for script in ("lightning_run", "tuned_run"):
        yield script.replace("_run", ""), [args.python, f"{HERE}/pytorch/{script}.py", kind, data, str(epochs)]


def whole_speedrun(ends):
    """Seconds of a speedrun with all images, from the ends of three epochs with some; six views are tested in the last."""
    first, second, third = ends
    epoch = second - first
    start, views = first - epoch, third - second - epoch
    return start + (SPEEDRUN_EPOCHS * epoch + views) * SPEEDRUN_SHARE


def run(command, folder, threads, log, projected=False):
    """Seconds, peak bytes of resident memory, and the accuracy on the held-out images. Throws where the run fails. The seconds
    may be `projected`, of a speedrun."""
    subprocess.run(["rm", "-rf", f"{folder}/run"], check=True)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(HERE)}
    text, ends, begin = "", [], time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True) as process:
        for line in process.stdout:
            text += line
            if re.match(r"(epoch | {2,})\d+ ", line):
                ends.append(time.perf_counter() - begin)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with code {process.returncode}: {text[-300:]}")
    if projected:
        seconds = whole_speedrun(ends)
    found = re.findall(r"(?:accuracy|val acc\S*)[ :]+([0-9.]+)( ?%)?", text)
    accuracy = float(found[-1][0]) / (100 if found[-1][1] else 1) if found else float("nan")
    return seconds, usage.ru_maxrss * 1024, accuracy


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("workload", choices=list(EPOCHS))
    parser.add_argument("--bin", required=True, help="the folder of our programs")
    parser.add_argument("--data", required=True, help="the folder with mnist/, cifar10/ and imagenet-sample/")
    parser.add_argument("--python", required=True, help="of the environment with PyTorch and Lightning")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="of speedrun-run alone")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=10, help="pairs of each way")
    parser.add_argument("--only", default="", help="beside ours, only those whose name contains this")
    parser.add_argument("--json", help="also write the results to this file")
    args = parser.parse_args()
    kind = "mnist" if args.workload == "first-step" else args.workload.removesuffix("-run")

    rows, wrong = [], False
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w", encoding="utf-8") as log:
        if kind == "jpegs":
            link_photos(pathlib.Path(args.data) / "imagenet-sample", folder)
            for photo in pathlib.Path(folder).rglob("*.*"):
                photo.read_bytes()
        (_, ours), *others = ((title, command) for title, command in ways(args, kind, folder, EPOCHS[args.workload])
                              if args.only in title or title == "athanor")
        for _, command in ways(args, kind, folder, 0):  # programs and data are in memory from here on
            run(command, folder, args.threads, log)
        name, isa = processor()
        print(f"{args.workload}: {args.rounds} pairs each, {args.threads} threads; load of the machine {os.getloadavg()[0]:.1f}")
        print(COLUMNS.format("workload", "beside ours", "ours s", "its s", "ratio", "95 %", "ours acc", "its acc", "ours MiB", "its MiB"))
        for title, command in others:
            before, pairs = stolen_and_all(), []
            for _ in range(args.rounds):
                pairs.append([run(side, folder, args.threads, log, kind == "speedrun") for side in (ours, command)])
            stolen, everything = (after - earlier for after, earlier in zip(stolen_and_all(), before))
            ratios = [theirs[0] / mine[0] for mine, theirs in pairs]
            mine, theirs = ([statistics.median(turn[i] for turn in side) for i in range(3)] for side in zip(*pairs))
            row = {"workload": args.workload, "precision": args.precision, "threads": args.threads, "peer": title, "ours_s": mine[0], "peer_s": theirs[0],
                   "ratio": statistics.median(ratios), "spread": interval(ratios), "pairs": len(pairs), "ours_accuracy": mine[2],
                   "peer_accuracy": theirs[2], "ours_peak_bytes": mine[1], "peer_peak_bytes": theirs[1],
                   "stolen": stolen / max(everything, 1), "processor": name, "isa": isa, "cores": os.cpu_count()}
            rows.append(row)
            least = LEAST_ACCURACY.get(args.workload, 0)
            bad = min(mine[2], theirs[2]) < least
            wrong = wrong or bad
            print(COLUMNS.format(args.workload, title, f"{mine[0]:.2f}", f"{theirs[0]:.2f}", f"{row['ratio']:.2f}",
                                 "{:.2f} .. {:.2f}".format(*row["spread"]), f"{mine[2]:.2%}", f"{theirs[2]:.2%}",
                                 f"{mine[1] / 2**20:,.0f}", f"{theirs[1] / 2**20:,.0f}") +
                  ("   NOT TRAINED" if bad else "") +
                  (f"   VOID: other machines took {row['stolen']:.0%}" if row["stolen"] > MOST_STOLEN else ""), flush=True)
    if args.json:
        summary = {"workload": args.workload, **{row["peer"]: row["ratio"] for row in rows}}
        pathlib.Path(args.json).write_text(json.dumps({**summary, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"peers: {error}")
