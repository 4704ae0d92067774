#!/usr/bin/env python3
"""filter.py SOURCE OUT HEADER...: writes each header of SOURCE to OUT as Doxygen should read it. One comment stands for the declarations that follow it without an empty line:
each gets a copy. `<T>` in a comment is text, not a tag of HTML; `\\x1b` is no command. Line numbers may shift: Doxygen names symbols, too."""
import pathlib
import re
import sys


def escaped(comment):
    """Of a comment line: what Doxygen would take for HTML or a command, outside of code."""
    parts = re.split(r"(`[^`]*`)", comment)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"<(?=\w)", r"\\<", parts[i]).replace("\\t", "\\\\t").replace("\\x", "\\\\x")
    return "".join(parts)


def filtered(text):
    text = re.sub(r"^template <> struct fmt::formatter.*?(?:\};| \{\};)$", "", text, flags=re.M | re.S)  # Doxygen knows no fmt
    comment, collecting, begins = [], False, True  # `begins`: the next line of code begins a declaration
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped.startswith("///"):
            if not collecting:
                comment, collecting = [], True
            comment.append(escaped(line))
            yield comment[-1]
            continue
        if not stripped or stripped.startswith(("//", "#", "}", "namespace", "public:", "protected:", "private:")):
            comment, collecting, begins = [], False, True
            yield line
            continue
        inside = stripped.startswith(("return", "case", "default", "if ", "for "))
        if begins and comment and not collecting and re.match(r"^ {0,2}[\w:]", line) and not inside:
            yield from comment
        collecting, begins = False, stripped.endswith((";", "}"))
        code, mark, after = line.partition("///<")
        yield code + mark + escaped(after) if mark else line


def main():
    source, out, *headers = sys.argv[1:]
    for header in headers:
        to = pathlib.Path(out) / header
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text("\n".join(filtered((pathlib.Path(source) / header).read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
