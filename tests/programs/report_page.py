#!/usr/bin/env python3
"""report_page.py PAGE [RUN]: PAGE is whole HTML that asks for nothing outside itself, every drawing has its words, and the
figures in its tables are those of RUN/metrics.jsonl."""
import html.parser
import json
import pathlib
import sys

CLOSES_ITSELF = {"meta", "link", "img", "path", "polyline", "rect"}  # of HTML the first three; in SVG, XML's rules hold
SECTIONS = ["curves", "times", "mistakes", "memory", "configuration", "machine"]


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.tables, self.text, self.headings = [], [], [], "", []
        self.scripts = {}

    def handle_starttag(self, tag, attributes):
        at = dict(attributes)
        assert len(at) == len(attributes), f"<{tag}> has an attribute twice"
        if "id" in at:
            self.ids.append(at["id"])
        for name in ("src", "href"):
            assert at.get(name, "#").startswith(("data:", "#")), f"{name}={at[name]}"
        if at.get("role") == "img":
            assert at.get("aria-label"), f"<{tag} role=img> says nothing"
        if tag == "svg":
            assert at.get("aria-label") or at.get("aria-hidden") == "true", "a drawing without words"
        if tag == "img":
            assert at.get("alt") is not None, "a picture without words"
        if tag == "tr":
            self.tables.append([])
        self.open.append((tag, at.get("id")))

    def handle_startendtag(self, tag, attributes):
        assert tag in CLOSES_ITSELF, f"<{tag}/> is not closed in HTML"
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, f"</{tag}> closes {self.open[-1:]} {self.getpos()}"
        self.open.pop()

    def handle_data(self, data):
        tag, name = self.open[-1] if self.open else ("", None)
        if tag == "script":
            self.scripts[name] = self.scripts.get(name, "") + data
        elif tag in ("th", "td", "b") and self.tables:
            self.tables[-1].append(data)
        elif tag != "style":
            self.text += data


def main():
    source = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    page = Page()
    page.feed(source)
    page.close()
    assert not page.open, page.open
    assert source.startswith("<!DOCTYPE html>") and source.endswith("</html>\n")
    assert len(page.ids) == len(set(page.ids)), page.ids
    assert "http" not in source.replace("http://www.w3.org/2000/svg", ""), "it names an address"
    record = json.loads(page.scripts["record"])
    if len(sys.argv) < 3:
        return
    missing = [name for name in SECTIONS if name not in page.ids]
    assert not missing, missing
    lines = [json.loads(line) for line in open(pathlib.Path(sys.argv[2]) / "metrics.jsonl", encoding="utf-8")]
    epochs = [line for line in lines if line["event"] == "epoch"]
    assert record["epochs"] == epochs and epochs
    shown = {row[0]: row[1:] for row in page.tables if row}
    for epoch in epochs:
        row = shown[str(epoch["epoch"])]
        for key, value in zip(("train_loss", "val_loss", "train_accuracy", "val_accuracy"), row):
            digits = float(value.rstrip(" %")) / (100 if value.endswith("%") else 1)
            assert abs(digits - epoch[key]) <= 6e-4 * max(abs(epoch[key]), 0.1), (key, value, epoch[key])
    for points in record["steps"].values():
        assert 0 < len(points) <= 2000 and all(a[0] < b[0] for a, b in zip(points, points[1:]))


main()
