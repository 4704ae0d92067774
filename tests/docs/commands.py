#!/usr/bin/env python3
"""commands.py SOURCE BUILD [--slow | --list]: every command of README, HACKING and docs/ is run here or by a test that
commands.txt names, or commands.txt says why it cannot be. Each page has a folder of its own, with small made-up data; its
commands run in their order. --list prints what becomes of each."""
import argparse
import fnmatch
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import os

import pages

HERE = pathlib.Path(__file__).resolve().parent
TRAIN = ("train_", "denoise", "distill", "segment")  # programs that `run ARGUMENTS` shortens
SECONDS = 900


class Rule:
    def __init__(self, line):
        how, self.page, self.command = (part.strip() for part in line.split("|", 2))
        self.kind, _, self.rest = how.partition(" ")
        self.used = False
        if self.kind not in ("run", "slow", "test", "not") or (self.kind in ("test", "not") and not self.rest):
            sys.exit(f"commands.txt: must begin with run, slow, test NAME or not REASON: {line}")

    def matches(self, page, command):
        return fnmatch.fnmatchcase(page, self.page) and fnmatch.fnmatchcase(command, self.command)


def read_rules():
    lines = (HERE / "commands.txt").read_text(encoding="utf-8").split("\n")
    return [Rule(line) for line in lines if line.strip() and not line.startswith("#")]


def rule_of(rules, page, command):
    rule = next((rule for rule in rules if rule.matches(page, command)), None)
    if rule:
        rule.used = True
    return rule


def tests_of(build):
    """The names of all tests of this build, and of those that it would have in the lane `every`."""
    said = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True).stdout
    weekly = (build / "weekly_tests.txt").read_text(encoding="utf-8").split()
    return {*re.findall(r"^ *Test +#\d+: (\S+)", said, re.M), *weekly}


def declared(name, source):
    """Whether a file of CMake declares a test that this preset has not."""
    folder, _, last = name.partition(".")
    everywhere = rf"^ *athanor_run_test\({re.escape(name)} "
    return any(re.search(everywhere, text, re.M) or file.parent.name == folder and re.search(rf"^athanor_\w+\({last} ", text, re.M)
               for file in source.glob("tests/**/CMakeLists.txt") for text in [file.read_text(encoding="utf-8")])


# Data of each kind that the pages name, as small as they may be ----------------------------------------------------

def write_photos(folder, count=10):
    sys.path.insert(0, str(HERE.parent / "programs"))
    from serve_client import png_bytes  # the name may end in .jpg: readers look at the first bytes
    for name, first in (("cat", 40), ("dog", 170)):
        (folder / name).mkdir(parents=True)
        for i in range(1, count + 1):
            rows = b"".join(b"\0" + bytes((first + i + 3 * x * (y % 3)) % 256 for x in range(24)) for y in range(20))
            (folder / name / f"IMG_{i:04}.jpg").write_bytes(png_bytes(24, 20, rows))


def write_data(folder):
    """CIFAR-10 and MNIST in their official formats: mostly zeros, in files with holes."""
    (folder / "cifar10").mkdir(parents=True)
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        with open(folder / "cifar10" / name, "wb") as file:
            for label in range(10):
                file.write(bytes([label]) + bytes((label * 20 + i * 7) % 256 for i in range(3072)))
            file.truncate(10_000 * 3073)
    (folder / "mnist").mkdir()
    for name, count in (("train", 2000), ("t10k", 300)):
        images = b"".join(bytes((i * 20 + at * 7) % 256 for at in range(784)) for i in range(count))
        (folder / "mnist" / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, count, 28, 28) + images)
        (folder / "mnist" / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, count) + bytes(i % 10 for i in range(count)))


class Folder:
    """Where the commands of a page run: as in the project's folder, with build/cpu/bin, data and photos."""

    def __init__(self, path, source, programs, data):
        self.path = path
        (path / "build/cpu/bin").mkdir(parents=True)
        for program in programs.iterdir():
            if not (program.is_file() or program.is_symlink()) or not os.access(program, os.X_OK):
                continue
            stand_in = path / "build/cpu/bin" / program.name
            if program.name.startswith(TRAIN):
                stand_in.write_text(f'#!/bin/sh\nexec "{program}" "$@" $SHORTER\n', encoding="utf-8")
                stand_in.chmod(0o755)
            else:
                stand_in.symlink_to(program)
        for name in ("scripts", "recipes", "docs", "bench"):
            (path / name).symlink_to(source / name)
        write_photos(path / "photos")
        write_photos(path / "more_photos")
        (path / "photo.jpg").write_bytes((path / "photos/cat/IMG_0001.jpg").read_bytes())
        (path / "data-cache").symlink_to(data)
        settings = dict(line.split("=", 1) for line in (source / "scripts/open_mpi.env").read_text().split("\n") if line[:1].isupper())
        unset = ("ATHANOR_RUNS_DIR", "ATHANOR_DATA_DIR", "OMP_NUM_THREADS", "XDG_CACHE_HOME")
        self.environment = {**{name: value for name, value in os.environ.items() if name not in unset}, **settings,
                            "HOME": str(path), "OMP_WAIT_POLICY": "passive",
                            "PATH": f"{path}/build/cpu/bin:{os.environ['PATH']}"}

    def needs(self, text):
        """What the commands of a page read that none of them writes."""
        if "photos/train" in text:
            for part in ("train", "val"):
                write_photos(self.path / "photos" / part)
            for name in ("cat", "dog"):
                subprocess.run(["rm", "-r", self.path / "photos" / name], check=True)
        if re.search(r"runs/train_cifar10/(?:latest|3)", text) and "bin/train_cifar10 --epochs" not in text:
            for _ in range(3):
                self.run("build/cpu/bin/train_cifar10 --model lenet5 --max-steps 1 --limit-val-batches 1", "")
        if "resnet18.pth" in text or "mobilenet_v2.safetensors" in text:
            write_pretrained(self)

    def run(self, command, shorter):
        try:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=self.path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                                  timeout=SECONDS, env={**self.environment, "SHORTER": shorter})
        except subprocess.TimeoutExpired:
            return 124, f"it takes more than {SECONDS} s"
        return done.returncode, done.stdout + done.stderr


def write_pretrained(folder):
    """Weights in torchvision's names, of networks that one step has trained."""
    for model in ("resnet18", "mobilenet_v2"):
        code, said = folder.run(f"build/cpu/bin/train_images --data synthetic:16 --image-size 32 --model {model} --max-steps 1 --limit-val-batches 1"
                                f" --run-dir runs/{model} && build/cpu/bin/athanor convert runs/{model} {model}.safetensors --layout torch", "")
        if code:
            sys.exit(f"{model}: {said}")
    (folder.path / "resnet18.pth").write_bytes((folder.path / "resnet18.safetensors").read_bytes())
    cache = folder.path / ".cache/athanor/weights"  # where scripts/get_weights.sh puts them
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "mobilenet_v2-7ebf99e0.pth").write_bytes((folder.path / "mobilenet_v2.safetensors").read_bytes())


# Quoted output -------------------------------------------------------------------------------------------------------

def masked(text):
    """Words of a text; numbers, and what depends on the machine, are N."""
    text = re.sub(r"\b[0-9a-f]{16}\b", "N", text)
    return re.sub(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", "N", text).replace("*", " ").split()


def outputs(text):
    """(command, quoted output) of each block below `<!-- output of: COMMAND -->`."""
    for found in re.finditer(r"<!-- output of: ((?:[^>\n]|\n(?!\n)|(?<!--)>)*?) -->\n((?:(?:    [^\n]*)?\n)+)", text):
        yield " ".join(found[1].split()), found[2]


def quoted_wrongly(quoted, said):
    """The first part of a quotation (parts are parted by lines of `...`) that the output does not hold in its order, or None."""
    words, at = masked(said), 0
    for part in re.split(r"^ *\.\.\.$", quoted, flags=re.M):
        wanted = masked(part)
        while words[at:at + len(wanted)] != wanted:
            at += 1
            if at > len(words) - len(wanted):
                return part.strip()
        at += len(wanted)
    return None


def check_page(folder, source, page, rules, kinds):
    """What is wrong with the commands and quotations of a page."""
    text = (source / page).read_text(encoding="utf-8")
    found = [(number, command, rule_of(rules, page, command)) for number, command in pages.commands(text)]
    mine = [(number, command, rule) for number, command, rule in found if rule and rule.kind in kinds]
    quotations = list(outputs(text)) if "run" in kinds else []
    if not mine and not quotations:
        return
    place = folder()
    place.needs(text)
    for number, command, rule in mine:
        code, said = place.run(command, rule.rest)
        if code:
            yield f"{page}:{number}: `{command}` ended with {code}:\n{said[-2000:]}"
    for command, quoted in quotations:
        code, said = place.run(command, "")
        wrong = quoted_wrongly(quoted, said)
        if code or wrong:
            yield f"{page}: `{command}` (code {code}) no longer prints:\n{wrong}\nbut ends with:\n{said[-1500:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--slow", action="store_true", help="run the commands marked slow, instead of those marked run")
    parser.add_argument("--list", action="store_true", help="print what becomes of each command")
    parser.add_argument("--page", default="*", help="only these")
    args = parser.parse_args()
    args.source, args.build = args.source.resolve(), args.build.resolve()
    rules, wrong = read_rules(), []
    names = [page for page in pages.pages(args.source) if fnmatch.fnmatchcase(page, args.page)]
    for page in names:
        for number, command in pages.commands((args.source / page).read_text(encoding="utf-8")):
            rule = rule_of(rules, page, command)
            if not rule:
                wrong.append(f"{page}:{number}: no line of tests/docs/commands.txt says how it is tested: {command}")
            elif args.list:
                print(f"{page}:{number}: {rule.kind} {rule.rest}: {command}")
    if args.page == "*":
        wrong += [f"commands.txt: no command matches: {rule.page} | {rule.command}" for rule in rules if not rule.used]
        tests = sorted({rule.rest for rule in rules if rule.kind == "test"})
        known = tests_of(args.build)
        wrong += [f"commands.txt: there is no test {name}" for name in tests if name not in known and not declared(name, args.source)]
    if not args.list:
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            write_data(scratch / "data")
            for page in names:
                def folder(page=page):
                    return Folder(scratch / page.replace("/", "_"), args.source, args.build / "bin", scratch / "data")
                for line in check_page(folder, args.source, page, rules, ("slow",) if args.slow else ("run",)):
                    wrong.append(line)
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
