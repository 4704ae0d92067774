#!/usr/bin/env python3
"""Draws the figures of the chapters, from what the code does.

    docs/figures/draw.py FOLDER [NAME...] [--bin DIR]     ring data_parallel_bytes zero1_layout overlap; all where none is named
    docs/figures/draw.py FOLDER gradient_histogram --from FILE   FILE of gradient_histogram --out
    docs/figures/draw.py FOLDER conv_roofs --from FILE           FILE of bench_conv_choices --json
    docs/figures/draw.py FOLDER around_a_step             needs no program

A program in DIR, build/cpu/bin, does what is shown; here it is drawn, to FOLDER/NAME.svg, and its table printed. Python alone
does it: nothing else is needed.
"""

import argparse
import importlib
import json
import pathlib
import subprocess
import sys

TRACED = ("ring", "data_parallel_bytes", "zero1_layout", "overlap")
FROM_FILE = {"gradient_histogram": "gradient_histogram --out", "conv_roofs": "bench_conv_choices --json"}
OTHERS = (*FROM_FILE, "around_a_step")


def refuse(why):
    print(f"draw.py: {why}", file=sys.stderr)
    sys.exit(2)


def trace_of(name, args):
    if name in FROM_FILE:
        if not args.file:
            refuse(f"{name} needs --from FILE, which {FROM_FILE[name]} writes")
        return pathlib.Path(args.file).read_text(encoding="utf-8")
    if name == "around_a_step":
        return "null"
    return subprocess.run([f"{args.bin}/dist_traces", name], check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = refuse
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--bin", default="build/cpu/bin")
    parser.add_argument("--from", dest="file")
    args = parser.parse_args()
    if not args.folder.is_dir():
        refuse(f"{args.folder} must be a folder, but is not")
    for name in args.names:
        if name not in (*TRACED, *OTHERS):
            refuse(f"'{name}' must be one of {', '.join((*TRACED, *OTHERS))}")
    for name in args.names or TRACED:
        picture, table = importlib.import_module(name).draw(json.loads(trace_of(name, args)))
        path = args.folder / f"{name}.svg"
        path.write_text(picture, encoding="utf-8")
        print(f"{path}\n{table}")


if __name__ == "__main__":
    main()
