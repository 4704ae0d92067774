#!/usr/bin/env python3
"""Finds dead links: links.py FOLDER, a built site, or the project's own folder, whose Markdown pages are read.

Every link to a file must find it, and every #part the heading or element it names. Links to the network are not opened.
Prints a line for each dead link; the code is 1 where there is one.
"""

import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
ADDRESS = re.compile(r"^\[[^\]\n]+\]: (\S+)$", re.MULTILINE)


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.links = set(), []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value is not None:
                self.links.append(value)


def slug(heading):
    """The anchor that GitHub and MyST give a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words.replace("`", "").strip()).replace(" ", "-")


def read_html(path):
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page.ids, page.links


def read_markdown(path):
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    ids, links = {}, []
    for line in text.splitlines():
        if line.startswith("#"):
            name = slug(line.lstrip("#"))
            seen = ids.setdefault(name, 0)
            ids[name] += 1
            if seen:
                ids[f"{name}-{seen}"] = 1
    # Code that is indented, or in backticks, has brackets of its own.
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    links = LINK.findall(re.sub(r"`[^`\n]*`", "", prose)) + ADDRESS.findall(text)
    return set(ids), links


def pages_of(folder):
    if not (folder / "CMakeLists.txt").exists():
        return sorted(folder.rglob("*.html")), read_html
    if (folder / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "-C", str(folder), "ls-files", "-co", "--exclude-standard", "*.md"], check=True,
                                capture_output=True, text=True).stdout.split()
        return [folder / name for name in listed if (folder / name).exists()], read_markdown
    return [page for page in sorted(folder.rglob("*.md")) if "build" not in page.relative_to(folder).parts], read_markdown


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        print("links.py: usage: links.py FOLDER", file=sys.stderr)
        return 2
    pages, read = pages_of(pathlib.Path(sys.argv[1]).resolve())
    known = {page: read(page) for page in pages}
    if not known:
        print("links.py: no pages there", file=sys.stderr)
        return 2
    dead = count = 0
    for page, (_, links) in known.items():
        for link in links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            path = pathlib.Path(os.path.normpath(page.parent / urllib.parse.unquote(parts.path))) if parts.path else page
            missing = not path.exists()
            anchor = urllib.parse.unquote(parts.fragment)
            if missing or (anchor and path in known and anchor not in known[path][0]):
                dead += 1
                print(f"{page}: {link}: {'no such file' if missing else 'no such heading'}")
    print(f"{len(known)} pages, {count} links, {dead} dead")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
