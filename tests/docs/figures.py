#!/usr/bin/env python3
"""figures.py SOURCE: what README, HACKING and docs/ quote from bench/results/ stands there.

    <!-- figures: bench/results/loader_cpu.md crop224 -->
    ... a table, paragraphs ...
    <!-- end of figures -->

Each row of a table needs a line of that file with all its numbers, as they stand there or rounded; words after the file name narrow
the lines down; with the word `grouped`, lines with the same first cell count as one. In paragraphs, each number must be anywhere in
the file. `-- except 64 2.3` names numbers that are no quotations (sizes, what was computed).
A page that links to a file of results in a paragraph or table with numbers must mark it so. Pictures of docs/img/ are drawn again by
the tests that PICTURES names."""
import decimal
import pathlib
import re
import sys

import pages

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/figures"))
import draw

NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?!\w)")
# picture: the test that draws it again and compares, or (in parentheses) why none does
PICTURES = {**{f"{name}.svg": "book.pages" for name in draw.PAGES},
            "around_a_step.svg": "(drawn by hand: docs/figures/around_a_step.py)", "comparison.png": "(of a browser)", "data_parallel_bytes.svg": "dist_figures",
            "dcgan.png": "(of one run: bench/results/dcgan_cpu.md)", "dcgan_pytorch.png": "(of one run: bench/results/dcgan_cpu.md)",
            "epochs.svg": "scripts.epochs_figure", "gradient_histogram.svg": "gradient_histogram", "ladder.svg": "(of one run: bench/results/ladder.md)", "lr_curve.svg": "(of one run: docs/choosing_a_learning_rate.md)",
            "overlap.svg": "dist_figures", "report.png": "(of a browser)", "ring.svg": "dist_figures",
            "scale.svg": "(scripts/simulate_scale.sh)", "zero1_layout.svg": "dist_figures"}


def numbers(text):
    """Numbers as they are written, without thousands separators and trailing commas; none of code, links and dates."""
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|\d{4}-\d\d-\d\d|<!--.*?-->", " ", text, flags=re.S)
    return [found.rstrip(",").replace(",", "") for found in NUMBER.findall(text)]


def blocks(text):
    """(line number, file, words, exceptions, the block's text) for each marked part of a page."""
    for found in re.finditer(r"<!-- figures: (\S+)([^\n]*?) -->\n(.*?)<!-- end of figures -->", text, re.S):
        words, _, exceptions = found[2].partition(" -- except")
        yield text[:found.start()].count("\n") + 1, found[1], words.split(), set(exceptions.split()), found[3]


def holds(found, number):
    """Whether `number` is among those found, or is one of them rounded to as many decimals."""
    decimals = len(number.partition(".")[2])
    step = decimal.Decimal(1).scaleb(-decimals)
    return number in found or any(decimal.Decimal(other).quantize(step, decimal.ROUND_HALF_UP) == decimal.Decimal(number)
                                  for other in found if len(other.partition(".")[2]) > decimals)


def wrong_in(block, source, words, exceptions):
    """What of a block its source does not hold."""
    grouped, words = "grouped" in words, [word for word in words if word != "grouped"]
    rows = {}
    for at, line in enumerate(source.split("\n")):
        if all(word in line for word in words):
            rows.setdefault(line.split("|")[1] if grouped and line.startswith("|") else at, set()).update(numbers(line))
    anywhere = set(numbers(source))
    for line in block.split("\n"):
        wanted = [number for number in numbers(line) if number not in exceptions]
        if line.startswith("|"):
            if wanted and not any(all(holds(row, number) for number in wanted) for row in rows.values()):
                yield f"no line has all of {' '.join(wanted)}: {line}"
        elif not line.startswith("    "):
            yield from (f"{number} is not there: {line}" for number in wanted if not holds(anywhere, number))


def unmarked(text):
    """Paragraphs with numbers and a link to a file of results, outside of marked parts."""
    rest = re.sub(r"<!-- figures: .*?<!-- end of figures -->", "", text, flags=re.S)
    for paragraph in re.split(r"\n\s*\n", rest):
        if re.search(r"\]\([^)]*bench/results/\w+\.md", paragraph) and numbers(paragraph):
            yield paragraph.strip().split("\n")[0]


def check(root):
    readme = (root / "README.md").read_text(encoding="utf-8").split("\n")
    if len(readme) - 1 > 120 or max(map(len, readme)) > 120:
        yield f"README.md: at most 120 lines of 120 columns, but it has {len(readme) - 1} of {max(map(len, readme))}"
    for page in pages.pages(root):
        text = (root / page).read_text(encoding="utf-8")
        for number, name, words, exceptions, block in blocks(text):
            if not (root / name).is_file():
                yield f"{page}:{number}: there is no {name}"
                continue
            source = (root / name).read_text(encoding="utf-8")
            yield from (f"{page}:{number}: {name}: {what}" for what in wrong_in(block, source, words, exceptions))
        if text.count("<!-- figures:") != text.count("<!-- end of figures -->"):
            yield f"{page}: each <!-- figures: FILE --> needs its <!-- end of figures -->"
        yield from (f"{page}: quotes results without <!-- figures: FILE -->: {line}" for line in unmarked(text))
    shown = {path.name for path in (root / "docs/img").iterdir()}
    yield from (f"docs/img/{name}: tests/docs/figures.py must name the test that draws it" for name in sorted(shown - set(PICTURES)))
    yield from (f"tests/docs/figures.py names a picture that is gone: {name}" for name in sorted(set(PICTURES) - shown))


def itself():
    """Planted mistakes that must be found."""
    source = "| crop224 | athanor | 48.8 | 5,245 | 1.00 |\n| crop224 | pil | 210.9 | 1,214 | 4.32 |\n"
    right = "| Athanor | 5,245 | 1.00 |\ntakes 48.8 ms on `x86-64`, 2026-11-22\n"
    assert not list(wrong_in(right, source, ["crop224"], set()))
    assert len(list(wrong_in(right.replace("1.00", "4.32"), source, ["crop224"], set()))) == 1  # of another row
    assert len(list(wrong_in(right.replace("48.8", "48.7"), source, [], set()))) == 1
    assert not list(wrong_in(right.replace("48.8", "48.7"), source, [], {"48.7"}))
    assert not list(wrong_in("| 49 | 211 |", source, ["grouped"], set())) and list(wrong_in("| 49 | 211 |", source, [], set()))
    assert list(unmarked("takes 3 ms ([all](../bench/results/x.md))")) and not list(unmarked("fast ([all](bench/results/x.md))"))


def main():
    itself()
    wrong = list(check(pathlib.Path(sys.argv[1])))
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
