#!/usr/bin/env python3
"""Copies the pages of docs/ to a folder that Sphinx can build: stage.py FOLDER site|print

A link to a file outside docs/ becomes one to a page of its own, which shows the file. A path in code style, such as
`tensor/tensor.h`, becomes such a link, too. In print, where those pages are missing, both stay words.
"""

import os
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import forge  # noqa: E402
import order  # noqa: E402
import terms  # noqa: E402

DOCS, ROOT = forge.DOCS, forge.ROOT
LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".h": "cpp", ".cpp": "cpp", ".py": "python", ".sh": "bash", ".json": "json",
             ".cmake": "cmake", ".yml": "yaml", ".awk": "awk"}
LARGEST = 200_000  # bytes of a file that gets a page


def place_of(path):
    """Where a file or folder of the project has its page in the book, relative to its root."""
    if path == DOCS / "README.md":
        return "index.md"
    if path.is_relative_to(DOCS) and (path.suffix in (".md", ".svg", ".png")):
        return str(path.relative_to(DOCS))
    name = str(path.relative_to(ROOT))
    return f"repo/{name}" if path.suffix == ".md" else f"files/{name}.md"


def fit_for_page(path):
    if not path.is_relative_to(ROOT) or ".git" in path.parts or path.is_relative_to(ROOT / "build") or not path.exists():
        return False
    if path.is_dir():
        return True
    return path.stat().st_size < LARGEST and b"\0" not in path.read_bytes()


def slides_beside(source):
    """Links to the slides that book.sh adds to the site."""
    stages = [page.parent.name for page in sorted((ROOT / "examples/course").glob("stage*/text.md"))]
    up = os.path.relpath("slides", pathlib.Path(place_of(source)).parent)
    return "In this site: " + ", ".join(f'<a href="{up}/{stage}.html">{stage}</a>' for stage in stages) + "."


class Stage:
    def __init__(self, folder, printed):
        self.folder, self.printed = folder, printed
        self.waiting, self.done = [], set()

    def target(self, source, written):
        """The link from the page of `source` to the file that `written` names from it; None: leave the words alone."""
        name, _, anchor = written.partition("#")
        if not name or "://" in written or written.startswith("mailto:"):
            return written
        path = pathlib.Path(os.path.normpath(source.parent / name))
        if path.is_dir() and (path / "README.md").is_file():
            path /= "README.md"
        return self.place(source, path, anchor)

    def place(self, source, path, anchor=""):
        if not fit_for_page(path) and not (path.suffix in (".svg", ".png") and path.is_file()):
            return None
        place = place_of(path)
        if self.printed and place.startswith(("repo/", "files/")):
            return None
        self.waiting.append(path)
        link = os.path.relpath(place, pathlib.Path(place_of(source)).parent)
        return link + ("#" + anchor if anchor else "")

    def prose(self, source, text):
        def link(found):
            target = self.target(source, found.group(3))
            if target is None:
                return found.group(2) if self.printed else found.group(0)
            return f"{found.group(1)}[{found.group(2)}]({target})"

        def path(found):
            file = ROOT / found.group(1)
            target = self.place(source, file) if file.is_file() and not self.printed else None
            return found.group(0) if target is None else f"[`{found.group(1)}`]({target})"

        return forge.PATH.sub(path, forge.LINK.sub(link, text))

    def markdown(self, source):
        """A page's text with its links turned; fences and indented blocks as they are. A link may break over lines."""
        text = forge.change_prose(forge.without(source.read_text(encoding="utf-8")), lambda prose: self.prose(source, prose))
        text = re.sub("^```(?:gdb|ptx)$", "```text", text, flags=re.MULTILINE)  # which Pygments does not know
        text = text.replace("<!-- slides -->", "" if self.printed else slides_beside(source))
        return text.replace("<!-- chapter -->\n", "````{container} chapter-head\n").replace("\n<!-- end of chapter -->", "\n````")

    def write(self, place, text):
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def page_of_file(self, path):
        name = path.relative_to(ROOT)
        head = f"---\norphan: true\nnosearch: true\n---\n\n# `{name}`\n\n"
        if path.is_dir():
            rows = [f"- [`{child.name}`]({self.place(path, child)})" for child in sorted(path.iterdir())
                    if fit_for_page(child) and not child.name.startswith(".") and child.name != "__pycache__"]
            return head + "\n".join(rows) + "\n"
        text = path.read_text(encoding="utf-8", errors="replace")
        ticks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
        return head + f"{ticks}{LANGUAGES.get(path.suffix, 'text')}\n{text}\n{ticks}\n"

    def add(self, path):
        place = place_of(path)
        if place in self.done:
            return
        self.done.add(place)
        if path.suffix in (".svg", ".png") and path.is_file():
            (self.folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, self.folder / place)
        elif path.suffix == ".md":
            listed = place == "index.md" or path.is_relative_to(DOCS)
            self.write(place, ("" if listed else "---\norphan: true\n---\n\n") + self.markdown(path))
        else:
            self.write(place, self.page_of_file(path))

    def run(self, first):
        self.waiting = list(first)
        while self.waiting:
            self.add(self.waiting.pop())


def toctree(pages, caption="", hidden=True):
    options = (f":caption: {caption}\n" if caption else "") + (":hidden:\n" if hidden else "")
    return f"\n```{{toctree}}\n{options}\n" + "\n".join(pages) + "\n```\n"


def front(folder, kind):
    """The tables of contents: in the site a list at the side; in print book.md, with a page for each part."""
    index = folder / "index.md"
    text = index.read_text(encoding="utf-8")
    trees = "" if kind == "site" else "# Athanor\n" + toctree(["index"], hidden=False)
    for number, (part, pages) in enumerate(order.parts(), 1):
        name = part or "Reference"
        if "glossary" in pages:
            pages.insert(pages.index("glossary") + 1, "index_of_terms")
        if kind == "site":
            trees += toctree(pages, name)
        else:
            (folder / f"part{number}.md").write_text(f"# {name}\n" + toctree(pages, hidden=False), encoding="utf-8")
            trees += toctree([f"part{number}"], hidden=False)
    if kind == "site":
        index.write_text(text + trees, encoding="utf-8")
    else:
        index.write_text(order.LIST.sub("", text), encoding="utf-8")
        (folder / "book.md").write_text(trees, encoding="utf-8")


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in ("site", "print"):
        print("stage.py: usage: stage.py FOLDER site|print", file=sys.stderr)
        return 2
    folder, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "_static").mkdir(parents=True)
    Stage(folder, kind == "print").run([DOCS / "README.md"] + [
        DOCS / f"{page}.md" for _, pages in order.parts() for page in pages if (DOCS / f"{page}.md").is_file()])
    (folder / "index_of_terms.md").write_text(terms.index(kind == "print"), encoding="utf-8")
    front(folder, kind)
    shutil.copy(DOCS / "book/conf.py", folder / "conf.py")
    shutil.copy(DOCS / "book/site.css", folder / "_static/site.css")
    return 0


if __name__ == "__main__":
    sys.exit(main())
