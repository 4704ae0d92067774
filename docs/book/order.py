#!/usr/bin/env python3
"""Checks the heads of the chapters, and writes the list of chapters in docs/README.md.

    docs/book/order.py            writes the list
    docs/book/order.py --check    writes nothing; code 1 with a line for each fault

order.txt names the parts and their pages. A chapter's head is a table between two comments below the title, with the rows of
ROWS in their order. What a chapter needs must come before it.
"""

import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent
ROWS = ("You learn", "You need", "Time", "Run", "Figure", "Exercise", "Answer test")
HEAD = re.compile(r"<!-- chapter -->\n\n\| \| \|\n\|---\|---\|\n(.*?)\n\n<!-- end of chapter -->", re.DOTALL)
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


def check():
    """[(title of the part, [(page, title, head)])] of the chapters, and what is wrong."""
    before, chapters, faults = set(), [], []
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
    chapters, faults = check()
    readme = DOCS / "README.md"
    text = readme.read_text(encoding="utf-8")
    if not LIST.search(text):
        faults.append("docs/README.md: no list between <!-- chapters --> and <!-- end of chapters -->")
    new = LIST.sub(lambda found: found.group(1) + listing(chapters) + found.group(2), text)
    if "--check" in sys.argv[1:]:
        if new != text:
            faults.append("docs/README.md: run docs/book/order.py, which writes the list of chapters")
    else:
        readme.write_text(new, encoding="utf-8")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
