#!/usr/bin/env python3
"""filter.py HEADER: the header as Doxygen should read it. One comment stands for the declarations that follow it without an empty line:
each gets a copy. `<T>` in a comment is text, not a tag of HTML; `\\x1b` is no command. Line numbers may shift: Doxygen names symbols, too."""
import re
import sys


def escaped(comment):
    """Of a comment line: what Doxygen would take for HTML or a command, outside of code."""
    parts = re.split(r"(`[^`]*`)", comment)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"<(?=\w)", r"\\<", parts[i]).replace("\\t", "\\\\t").replace("\\x", "\\\\x")
    return "".join(parts)


def main():
    comment, collecting, begins = [], False, True  # `begins`: the next line of code begins a declaration
    for line in open(sys.argv[1], encoding="utf-8").read().split("\n"):
        stripped = line.strip()
        if stripped.startswith("///"):
            if not collecting:
                comment, collecting = [], True
            comment.append(escaped(line))
            print(comment[-1])
            continue
        if not stripped or stripped.startswith(("//", "#", "}", "namespace", "public:", "protected:", "private:")):
            comment, collecting, begins = [], False, True
            print(line)
            continue
        if begins and comment and not collecting and re.match(r"^ {0,2}[\w:]", line) and not line.strip().startswith(("return", "case", "default", "if ", "for ")):
            print("\n".join(comment))
        collecting, begins = False, stripped.endswith(";") or stripped.endswith("}")
        code, mark, after = line.partition("///<")
        print(code + mark + escaped(after) if mark else line)


if __name__ == "__main__":
    main()
