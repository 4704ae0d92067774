#!/usr/bin/env python3
"""check.py ROOT [BIN]: prints `place: what is wrong` with the words that people read, and fails if there is anything.

  messages  string literals of the sources: no word of banned.txt or misspelt.txt, no word or space twice; a flag they name
            exists; an error of one line ends with a word
  pages     README, HACKING, CHANGELOG and docs/: the same words, outside of code
  help      with BIN, a folder of programs: no line of --help is wider than 80 columns
"""
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOMS = ("tensor", "kernels", "autograd", "nn", "optim", "dist", "data", "trainer", "examples", "simt")
PROGRAMS = ("train_digits", "train_mnist", "train_cifar10", "train_images", "athanor")
COLUMNS = 80
# cmake's, srun's, tar's, and those that CLI11 adds
FLAGS_OF_OTHERS = {"--preset", "--build", "--target", "--mpi", "--sparse", "--help", "--help-all"}


# Words -----------------------------------------------------------------------------------------------------------


def entries(name, separator):
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return [line.split(separator, 1) for line in lines if line and not line.startswith("#")]


# A space in a phrase is any white space, for lines are wrapped.
BANNED = [(re.compile(r"(?<!\w)(?:" + phrase.replace(" ", r"\s+") + r")(?!\w)", re.I), instead)
          for phrase, instead in entries("banned.txt", " = ")]
MISSPELT = dict(entries("misspelt.txt", " "))


def wrong_words(text):
    """[(position, what is wrong)]"""
    found = [(match.start(), f"'{' '.join(match.group().split())}': {instead}")
             for banned, instead in BANNED for match in banned.finditer(text)]
    for match in re.finditer(r"[A-Za-z]+", text):
        right = MISSPELT.get(match.group().lower())
        if right:
            found.append((match.start(), f"'{match.group()}' is spelt '{right}'"))
    return found + [(match.start(), f"'{match.group(1)}' twice") for match in re.finditer(r"\b([a-z]{2,})\s+\1\b", text)]


# Messages --------------------------------------------------------------------------------------------------------

# The tokens that matter: includes, comments, literals, parentheses and the end.
TOKEN = re.compile(r'#\s*include[^\n]*|//[^\n]*|/\*.*?\*/|R"(\w*)\((?P<raw>.*?)\)\1"|"(?P<text>(?:\\.|[^"\\\n])*)"'
                   r"|(?<!\w)'(?:\\.|[^'\\\n])+'|[()]|\Z", re.S)
ERROR = re.compile(r"(?:\bATH_CHECK|\bfail<[\w:]*>|\w(?:Error|_error))\s*$")
FORMAT = re.compile(r"\bformat\s*$")
DECLARES = re.compile(r'(?:\b(?:add\w*|on|ask|flag)\(\s*|== )"(--[^"\s]+)')


def literals(source):
    """(position, text, whether it is all that an error says, or its format). Adjacent literals are one."""
    at, end, text, calls, error = None, 0, "", [False], False
    for token in TOKEN.finditer(source):
        part = token["text"] if token["raw"] is None else token["raw"]
        if at is not None and (part is None or source[end:token.start()].strip()):
            yield at, text, error and source[end:].lstrip()[:1] in (",", ")")
            at, text = None, ""
        if part is not None:
            at, end, text, error = token.start() if at is None else at, token.end(), text + part, calls[-1]
        elif token.group() == "(":
            before = source[max(0, token.start() - 60):token.start()]
            calls.append(bool(ERROR.search(before)) or (calls[-1] and bool(FORMAT.search(before))))
        elif token.group() == ")" and len(calls) > 1:
            calls.pop()


def wrong_in_message(text, is_error, flags):
    yield from (what for _, what in wrong_words(text))
    if re.search(r"[^ ] {2}[^ ]", text) and not re.search(r"\{:[<>]|\\n|\n", text):  # tables and other languages align
        yield "two spaces"
    if is_error and text.count(" ") > 1 and "\\n" not in text:
        if text.endswith(" ") or (text.endswith(".") and not text.endswith("...")):
            yield "an error of one line ends with neither a space nor a full stop"
    for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*\w", text) if " " in text else ():
        if flag not in flags:
            yield f"there is no flag {flag}"


def messages(root):
    files = sorted(file for room in ROOMS for file in (root / room).rglob("*") if file.suffix in (".h", ".cpp", ".cu"))
    sources = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}
    flags = set(FLAGS_OF_OTHERS)
    for name, source in sources.items():
        if name.startswith(("trainer/", "examples/")):
            flags.update(flag for names in DECLARES.findall(source) for flag in names.split(","))
    for name, source in sources.items():
        for at, text, is_error in literals(source):
            for what in wrong_in_message(text, is_error, flags):
                yield f"{name}:{source.count(chr(10), 0, at) + 1}: {what}"


# Pages -----------------------------------------------------------------------------------------------------------


def prose(page):
    """The page with its lines, without code, and without the column `not` of HACKING.md, which quotes."""
    lines, fenced, quoting = [], False, False
    for line in page.split("\n"):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        quoting = line.startswith("|") and (quoting or line.startswith("| use | not |"))
        code = fenced or fence or line.startswith("    ")
        lines.append("" if code else line.split("|")[1] if quoting else line)
    return re.sub(r"`[^`\n]*`", "`code`", "\n".join(lines))


def pages(root):
    for page in [root / name for name in ("README.md", "HACKING.md", "CHANGELOG.md")] + sorted((root / "docs").rglob("*.md")):
        text = prose(page.read_text(encoding="utf-8"))
        for at, what in sorted(wrong_words(text)):
            yield f"{page.relative_to(root)}:{text.count(chr(10), 0, at) + 1}: {what}"


# Help ------------------------------------------------------------------------------------------------------------


def help_of(*command):
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run([*map(str, command), "--help"], env=environment, check=True, capture_output=True, text=True).stdout


def helps(folder):
    commands = re.findall(r"^  ([a-z][\w-]*) ", help_of(folder / "athanor").partition("Subcommands:")[2], re.M)
    if not commands:
        yield "athanor --help: lists no subcommands"
    for program, *command in [(name,) for name in PROGRAMS] + [("athanor", command) for command in commands]:
        for line in help_of(folder / program, *command).splitlines():
            if len(line) > COLUMNS:
                yield f"{' '.join((program, *command))} --help: a line of {len(line)} columns: {line.strip()[:60]}..."


def main():
    root = pathlib.Path(sys.argv[1])
    wrong = [*messages(root), *pages(root)]
    if len(sys.argv) > 2:
        wrong += helps(pathlib.Path(sys.argv[2]))
    else:
        print("no folder of programs: --help is not checked")
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
