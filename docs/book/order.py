#!/usr/bin/env python3
"""Checks the heads of the chapters, and writes the list of chapters in docs/README.md and the numbers of the exercises in the heads.

    docs/book/order.py            writes both
    docs/book/order.py --check    writes nothing; code 1 with a line for each fault

order.txt names the parts and their pages. A chapter's head is a table between two comments below the title, with the rows of
ROWS in their order. What a chapter needs must come before it. The row Exercise ends with the exercises that the table of
examples/exercises/README.md lists for the chapter.
"""

import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent
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
    """[(title of the part, [(page, title, head)])] of the chapters, and what is wrong. `writes`: the numbers of exercises are
    written, where they differ."""
    before, chapters, faults, numbers = set(), [], [], exercises()
    for name, pages in parts():
        listed = []
        for page in pages:
            path = DOCS / f"{page}.md"
            if not path.is_file():
                faults.append(f"docs/book/order.txt: there is no docs/{page}.md")
                continue
            text = path.read_text(encoding="utf-8")
            if name is not None:
                faults += [f"docs/{page}.md: {fault}" for fault in faults_of(page, text, before)]
                new = with_exercises(page, text, numbers.get(page, []))
                if new != text and writes:
                    path.write_text(new, encoding="utf-8")
                elif new != text:
                    faults.append(f"docs/{page}.md: run docs/book/order.py, which writes the exercises into the head")
                listed.append((page, title_of(text), head_of(text) or {}))
            before.add(page)
        if name is not None:
            chapters.append((name, listed))
    for path in sorted(DOCS.glob("*.md")):
        if path.stem not in before and path.name != "README.md":
            faults.append(f"docs/{path.name}: docs/book/order.txt does not list it")
    return chapters, faults


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
