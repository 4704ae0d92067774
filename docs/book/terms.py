"""The index of terms: for each word of docs/glossary.md the chapters that explain it and that use it most. stage.py adds it to the book."""

import re

import forge
import links
import order

MOST = 5  # chapters of a word
LEAST = 2  # times that a chapter uses it
CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def entries():
    """(words, pattern, the chapter that the glossary names first or "") of each row of the glossary."""
    text = (forge.DOCS / "glossary.md").read_text(encoding="utf-8")
    for words, meaning in re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", text, re.MULTILINE):
        if words == "word":
            continue
        any_of = "|".join(re.escape(word) for word in words.split(", "))
        page = re.search(r"\]\((\w+)\.md", meaning)
        yield words, re.compile(rf"(?<![\w/-])(?:{any_of})(?:s|es)?(?![\w-])", re.IGNORECASE if words.islower() else 0), page and page.group(1) or ""


def sections(page):
    """The chapter's title up to a colon, and [(anchor, text)] of its sections, "" for what stands before the first."""
    text = CODE.sub(" ", forge.without((forge.DOCS / f"{page}.md").read_text(encoding="utf-8")))
    title, *rest = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)[1:]
    parts, seen = [("", rest[0])], {}
    for heading, part in zip(rest[1::2], rest[2::2]):
        anchor = links.slug(heading)
        seen[anchor] = seen.get(anchor, -1) + 1
        parts.append((f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor, part))
    return title.partition(":")[0], parts


def index(printed):
    """The page. In the site a link leads to the section that has the word most often, in print to the chapter, with its page's number."""
    chapters = {page: sections(page) for name, pages in order.parts() if name for page in pages}
    out, letter = "# Index of terms\n\nThe words of the [glossary](glossary.md), with the chapters that explain them or use them most.\n", ""
    for words, pattern, explains in entries():
        counts = {page: [len(pattern.findall(text)) for _, text in parts] for page, (_, parts) in chapters.items()}
        most = sorted((page for page in chapters if sum(counts[page]) >= LEAST), key=lambda page: -sum(counts[page]))[:MOST]
        listed = [page for page in chapters if page in most or page == explains]
        if not listed:
            continue
        if words[0].upper() != letter:
            letter = words[0].upper()
            out += f"\n## {letter}\n\n"
        found = []
        for page in listed:
            title, parts = chapters[page]
            anchor = parts[counts[page].index(max(counts[page]))][0]
            link = f"[{title}]({page}.md{'#' + anchor if anchor and not printed else ''})"
            found.append(f"*{link}*" if page == explains else link)
        out += f"- **{words}**: {', '.join(found)}\n"
    return out
