"""Numbers of a chapter's own tables, so that a figure and the table beside it cannot differ."""

import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parent.parent


def table(page, header):
    """The rows of the table of docs/PAGE.md whose first row begins with `header`, as lists of words."""
    lines = (DOCS / f"{page}.md").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {header}"))
    rows = []
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows


def number(words):
    """The first number in a cell."""
    return float(re.search(r"-?[0-9][0-9,]*\.?[0-9]*(?:e-?[0-9]+)?", words).group().replace(",", ""))
