"""What a page of docs/ needs where a forge shows it: links to the files that it names, and a foot with the pages around it.

order.py writes both; stage.py takes them out again, since the site and the PDF have their own. A source names the page that
explains it in its first three lines, as in `// Explained in docs/the_ring.md.`, and the page must name the source.
"""

import os
import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parent.parent
ROOT = DOCS.parent
FOOT = "\n<!-- docs/book/order.py writes what follows -->\n"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
PATH = re.compile(r"(?<![`\[])`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+)`(?![`\]])")
NAMED = re.compile(r"\[(`[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+`)\](?!\()")  # a file, as named_files() writes it
HEAD = re.compile(r"<!-- chapter -->.*?<!-- end of chapter -->", re.DOTALL)
LEAVE = re.compile("|".join((HEAD.pattern, LINK.pattern)), re.DOTALL)
ROOMS = ("autograd", "bench", "data", "dist", "examples", "kernels", "nn", "optim", "simt", "tensor", "trainer")
FOLDERS = (*ROOMS, "cmake", "docs", "recipes", "scripts", "tests")  # of the source: a build or a run leaves others
EXPLAINED = re.compile(r"\bexplained in ((?:docs/[\w/]+\.md(?:, | and )?)+)", re.IGNORECASE)


def change_prose(text, change):
    """The text with `change(TEXT)` for each run of lines outside of fences, indented blocks and headings."""
    out, plain, fence = [], [], False

    def flush():
        if plain:
            out.append(change("\n".join(plain)))
            plain.clear()

    for line in text.splitlines():
        edge = line.lstrip().startswith("```")
        if edge or fence or line.startswith(("    ", "#")):
            flush()
            out.append(line)
        else:
            plain.append(line)
        fence ^= edge
    flush()
    return "\n".join(out) + "\n"


def named_files(text):
    """The text of a page with [`PATH`] for each `PATH` that is a file of the project, outside of links and of the chapter's head."""
    def name(found):
        path = found.group(1)
        return f"[{found.group(0)}]" if path.startswith(tuple(f"{folder}/" for folder in FOLDERS)) and (ROOT / path).is_file() else found.group(0)

    def change(prose):
        prose, out, at = NAMED.sub(r"\1", prose), "", 0
        for found in LEAVE.finditer(prose):
            out += PATH.sub(name, prose[at:found.start()]) + found.group(0)
            at = found.end()
        return out + PATH.sub(name, prose[at:])

    return change_prose(text, change)


def explained():
    """{page: [source]} by what the sources say at their top, and what is wrong there."""
    sources, faults = {}, []
    for room in ROOMS:
        for folder, folders, names in os.walk(ROOT / room):
            folders.sort()
            for name in sorted(name for name in names if name.endswith((".h", ".cpp", ".cu", ".cuh", ".py"))):
                path = pathlib.Path(folder, name)
                with open(path, encoding="utf-8", errors="replace") as file:
                    said = [EXPLAINED.search(line) for _, line in zip(range(3), file)]
                for page in re.findall(r"docs/([\w/]+)\.md", " ".join(found.group(1) for found in said if found)):
                    source, at = path.relative_to(ROOT).as_posix(), DOCS / f"{page}.md"
                    if not at.is_file():
                        faults.append(f"{source}: there is no docs/{page}.md, which is said to explain it")
                    elif name not in at.read_text(encoding="utf-8").partition(FOOT)[0]:
                        faults.append(f"{source}: docs/{page}.md is said to explain it, but does not name {name}")
                    else:
                        sources.setdefault(page, []).append(source)
    return sources, faults


def foot(page, text, sources, before, after):
    """The sources that the page explains, the pages before and after it, (page, title) or None, and the addresses of its files."""
    folder = (DOCS / page).parent

    def link(words, place):
        return f"[{words}]({os.path.relpath(DOCS / place, folder)}.md)"

    out = ""
    if sources:
        names = [f"[`{source}`]" for source in sources]
        out += "\nThis page explains " + ", ".join(names[:-1]) + (" and " if names[1:] else "") + names[-1] + ".\n"
    ways = [link(f"← {before[1]}", before[0])] if before else []
    ways += [link("all pages", "README")] + ([link(f"{after[1]} →", after[0])] if after else [])
    out += "\n" + " · ".join(ways) + "\n"
    files = sorted({found.strip("`") for found in NAMED.findall(text + out)})
    addresses = [f"[`{file}`]: {os.path.relpath(ROOT / file, folder)}\n" for file in files]
    return FOOT + out + ("\n" + "".join(addresses) if files else "")


def without(text):
    """A page without its links to files and without its foot, but for the line of sources."""
    body, _, below = text.partition(FOOT)
    return NAMED.sub(r"\1", body + "".join(f"\n{line}\n" for line in below.splitlines() if line.startswith("This page explains ")))
