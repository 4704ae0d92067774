"""Unified diffs, applied exactly: a hunk must match its lines, though they may have moved."""
import re


class PatchError(Exception):
    pass


def parse(text):
    """The files of a diff: {path: [(first old line, old lines, new lines), ...]}; text before the first file is ignored."""
    files, lines, at = {}, text.splitlines(), 0
    hunks = None
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith("+++ "):
            hunks = files.setdefault(re.sub(r"^[ab]/", "", line[4:].split("\t")[0].strip()), [])
        counts = re.match(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@", line)
        if not counts or hunks is None:
            continue
        olds, news = (1 if count is None else int(count) for count in (counts[2], counts[3]))
        old, new = [], []
        while at < len(lines) and (len(old) < olds or len(new) < news):
            kind, rest = lines[at][:1], lines[at][1:]
            at += 1
            if kind != "+":
                old.append(rest)
            if kind != "-":
                new.append(rest)
        hunks.append((int(counts[1]), old, new))
    return files


def apply_hunks(lines, hunks, where):
    shift = 0
    for first, old, new in hunks:
        places = [at for at in range(len(lines) - len(old) + 1) if lines[at:at + len(old)] == old]
        if not places:
            raise PatchError(f"{where}: the hunk at line {first} does not apply: no such lines")
        at = min(places, key=lambda place: abs(place - (first - 1 + shift)))
        lines = lines[:at] + new + lines[at + len(old):]
        shift += len(new) - len(old)
    return lines


def apply(text, folder, where):
    """Applies a diff to the files in `folder`. PatchError names the hunk that does not fit; then no file has changed."""
    files = parse(text)
    if not files:
        raise PatchError(f"{where}: no file in this patch")
    results = {}
    for path, hunks in files.items():
        target = folder / path
        if not target.is_file():
            raise PatchError(f"{where}: there is no {path}")
        results[target] = apply_hunks(target.read_text().splitlines(), hunks, f"{where}, {path}")
    for target, lines in results.items():
        target.write_text("\n".join(lines) + "\n")
