#!/usr/bin/env python3
"""What a target costs to compile: user seconds of each of its translation units, slowest first.

    scripts/build_times.py [--preset cpu] [--target train_digits] [--match REGEX] [--top 20] [--over SECONDS]

Compiles each unit anew, one after the other, past the compiler cache; nothing in the build folder changes.
With --over it ends with code 1 where a unit takes longer. The preset must be configured, its sources generated.
"""
import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def compile_commands(build, target):
    """The commands that compile, with what they compile: [(argv, source)]."""
    text = subprocess.run(["ninja", "-C", build, "-t", "commands", target], check=True, capture_output=True, text=True).stdout
    found = []
    for line in text.splitlines():
        if " -c " not in line or " -o " not in line:
            continue
        argv = shlex.split(line)
        if pathlib.Path(argv[0]).name == "ccache.sh":
            argv = argv[1:]
        found.append((argv, argv[argv.index("-c") + 1]))
    return found


def name_of(source, build):
    """A source, relative to the project; of several that are compiled as one, their folder and number."""
    path = pathlib.Path(build, source)
    if path.parent.name != "Unity":
        return os.path.relpath(path, ROOT)
    parts = re.findall(r'#include "(.*)"', path.read_text())
    folder = os.path.commonpath([os.path.dirname(os.path.relpath(p, ROOT)) for p in parts])
    return f"{folder}/ ({len(parts)} sources)"


def user_seconds(argv, folder):
    argv = list(argv)
    argv[argv.index("-o") + 1] = os.devnull
    for flag in ("-MF", "-MT"):  # the dependency file belongs to the real build
        if flag in argv:
            at = argv.index(flag)
            del argv[at:at + 2]
    argv = [a for a in argv if a != "-MD"]
    child = subprocess.Popen(argv, cwd=folder, stderr=subprocess.PIPE, text=True)
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{argv[argv.index('-c') + 1]} does not compile:\n{errors}")
    return usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--target", default="train_digits")
    parser.add_argument("--match", default="", help="only units whose path matches")
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--over", type=float, help="fail if a unit takes more CPU seconds")
    options = parser.parse_args()
    build = ROOT / "build" / options.preset
    if not (build / "build.ninja").exists():
        sys.exit(f"{build} is not configured: cmake --preset {options.preset}")
    rows, rooms = [], {}
    for argv, source in compile_commands(str(build), options.target):
        name = name_of(source, build)
        if re.search(options.match, name):
            rows.append((user_seconds(argv, build), name))
            room = os.path.dirname(name)
            rooms[room] = rooms.get(room, 0) + rows[-1][0]
    rows.sort(reverse=True)
    print(f"{sum(s for s, _ in rows):8.1f} s  {len(rows)} units of {options.target}")
    for room, seconds in sorted(rooms.items(), key=lambda r: -r[1])[:12]:
        print(f"{seconds:8.1f} s  {room}/")
    print()
    for seconds, name in rows[:options.top]:
        print(f"{seconds:8.1f} s  {name}")
    slow = [name for seconds, name in rows if options.over and seconds > options.over]
    if slow:
        sys.exit(f"over {options.over:g} s: {', '.join(slow)}")


if __name__ == "__main__":
    main()
