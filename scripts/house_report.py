#!/usr/bin/env python3
"""How big the house is: lines of each room, the longest files and functions, includes that point upwards or in a circle.

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
LONGEST = 20  # files and functions to list


def source_files(root, folders, suffixes=SUFFIXES):
    return sorted(f for folder in folders if (root / folder).is_dir()
                  for f in (root / folder).rglob("*") if f.suffix in suffixes)


def read(file):
    return file.read_text(encoding="utf-8", errors="replace")


# Functions -------------------------------------------------------------------------------------------------------

SCOPE = re.compile(r"^(inline\s+)?namespace\b|^extern\b\s*$|^(template\s*<.*>\s*)?(requires\b.*\s)?(class|struct|union|enum)\b")


def blank(text):
    """The text without comments, literals and all but the first branch of #if, lines kept."""
    keep_lines = lambda match: re.sub(r"[^\n]", " ", match.group())
    text = re.sub(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', keep_lines, text,
                  flags=re.S)
    lines, hidden, continued = [], [], False
    for line in text.split("\n"):
        directive = re.match(r"\s*#\s*(\w+)", line)
        if directive and not continued:
            word = directive.group(1)
            if word in ("if", "ifdef", "ifndef"):
                hidden.append(False)
            elif word in ("else", "elif") and hidden:
                hidden[-1] = True
            elif word == "endif" and hidden:
                hidden.pop()
        drop = directive or continued or any(hidden)
        continued = bool(directive or continued) and line.rstrip().endswith("\\")
        lines.append("" if drop else line)
    return "\n".join(lines)


def functions(text):
    """[(first line, lines, name)] of the functions in a source; lambdas count to the function they are in."""
    text = blank(text)
    found, stack, head, line, head_line = [], [], "", 1, 1
    for at, c in enumerate(text):
        if c == "\n":
            line += 1
        inside = any(kind != "scope" for kind, *_ in stack)
        if c == "{":
            words = " ".join(head.split())
            initialised = re.search(r"\)[^)]*:(?!:).*[\w>]$|=$|return$", words) and not words.endswith((")", "const", "noexcept", "override"))
            if inside or initialised:
                stack.append(("block", 0, ""))
            elif SCOPE.search(words) and not re.search(r"\)\s*(const|noexcept|override|final|mutable)?\s*$", re.sub(r"alignas\([^)]*\)", "", words)):
                stack.append(("scope", 0, ""))
            elif "(" in words:
                stack.append(("function", head_line, words))
            else:
                stack.append(("block", 0, ""))
            if stack[-1][0] != "block" or inside:
                head = ""
        elif c == "}":
            kind, first, words = stack.pop() if stack else ("block", 0, "")
            if kind == "function":
                name = re.search(r"([\w:~]+|operator\s*\S+?)\s*\(", re.sub(r"__launch_bounds__\([^()]*\)|(alignas|requires) *\([^()]*\)", "", words))
                found.append((first, line - first + 1, name.group(1) if name else "?"))
            if kind != "block" or inside:
                head = ""
        elif c == ";" and not inside:
            head = ""
        elif not inside:
            if not head.strip() and not c.isspace():
                head_line, head = line, ""
            head += c
    return found


# Includes --------------------------------------------------------------------------------------------------------


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


# The report ------------------------------------------------------------------------------------------------------


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

    print(f"the {LONGEST} longest files:")
    for count, name in sorted(((text.count("\n"), name) for name, text in (texts | beside).items()), reverse=True)[:LONGEST]:
        print(f"  {count:>4}  {name}")
    all_functions = [(count, name, first, function) for name, text in texts.items() for first, count, function in functions(text)]
    print(f"functions of the rooms: {len(all_functions):,}, {spread([f[0] for f in all_functions])} lines; the {LONGEST} longest:")
    for count, name, first, function in sorted(all_functions, reverse=True)[:LONGEST]:
        print(f"  {count:>4}  {name}:{first} {function}")

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
