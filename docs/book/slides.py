#!/usr/bin/env python3
"""Makes slides of pages: slides.py FOLDER [PAGE...]; without pages, of the stages of the course. Each page becomes a file of its own in
FOLDER, with its pictures inside.

A section is a slide, and a long one several. Code, tables and pictures stand on the slide, of each paragraph and each item of a list
the first sentence; the whole paragraph is a note for the speaker. Needs python3-markdown-it, which comes with scripts/book.sh.
"""

import base64
import html
import pathlib
import re
import sys

import markdown_it

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import forge  # noqa: E402

ROOM = 16  # lines of text on a slide
WIDTH = 70  # characters of such a line
LONG, WIDE = 16, 88  # lines of code, and characters of one, from which on its letters are smaller
SENTENCE = re.compile(r"(?<=[.?!:])\s+(?=[A-Z`*\"(])")
TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
MARKDOWN = markdown_it.MarkdownIt("commonmark").enable("table")


def first_sentence(text):
    """Not the end of a sentence: what stands in code, or in parentheses."""
    hidden = re.sub(r"`[^`]*`|\([^()]*\)", lambda found: "X" * len(found.group(0)), text)
    found = SENTENCE.search(hidden)
    return text[:found.start()] if found else text


def with_pictures(text, folder):
    """Each picture as a part of the page."""
    def picture(found):
        path = folder / found.group(1)
        return f'<img src="data:{TYPES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"'

    return re.sub(r'<img src="([^":]+)"', picture, text)


class Deck:
    def __init__(self):
        self.slides = []  # [title, [what stands on it], [notes], lines left]

    def begin(self, title):
        self.slides.append([title, [], [], ROOM])

    def add(self, block, lines, note=""):
        slide = self.slides[-1]
        if slide[1] and lines > slide[3]:
            self.begin(slide[0])
            slide = self.slides[-1]
        slide[1].append(block)
        slide[2].append(note)
        slide[3] -= lines


def blocks(tokens):
    """The outermost blocks: [tokens of one]."""
    block = []
    for token in tokens:
        block.append(token)
        if token.level == 0 and token.nesting <= 0:
            yield block
            block = []


def items(block):
    """(text, code) of a list's items: its paragraphs joined, and its blocks of code as HTML."""
    found, depth = [], 0
    for token in block:
        if token.type == "list_item_open":
            depth += 1
            if depth == 1:
                found.append(["", ""])
        elif token.type == "list_item_close":
            depth -= 1
        elif token.type == "inline":
            found[-1][0] += (" " if found[-1][0] else "") + token.content
        elif token.type in ("fence", "code_block"):
            found[-1][1] += f"<pre><code>{html.escape(token.content)}</code></pre>"
    return found


def deck_of(text):
    deck, inline = Deck(), lambda words: MARKDOWN.renderInline(words.replace("\n", " "))
    deck.begin("")
    text = re.sub(r"<!--.*?-->", "", forge.HEAD.sub("", forge.without(text)), flags=re.DOTALL)
    text = forge.change_prose(text, lambda prose: forge.LINK.sub(lambda found: found.group(0) if found.group(1) else found.group(2), prose))
    for block in blocks(MARKDOWN.parse(text)):
        kind, whole = block[0].type, MARKDOWN.renderer.render(block, MARKDOWN.options, {})
        if kind == "heading_open":
            title = inline(block[1].content)
            if block[0].tag == "h1":
                deck.slides[0][0] = title
            else:
                deck.begin(title)
        elif kind in ("fence", "code_block"):
            code = block[0].content.splitlines()
            lines, small = len(code), len(code) > LONG or max(map(len, code), default=0) > WIDE
            deck.add(whole.replace("<pre>", '<pre class="long">') if small else whole, 1 + lines * (0.55 if small else 0.75))
        elif kind == "paragraph_open" and "<img" in whole:
            deck.add(whole, ROOM - 2)
        elif kind == "paragraph_open":
            said = first_sentence(block[1].content)
            deck.add(f"<ul><li>{inline(said)}</li></ul>", 0.4 + -(-len(said) // WIDTH), whole if said != block[1].content else "")
        elif kind in ("bullet_list_open", "ordered_list_open"):
            tag = "ul" if kind[0] == "b" else "ol"
            for number, (item, code) in enumerate(items(block), 1):
                said = first_sentence(item)
                start = f' start="{number}"' if tag == "ol" else ""
                deck.add(f"<{tag}{start}><li>{inline(said)}</li></{tag}>", 0.4 + -(-len(said) // WIDTH),
                         f"<p>{inline(item)}</p>" if said != item else "")
                if code:
                    deck.add(code, 1 + 0.75 * code.count("\n"))
        elif kind == "table_open":
            deck.add(whole, 1 + 1.4 * sum(token.type == "tr_open" for token in block))
        else:
            deck.add(whole, 3)
    return deck


def page_of(text, folder):
    slides, seen = [], None
    deck = deck_of(text)
    for number, (title, shown, notes, _) in enumerate(deck.slides):
        heading = f"<h1>{title}</h1>" if number == 0 else f"<h2>{title}{' (continued)' if title == seen else ''}</h2>"
        said = "".join(note for note in notes if note)
        slides.append(f'<section class="slide">\n{heading}\n{"".join(shown)}\n{f"<aside>{said}</aside>" if said else ""}</section>')
        seen = title
    title = html.escape(re.sub("<[^>]+>", "", deck.slides[0][0]), quote=False)
    template = (pathlib.Path(__file__).resolve().parent / "slides.html").read_text(encoding="utf-8")
    return template.replace("@TITLE@", title).replace("@SLIDES@", with_pictures("\n".join(slides), folder))


def main():
    if len(sys.argv) < 2:
        print("slides.py: usage: slides.py FOLDER [PAGE...]", file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    pages = [pathlib.Path(name) for name in sys.argv[2:]] or sorted((forge.ROOT / "examples/course").glob("stage*/text.md"))
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages:
        if not page.is_file():
            print(f"slides.py: there is no page {page}", file=sys.stderr)
            return 2
        target = folder / f"{page.parent.name if page.name == 'text.md' else page.stem}.html"
        target.write_text(page_of(page.read_text(encoding="utf-8"), page.parent), encoding="utf-8")
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
