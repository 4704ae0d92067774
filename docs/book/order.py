#!/usr/bin/env python3
"""Checks the heads of the chapters, and writes what of the pages follows from other files.

    docs/book/order.py            writes it
    docs/book/order.py --check    writes nothing; code 1 with a line for each fault

order.txt names the parts and their pages. A chapter's head is a table between two comments below the title, with the rows of
ROWS in their order. What a chapter needs must come before it. Written are the list of chapters in docs/README.md; the end of
the row Exercise, with the exercises that the table of examples/exercises/README.md lists for the chapter; the minutes in
ten_weeks.md; and what forge.py makes: links to files, and the foot of each page.
"""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import forge  # noqa: E402

DOCS = forge.DOCS
ROWS = ("You learn", "You need", "Time", "Run", "Figure", "Exercise", "Answer test")
HEAD = re.compile(r"<!-- chapter -->\n\n\| \| \|\n\|---\|---\|\n(.*?)\n\n<!-- end of chapter -->", re.DOTALL)
EXERCISES = re.compile(r"(?:; \[exercises? [^\]]*\]\([^)]*\))? <!-- exercises of (\w+) -->")
LIST = re.compile(r"(<!-- chapters -->\n).*(<!-- end of chapters -->)", re.DOTALL)


def parts(text=None):
    """[(title, [page])]; the title of the pages behind the chapters is None."""
    result = []
    for line in (text or (DOCS / "book/order.txt").read_text(encoding="utf-8")).splitlines():
        if line.startswith("part "):
            result.append((line[5:], []))
        elif line == "appendix":
            result.append((None, []))
        elif line and not line.startswith("#"):
            result[-1][1].append(line)
    return result


def title_of(text):
    return re.match(r"# (.+)\n", text).group(1)


def head_of(text):
    """The rows of a chapter's head, or None where there is none."""
    found = HEAD.search(text)
    return dict(re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", found.group(1), re.MULTILINE)) if found else None


def exercises():
    """{page: [number]}"""
    table = (DOCS.parent / "examples/exercises/README.md").read_text(encoding="utf-8")
    numbers = {}
    for number, page in re.findall(r"^\| (\d+) \|.*\(\.\./\.\./docs/(\w+)\.md\)", table, re.MULTILINE):
        numbers.setdefault(page, []).append(number)
    return numbers


def with_exercises(page, text, numbers):
    """The page, with the chapter's exercises at the end of the row."""
    def row(found):
        if not numbers:
            return f" <!-- exercises of {page} -->"
        listed = ", ".join(numbers[:-1]) + " and " + numbers[-1] if numbers[1:] else numbers[0]
        name = "exercises" if numbers[1:] else "exercise"
        return f"; [{name} {listed}](../examples/exercises/README.md) <!-- exercises of {page} -->"

    return EXERCISES.sub(row, text)


def minutes_of(page):
    """The minutes in a chapter's head; 0 where there is none."""
    path = DOCS / f"{page}.md"
    found = re.search(r"^\| \*\*Time\*\* \| (\d+) minutes \|$", path.read_text(encoding="utf-8"), re.MULTILINE) if path.is_file() else None
    return int(found.group(1)) if found else 0


def with_minutes(text):
    """The calendar, with the minutes of the chapters and of the stages that each row names in its last two cells."""
    def row(found):
        reading = sum(minutes_of(page) for page in re.findall(r"\]\((\w+)\.md\)", found.group(1)))
        stages = [DOCS.parent / "examples/course" / name / "stage.json" for name in re.findall(r"/course/(stage\d+)/", found.group(1))]
        building = sum(json.loads(path.read_text(encoding="utf-8"))["minutes"] for path in stages if path.is_file())
        return f"{found.group(1)} {reading} | {building} |"

    return re.sub(r"^(\| \d+ \|.*\|) \d+ \| \d+ \|$", row, text, flags=re.MULTILINE)


def faults_of(page, text, before):
    """`before`: the pages that come earlier. Yields what is wrong with a chapter."""
    head = head_of(text)
    if head is None:
        yield "has no head between <!-- chapter --> and <!-- end of chapter -->"
        return
    if tuple(head) != ROWS:
        yield f"the head's rows must be {', '.join(ROWS)}, but are {', '.join(head)}"
        return
    if not re.fullmatch(r"[1-9][0-9]* minutes", head["Time"]):
        yield f"Time must be 'N minutes', but is '{head['Time']}'"
    if "`" not in head["Run"]:
        yield "Run must have a command"
    if not re.search(r"!\[[^\]]+\]\([^)]+\)", text):
        yield "has no figure"
    for needed in re.findall(r"\]\(([a-z0-9_]+)\.md", head["You need"]):
        if needed not in before:
            yield f"needs {needed}, which must come before it"


def check(writes):
    """[(title of the part, [(page, title, head)])] of the chapters, and what is wrong. `writes`: what follows from other files is
    written, where it differs."""
    before, chapters, numbers = set(), [], exercises()
    sources, faults = forge.explained()
    texts = {}
    for page in (page for _, pages in parts() for page in pages):
        path = DOCS / f"{page}.md"
        if path.is_file():
            texts[page] = path.read_text(encoding="utf-8")
        else:
            faults.append(f"docs/book/order.txt: there is no docs/{page}.md")
    titles = [(page, title_of(text)) for page, text in texts.items()]
    around = {page: (titles[at - 1] if at else None, titles[at + 1] if at + 1 < len(titles) else None) for at, (page, _) in enumerate(titles)}
    for name, pages in parts():
        listed = []
        for page in (page for page in pages if page in texts):
            body, _, _ = texts[page].partition(forge.FOOT)
            if name is not None:
                faults += [f"docs/{page}.md: {fault}" for fault in faults_of(page, body, before)]
                listed.append((page, title_of(body), head_of(body) or {}))
            new = forge.named_files(with_minutes(body) if page == "ten_weeks" else with_exercises(page, body, numbers.get(page, [])))
            new += forge.foot(page, new, sources.get(page, []), *around[page])
            if new != texts[page] and writes:
                (DOCS / f"{page}.md").write_text(new, encoding="utf-8")
            elif new != texts[page]:
                faults.append(f"docs/{page}.md: run docs/book/order.py, which writes {difference(texts[page], new)}")
            before.add(page)
        if name is not None:
            chapters.append((name, listed))
    for path in sorted(path for folder in (".", "reference", "teaching") for path in DOCS.glob(f"{folder}/*.md")):
        name = path.relative_to(DOCS).as_posix()
        if name.removesuffix(".md") not in before and name != "README.md":
            faults.append(f"docs/{name}: docs/book/order.txt does not list it")
    return chapters, faults


def difference(old, new):
    """The first line that differs, for a message."""
    lines = old.splitlines()
    return next((repr(line) for at, line in enumerate(new.splitlines()) if at >= len(lines) or lines[at] != line), "a shorter page")


def listing(chapters):
    out, number = "", 0
    for part, pages in chapters:
        out += f"\n### {part}\n\n"
        for page, title, head in pages:
            number += 1
            minutes = head.get("Time", "? minutes").split()[0]
            out += f"{number}. [{title}]({page}.md) ({minutes} min): {head.get('You learn', '')}.\n"
    return out + "\n"


def main():
    checks = "--check" in sys.argv[1:]
    chapters, faults = check(writes=not checks)
    readme = DOCS / "README.md"
    text = readme.read_text(encoding="utf-8")
    if not LIST.search(text):
        faults.append("docs/README.md: no list between <!-- chapters --> and <!-- end of chapters -->")
    new = LIST.sub(lambda found: found.group(1) + listing(chapters) + found.group(2), text)
    if checks:
        if new != text:
            faults.append("docs/README.md: run docs/book/order.py, which writes the list of chapters")
    else:
        readme.write_text(new, encoding="utf-8")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
