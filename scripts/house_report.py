#!/usr/bin/env python3
"""How big the house is: lines of each room and of its tests, and includes that point upwards or in a circle.

    scripts/house_report.py [--root DIR] [--check]

A room is a folder of the library. Of tests/, examples/ and bench/, scripts count, too. tests/include_direction/check.sh
finds includes that point upwards. With --check it ends with code 1 where an include points upwards or in a circle.
"""
import argparse
import pathlib
import re
import signal
import subprocess
import sys

ROOMS = ("simt", "tensor", "kernels", "autograd", "nn", "optim", "dist", "data", "trainer")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
BESIDE, BESIDE_SUFFIXES = ("tests", "examples", "bench"), SUFFIXES | {".py", ".sh"}


def source_files(root, folders, suffixes=SUFFIXES):
    return sorted(f for folder in folders if (root / folder).is_dir()
                  for f in (root / folder).rglob("*") if f.suffix in suffixes)


def read(file):
    return file.read_text(encoding="utf-8", errors="replace")


def includes(text):
    return re.findall(r'^\s*#\s*include\s*["<]([\w/.]+)[">]', text, re.M)


def arrows_up(root):
    """What the test include_direction finds, which knows the layers."""
    check = subprocess.run(["bash", str(root / "tests/include_direction/check.sh"), str(root)], capture_output=True, text=True)
    return [line for line in check.stdout.splitlines() if "may include only" in line]


def circles(files):
    """Groups of files that include one another (Tarjan's strongly connected components, without recursion)."""
    index, low, on_stack, stack, found = {}, {}, set(), [], []
    for start in files:
        if start in index:
            continue
        work = [(start, iter(files[start]))]
        index[start] = low[start] = len(index)
        stack.append(start), on_stack.add(start)
        while work:
            node, targets = work[-1]
            step = next((t for t in targets if t in files and (t not in index or t in on_stack)), None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on_stack.discard(group[-1])
                    if len(group) > 1 or node in files[node]:
                        found.append(sorted(group))
            elif step in index:
                low[node] = min(low[node], index[step])
            else:
                index[step] = low[step] = len(index)
                stack.append(step), on_stack.add(step)
                work.append((step, iter(files[step])))
    return found


def spread(values):
    values = sorted(values)
    at = lambda share: values[min(len(values) - 1, int(share * len(values)))]
    return f"median {at(0.5)}, p90 {at(0.9)}, max {values[-1]}" if values else "none"


def lines_of(texts, folder):
    return [text.count("\n") for name, text in texts.items() if name.startswith(folder + "/")]


def report(root):
    """Prints the report; the includes that are wrong, a line each."""
    texts = {str(f.relative_to(root)): read(f) for f in source_files(root, ROOMS)}
    beside = {str(f.relative_to(root)): read(f) for f in source_files(root, BESIDE, BESIDE_SUFFIXES)}
    row = lambda name, counts: print(f"{name:<22} {sum(counts):>7,} {len(counts):>6,}   {spread(counts)}")

    print(f"{'room':<22} {'lines':>7} {'files':>6}   lines per file")
    for room in ROOMS:
        row(room, lines_of(texts, room))
        for folder in sorted({"/".join(name.split("/")[:2]) for name in texts if re.match(room + "/[^/]+/", name)}):
            row("  " + folder, lines_of(texts, folder))
    row("all rooms", [text.count("\n") for text in texts.values()])
    for folder in BESIDE:
        row(folder, lines_of(beside, folder))
        for room in sorted({name.split("/")[1] for name in beside if folder == "tests" and re.match("tests/[^/]+/", name)}):
            row("  tests/" + room, lines_of(beside, "tests/" + room))

    up, rings = arrows_up(root), circles({name: includes(text) for name, text in texts.items()})
    print(f"includes that point upwards: {len(up)}, circles: {len(rings)}")
    return up + [f"a circle of includes: {' '.join(ring)}" for ring in rings]


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as in `house_report.py | head`
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--check", action="store_true", help="fail where an include is wrong")
    options = parser.parse_args()
    wrong = report(options.root)
    for line in wrong:
        print("wrong:", line)
    sys.exit(1 if wrong and options.check else 0)


if __name__ == "__main__":
    main()
