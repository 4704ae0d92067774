#!/usr/bin/env python3
"""How big the house is: lines per room against the budget, lengths of files and functions, includes that point upwards or
in a circle.

    scripts/house_report.py [--root DIR] [--check]

The budgets are the table in HACKING.md; tests/include_direction/check.sh finds includes that point upwards. tests/, examples/ and bench/
are no rooms: only their files are measured, scripts among them. With --check it ends with code 1 where a room is over its budget, a
file is too long, or an include points upwards or in a circle.
"""
import argparse
import pathlib
import re
import signal
import subprocess
import sys

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
BESIDE, BESIDE_SUFFIXES = ("tests", "examples", "bench"), SUFFIXES | {".py", ".sh"}
LONGEST_FILE = 450
LONG_FUNCTION = 60


def source_files(root, folders, suffixes=SUFFIXES):
    return sorted(f for folder in folders if (root / folder).is_dir()
                  for f in (root / folder).rglob("*") if f.suffix in suffixes)


def read(file):
    return file.read_text(encoding="utf-8", errors="replace")


# Budgets ---------------------------------------------------------------------------------------------------------


def budgets(text):
    """Rows `| name | budget | goal | `folder/` ... what it holds |` of HACKING.md: [(name, budget, goal, [folder])]."""
    rows = re.findall(r"^\| *(\w+) *\| *([\d,]+) *\| *([\d,]+) *\| *((?:`[\w/]+/` *)+)[^|]*\|", text, re.M)
    number = lambda words: int(words.replace(",", ""))
    return [(name, number(budget), number(goal), [f.rstrip("/") for f in re.findall(r"`([\w/]+)`", folders)])
            for name, budget, goal, folders in rows]


def too_long_for_now(text):
    """`file` (N lines) of HACKING.md: files that are still to be split, and how long they may be until then."""
    return {file: int(lines) for file, lines in re.findall(r"`([\w/.]+)` \((\d+) lines\)", text)}


def room_of(name, rooms):
    """The room whose folder is the longest one that holds the file."""
    held = [(len(folder), room) for room, _, _, folders in rooms for folder in folders if name.startswith(folder + "/")]
    return max(held)[1] if held else None


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


def report(root):
    """Prints the report; what is wrong with the house, a line each."""
    hacking = read(root / "HACKING.md")
    rooms, spared = budgets(hacking), too_long_for_now(hacking)
    wrong = []
    if not rooms:
        return ["no table of budgets in HACKING.md"]
    folders = sorted({folder.split("/")[0] for _, _, _, held in rooms for folder in held})
    texts = {str(f.relative_to(root)): read(f) for f in source_files(root, folders)}
    lines = {name: text.count("\n") for name, text in texts.items()}

    print(f"{'room':<10} {'lines':>7} {'budget':>7} {'goal':>7}   lines per file")
    for room, budget, goal, _ in rooms:
        held = [count for name, count in lines.items() if room_of(name, rooms) == room]
        print(f"{room:<10} {sum(held):>7,} {budget:>7,} {goal:>7,}   {spread(held)}")
        if sum(held) > budget:
            wrong.append(f"{room} has {sum(held):,} lines, {sum(held) - budget:,} over its budget: remove something old, or raise the "
                         "budget in HACKING.md and say why")
    for name in sorted(lines):
        if room_of(name, rooms) is None:
            wrong.append(f"{name} belongs to no room of the table in HACKING.md")
    print(f"{'all':<10} {sum(lines.values()):>7,} {'':>7} {'':>7}   {spread(lines.values())}")
    for folder in BESIDE:
        held = {str(f.relative_to(root)): read(f).count("\n") for f in source_files(root, [folder], BESIDE_SUFFIXES)}
        print(f"{folder:<10} {sum(held.values()):>7,} {'':>7} {'':>7}   {spread(held.values())}")
        lines.update(held)

    for name, count in sorted(lines.items(), key=lambda item: -item[1]):
        if count > spared.get(name, LONGEST_FILE):
            wrong.append(f"{name} has {count} lines: split it, {spared.get(name, LONGEST_FILE)} are the most")
    for name, most in spared.items():
        print(f"{name}: {lines.get(name, 0)} lines, still to be split" if lines.get(name, 0) > LONGEST_FILE
              else f"{name} need not stand in HACKING.md any more ({most} lines were allowed)")

    all_functions = [(count, name, first, function) for name, text in texts.items() for first, count, function in functions(text)]
    print(f"functions: {len(all_functions):,}, {spread([f[0] for f in all_functions])} lines; over {LONG_FUNCTION}:")
    for count, name, first, function in sorted(all_functions, reverse=True):
        if count > LONG_FUNCTION:
            print(f"  {count:>4}  {name}:{first} {function}")

    graph = {name: includes(text) for name, text in texts.items()}
    up, rings = arrows_up(root), circles(graph)
    print(f"includes that point upwards: {len(up)}, circles: {len(rings)}")
    wrong += up
    wrong += [f"a circle of includes: {' '.join(ring)}" for ring in rings]
    return wrong


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as in `house_report.py | head`
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--check", action="store_true", help="fail where something is wrong")
    options = parser.parse_args()
    wrong = report(options.root)
    for line in wrong:
        print("wrong:", line)
    sys.exit(1 if wrong and options.check else 0)


if __name__ == "__main__":
    main()
