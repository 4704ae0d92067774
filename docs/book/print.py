#!/usr/bin/env python3
"""Makes the PDF: print.py PAGE FILE, where PAGE is Sphinx's single page. Adds a title page and a list of contents with page numbers."""

import collections
import html
import pathlib
import re
import sys

import weasyprint

BOOK = pathlib.Path(__file__).resolve().parent
HEADING = re.compile(r'<section id="([^"]+)"[^>]*>\s*(?:<span id="[^"]*"></span>)*<h([23])>(?:<span id="(document-[^"]+)"></span>)?(.*?)</h\2>',
                     re.DOTALL)


def main():
    page, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    text = page.read_text(encoding="utf-8")
    body = re.search(r'<div class="body" role="main">(.*?)\n\s*<div class="clearer">', text, re.DOTALL)
    if not body:
        print("print.py: the page has no body as Sphinx writes it", file=sys.stderr)
        return 1
    body = body.group(1)
    # Sphinx writes its own file's name before each anchor; one that several chapters have stays without a link.
    ids = collections.Counter(re.findall(r'\bid="([^"]+)"', body))
    body = re.sub(rf'href="{re.escape(page.name)}#([^"]+)"', lambda found: f'href="#{found.group(1)}"' if ids[found.group(1)] == 1 else "", body)
    # A page's own anchor belongs into its heading: before it, it would be on the page before.
    body = re.sub(r'(<span id="document-[^"]*"></span>)(<section[^>]*>\s*<h[23]>)', r"\2\1", body)
    contents = ""
    for anchor, level, document, name in HEADING.findall(body):
        name = re.sub("<[^>]+>", "", name)
        contents += f'<li class="{"part-name" if level == "2" else "page-name"}"><a href="#{document or anchor}">{name}</a></li>\n'
    title = "Athanor: how training works inside"
    whole = (f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title></head><body>'
             f'<ul class="contents-of-book">{contents}</ul>{body}</body></html>')
    sheets = [weasyprint.CSS(filename=str(BOOK / name)) for name in ("print.css",)]
    weasyprint.HTML(string=whole, base_url=page.resolve().parent.as_uri() + "/").write_pdf(str(target), stylesheets=sheets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
