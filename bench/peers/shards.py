#!/usr/bin/env python3
"""Images per second from the shards of one set, by Athanor, webdataset and LitData in turns, in one run.

    cmake --build --preset cpu --target peer_shards
    ~/.cache/athanor/peers/bin/pip install webdataset litdata
    ~/.cache/athanor/peers/bin/python bench/peers/shards.py --photos data-cache/imagenet-sample --folder /tmp/shards

Makes the set once, in --folder: 64 tar archives of 1.5 GB in all, made of the photos over and over, and the same samples
as LitData's chunks. Each reader is a process of its own, which opens the set and reads --images of them, a random part of
each at 224 x 224, in batches of 64, by --workers threads or processes: webdataset shuffles the shards and 1,000 samples,
LitData all samples of the chunks at hand, Athanor pages and windows. Python's programs decode by Pillow, as webdataset's
examples do. `cold`: the files were just dropped from the page cache, `warm`: they were just read through; `first` is cold,
and Athanor has no index of them yet. The time of a process begins when its modules are loaded, and includes opening the set.
Peers that are not installed are left out.
"""

import argparse
import glob
import importlib.util
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

BATCH, SIDE, SHUFFLED = 64, 224, 1000


def sample(photos, k):
    return photos[k % len(photos)], k % 10


def read_photos(folder):
    paths = sorted(path for path in glob.glob(os.path.join(folder, "**/*"), recursive=True)
                   if path.lower().endswith((".jpg", ".jpeg")))
    if not paths:
        sys.exit(f"shards: {folder} must hold .jpg or .jpeg files; name a folder of photos with --photos")
    photos = []
    for path in paths:
        with open(path, "rb") as file:
            photos.append(file.read())
    return photos


def write_tars(folder, photos, shards, samples):
    os.makedirs(folder)
    for shard in range(shards):
        with tarfile.open(os.path.join(folder, f"train-{shard:03}.tar"), "w", format=tarfile.USTAR_FORMAT) as tar:
            for k in range(shard * samples // shards, (shard + 1) * samples // shards):
                image, label = sample(photos, k)
                for suffix, content in ("jpg", image), ("cls", str(label).encode()):
                    member = tarfile.TarInfo(f"{k:09}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


class LitDataSample:
    def __init__(self, photos):
        self.photos = photos

    def __call__(self, k):
        image, label = sample(self.photos, k)
        return {"image": image, "label": label}


def make(options):
    """The folders of the tars and, with LitData, of its chunks."""
    tars, chunks = os.path.join(options.folder, "tar"), os.path.join(options.folder, "litdata")
    photos = None
    if not os.path.exists(tars):
        photos = read_photos(options.photos)
        mean = sum(map(len, photos)) / len(photos)
        write_tars(tars + ".tmp", photos, options.shards, int(options.gigabytes * 1e9 / mean))
        os.rename(tars + ".tmp", tars)
    if importlib.util.find_spec("litdata") and not os.path.exists(chunks):
        # Its usual caches are /tmp/chunks and /tmp/data, which it empties.
        for name, inside in ("DATA_OPTIMIZER_CACHE_FOLDER", "chunks"), ("DATA_OPTIMIZER_DATA_CACHE_FOLDER", "data"):
            os.environ[name] = os.path.join(chunks + ".cache", inside)
        import litdata
        count = 0
        for path in glob.glob(os.path.join(tars, "*.tar")):
            with tarfile.open(path) as tar:
                count += len(tar.getnames()) // 2
        litdata.optimize(LitDataSample(photos or read_photos(options.photos)), list(range(count)), chunks + ".tmp",
                         chunk_bytes="64MB", num_workers=options.workers)
        os.rename(chunks + ".tmp", chunks)
    # Files that are still to be written to disk cannot be dropped from the page cache.
    os.sync()
    return tars, chunks


def drop(folder):
    for path in glob.glob(os.path.join(folder, "*")):
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def read_through(folder):
    for path in glob.glob(os.path.join(folder, "*")):
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass


def cropped():
    from PIL import Image
    from torchvision import transforms
    change = transforms.Compose([transforms.RandomResizedCrop(SIDE), transforms.PILToTensor()])
    return lambda content: change(Image.open(io.BytesIO(content)).convert("RGB"))


def webdataset_loader(folder, workers):
    import webdataset
    crop = cropped()
    data = webdataset.WebDataset(sorted(glob.glob(os.path.join(folder, "*.tar"))), shardshuffle=1000, seed=1)
    data = data.shuffle(SHUFFLED).to_tuple("jpg", "cls").map_tuple(crop, int)
    return webdataset.WebLoader(data, batch_size=BATCH, num_workers=workers)


def litdata_loader(folder, workers):
    import litdata
    crop = cropped()

    class Photos(litdata.StreamingDataset):
        def __getitem__(self, index):
            one = super().__getitem__(index)
            return crop(one["image"]), one["label"]

    return litdata.StreamingDataLoader(Photos(folder, shuffle=True), batch_size=BATCH, num_workers=workers)


def read_in_python(who, folder, images, workers):
    """What peer_shards does."""
    import torch  # loaded before the clock starts
    import torchvision  # noqa: F401
    importlib.import_module(who)
    torch.set_num_threads(1)
    start = time.perf_counter()
    loader = {"webdataset": webdataset_loader, "litdata": litdata_loader}[who](folder, workers)
    batches = iter(loader)
    seen = labels = 0
    while seen < images:
        pixels, classes = next(batches)
        seen += len(pixels)
        labels += int(classes.sum())
    print(json.dumps({"seconds": time.perf_counter() - start, "images": seen, "labels": labels}), flush=True)
    os._exit(0)  # the workers have no more to do


def run(command, environment):
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode != 0:
        sys.exit(f"shards: `{' '.join(command)}` ended with code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", default="data-cache/imagenet-sample")
    parser.add_argument("--folder", required=True, help="where the shards are, or will be made")
    parser.add_argument("--ours", default="build/cpu/bin/peer_shards")
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--gigabytes", type=float, default=1.5)
    parser.add_argument("--images", type=int, default=6400, help="that each process reads")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also writes the figures of each process there")
    parser.add_argument("--read", choices=("webdataset", "litdata"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        return read_in_python(options.read, options.folder, options.images, options.workers)
    tars, chunks = make(options)
    peers = [who for who in ("webdataset", "litdata") if importlib.util.find_spec(who)]
    found = []
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"XDG_CACHE_HOME": cache, "OMP_NUM_THREADS": "1"}
        for turn in range(options.rounds):
            for state in "cold", "warm":
                for who in ["athanor", *peers]:
                    folder = chunks if who == "litdata" else tars
                    (drop if state == "cold" else read_through)(folder)
                    numbers = [str(options.images), str(options.workers)]
                    command = ([options.ours, folder, *numbers] if who == "athanor" else
                               [sys.executable, __file__, "--read", who, "--folder", folder, "--images", numbers[0],
                                "--workers", numbers[1]])
                    figures = run(command, environment)
                    first = who == "athanor" and state == "cold" and turn == 0
                    found.append({"who": who, "state": "first" if first else state, **figures})
    print(f"{options.images} images of {options.shards} shards, {options.workers} workers, {options.rounds} rounds\n")
    print("| who | page cache | images/s, median | lowest | highest | opening, ms |")
    print("|---|---|---|---|---|---|")
    for state in "first", "cold", "warm":
        for who in ["athanor", *peers]:
            rows = [one for one in found if (one["who"], one["state"]) == (who, state)]
            if not rows:
                continue
            rates = [one["images"] / one["seconds"] for one in rows]
            opened = [one["open_s"] * 1e3 for one in rows if "open_s" in one]
            print(f"| {who} | {state} | {statistics.median(rates):.0f} | {min(rates):.0f} | {max(rates):.0f} | "
                  f"{format(statistics.median(opened), '.1f') if opened else ''} |")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
