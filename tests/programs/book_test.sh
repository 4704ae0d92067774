#!/usr/bin/env bash
# book_test.sh BIN SOURCE: the heads of the chapters and their list, links between the pages, figures that are what their programs
# draw, the program that one_step_by_hand quotes, and what the scripts of docs/book refuse. Needs Python alone.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
bin=$1 source=$2
docs=$source/docs
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
die() { echo "$*"; cat "$folder/out" 2>/dev/null; exit 1; }

"$docs/book/order.py" --check >"$folder/out" 2>&1 || die "the heads of the chapters, or their list"
"$docs/book/links.py" "$source" >"$folder/out" 2>&1 || die "dead links"
grep -qE '^[0-9]+ pages, [0-9]{3,} links, 0 dead$' "$folder/out" || die "links.py reads too little"
python=$(python3 -c "import sys; print(sys.executable)")
PATH=$folder "$python" "$docs/book/links.py" "$source" >"$folder/out" 2>&1 || die "links.py needs git"

# What they must find. A site of one page, and a copy of the book, with faults.
mkdir -p "$folder/site"
printf '<h1 id="here">x</h1><a href="#here">x</a><a href="gone.html">x</a><a href="#nowhere">x</a>' >"$folder/site/a.html"
! "$docs/book/links.py" "$folder/site" >"$folder/out" || die "links.py finds no dead link"
grep -q 'gone.html: no such file' "$folder/out" && grep -q '#nowhere: no such heading' "$folder/out" &&
  grep -qx '1 pages, 3 links, 2 dead' "$folder/out" || die "links.py: expected two dead links"
mkdir -p "$folder/copy/bench"
cp -r "$docs" "$folder/copy/"
for room in "$source"/*/; do
  case $(basename "$room") in bench | build | docs) ;; *) ln -s "${room%/}" "$folder/copy/" ;; esac
done
copy=$folder/copy/docs
sed -i 's/^| \*\*Time\*\* | .*/| **Time** | long |/' "$copy/tensors.md"
sed -i 's/^!\[.*//' "$copy/gradcheck.md"
sed -i 's/^| \*\*You need\*\* | .*/| **You need** | [The ring](the_ring.md) |/' "$copy/initialisation.md"
sed -i 's/exercise 15\](/exercise 16](/' "$copy/the_ring.md"
sed -i "/order.py writes what follows/,\$d" "$copy/kill_nine.md"
echo "// Explained in docs/gone.md." >"$folder/copy/bench/of_no_page.h"
echo "// Explained in docs/tensors.md." >"$folder/copy/bench/unnamed.h"
echo "# Stray" >"$copy/stray.md"
! "$copy/book/order.py" --check >"$folder/out" || die "order.py finds nothing"
for fault in "tensors.md: Time must be" "gradcheck.md: has no figure" "initialisation.md: needs the_ring" \
  "the_ring.md: run docs/book/order.py" "stray.md: docs/book/order.txt" \
  "kill_nine.md: run docs/book/order.py" "of_no_page.h: there is no docs/gone.md" "unnamed.h: docs/tensors.md is said to"; do
  grep -qF "$fault" "$folder/out" || die "order.py: expected '$fault'"
done

# Figures that need no program, or whose numbers are committed: what is drawn is what the pages show.
pages=$(cd "$docs/figures" && python3 -c 'import draw; print(*(f"{name}:{draw.MECHANISMS.get(name, name)}" for name in draw.PAGES))')
"$docs/figures/draw.py" "$folder" $(printf '%s\n' $pages | cut -d: -f1) >"$folder/out" 2>&1 || die "cannot draw"
for figure in $pages; do
  name=${figure%:*} page=${figure#*:}
  cmp -s "$folder/$name.svg" "$docs/img/$name.svg" || die "docs/img/$name.svg: run docs/figures/draw.py docs/img $name"
  grep -q "img/$name.svg" "$docs/$page.md" || die "docs/$page.md does not show docs/img/$name.svg"
done

# The quotes of the first chapter are the program, and the program learns what the chapter says.
python3 - "$docs/one_step_by_hand.md" "$source/examples/one_step.cpp" >"$folder/out" 2>&1 <<'END' || die "one_step_by_hand.md quotes another program"
import re, sys
page, program = (open(name, encoding="utf-8").read() for name in sys.argv[1:])
quotes = re.findall(r"```c\+\+\n(.*?)```", page, re.DOTALL)
assert len(quotes) >= 6, len(quotes)
for quote in quotes:
    assert quote in program, quote
assert f"in {len(program.splitlines())} lines" in page, len(program.splitlines())
END
"$bin/one_step" >"$folder/out" || die "one_step"
awk '/^epoch 10/ { found = 1; if ($(NF - 1) < 95) exit 1 } END { exit !found }' "$folder/out" || die "one_step must exceed 95 %"

"$bin/book_figures" nothing >"$folder/out" 2>&1 && die "book_figures nothing: expected code 2"
grep -q "'nothing' must be one of gradcheck, " "$folder/out" || die "expected one line that names the rest"
# The lowest error of a difference lies where the chapter says, and the right initialisation keeps its size.
"$bin/book_figures" gradcheck >"$folder/gradcheck.json"
"$bin/book_figures" activation_memory >"$folder/memory.json"
python3 - "$folder" >"$folder/out" 2>&1 <<'END' || die "book_figures"
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
rows = json.loads((folder / "gradcheck.json").read_text())
best, step = min(zip(rows["f64"], rows["step"]))
assert 1e-6 < step < 1e-4 and best < 1e-10, (best, step)
best, step = min((error, step) for step, error in rows["f32"])
assert 1e-3 < step < 3e-2 and 1e-6 < best < 1e-3, (best, step)
memory = {key: max(value["bytes"]) for key, value in json.loads((folder / "memory.json").read_text()).items()}
assert memory["4"] < 0.6 * memory["0"] and memory["1"] > memory["0"], memory
END
