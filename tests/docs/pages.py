"""The pages a reader meets, and what stands in them: commands, quoted figures, pictures."""
import re
import subprocess

FOLDERS = ("docs", "simt", "recipes", "examples", "bench/peers", "bench/scale", "bench/README.md")  # bench/results holds records, not instructions
PROGRAMS = """athanor awk chromium cmake cp ctest curl denoise docker export gdb git grep nice pkill pngquant python3 sbatch scontrol set source
srun tar tensorboard timeout torchrun train_cifar10 unshare""".split()
COMMAND = re.compile(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:~/\S+/bin/|(?:[\w.-]+/)?(?:build|scripts|bench|tests|docs/figures|docs/book|bin)/[\w./-]*\w(?![\w./-]| +\|)"
                     r"|for \w+ in .*; do\b|mpirun (?!noticed)|(?:" + "|".join(PROGRAMS) + r")(?= |$))")


def pages(root):
    """Paths of all Markdown pages, relative to `root`, in order."""
    found = [*root.glob("*.md"), *(page for folder in FOLDERS for page in (root.glob(f"{folder}/**/*.md") if "." not in folder else [root / folder]))]
    return sorted({page.relative_to(root).as_posix() for page in found} - {"CHANGELOG.md"})


def without_comment(line):
    return re.sub(r"\s+# .*$", "", line)


def is_whole(text):
    """Whether bash would not wait for more lines."""
    if not re.search(r"[\"'`{(]|\\$|\b(?:for|if|case|while)\b", text):
        return True
    said = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    return not text.endswith("\\") and "unexpected end of file" not in said.stderr and "unexpected EOF" not in said.stderr


def commands(text):
    """(line number, command) for each command of a page: of its ```bash blocks, and of those indented by four columns that begin as one.
    A comment after it is left out; lines that belong together are joined by newlines."""
    found, fence, open_at, opened, previous_empty = [], None, 0, "", True
    for number, line in enumerate(text.split("\n"), 1):
        start = re.match(r"```(\w*)", line)
        if start:
            fence, opened = (None if fence is not None else start[1]), ""
            continue
        shown = fence in ("bash", "sh") or (fence is None and line.startswith("    ") and (previous_empty or opened or found_near(found, number)))
        previous_empty = not line.strip() or (previous_empty and line.startswith("    "))
        if not shown or not line.strip():
            opened = ""
            continue
        part = without_comment(line[4:] if fence is None else line)
        if not opened and not (fence or COMMAND.match(part)):
            continue
        if not opened and part.lstrip().startswith("#"):
            continue
        opened, open_at = (f"{opened}\n{part}", open_at) if opened else (part.removeprefix("$ "), number)
        if is_whole(opened):
            found.append((open_at, opened))
            opened = ""
    return found


def found_near(found, number):
    return bool(found) and number - found[-1][0] <= found[-1][1].count("\n") + 1
