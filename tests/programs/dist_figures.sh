#!/usr/bin/env bash
# dist_figures.sh BIN DOCS: what docs/figures draws from examples/dist_traces is what the chapters in DOCS show.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1 # a test leaves nothing in the tree
bin=$1 docs=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
die() { echo "$*"; cat "$folder/out" "$folder/err" 2>/dev/null; exit 1; }
refuses() { # refuses PATTERN ARGUMENTS...: code 2, one line
  local pattern=$1 code=0
  shift
  "$docs/figures/draw.py" --bin "$bin" "$@" >"$folder/out" 2>"$folder/err" || code=$?
  [ "$code" -eq 2 ] && [ "$(wc -l <"$folder/err")" -eq 1 ] || die "$*: expected code 2 and one line"
  grep -qE -- "$pattern" "$folder/err" || die "$*: expected '$pattern'"
}
refuses "folder"
refuses "must be a folder" /nowhere
refuses "'rings' must be one of" "$folder" rings

# One needs no program.
"$docs/figures/draw.py" "$folder" around_a_step >"$folder/out" 2>"$folder/err" || die "cannot draw around_a_step"
cmp -s "$folder/around_a_step.svg" "$docs/img/around_a_step.svg" || die "run docs/figures/draw.py docs/img around_a_step"
# Three follow from the code alone, and so must be those of the chapters, with their tables.
"$docs/figures/draw.py" --bin "$bin" "$folder" ring data_parallel_bytes zero1_layout >"$folder/out" 2>"$folder/err" || die "cannot draw"
for name in ring data_parallel_bytes zero1_layout; do
  cmp -s "$folder/$name.svg" "$docs/img/$name.svg" ||
    die "docs/img/$name.svg is not what the code draws; run docs/figures/draw.py docs/img $name"
done
[ "$(grep -c '^| [0-9]' "$folder/out")" -eq 12 ] || die "expected two tables of six rows"
while IFS= read -r row; do
  grep -qxF -- "$row" "$docs/why_not_data_parallel.md" "$docs/zero1_equals_ddp.md" || die "not in the chapters: $row"
done < <(grep '^| [0-9]' "$folder/out")
[ "$(grep -c 'class="arrived"' "$folder/ring.svg")" -eq 24 ] || die "a piece must arrive at 4 ranks in each of 6 steps"

"$bin/dist_traces" rings >"$folder/out" 2>"$folder/err" && die "dist_traces rings: expected code 2"
grep -q "'rings' must be one of ring," "$folder/err" || die "dist_traces rings: expected one line that names the rest"

# One is a measurement: its order of events is what counts. Unpushed, the first bucket leaves when the pass is over;
# pushed by the pass, before. Columns: | kind | backward pass | first bucket leaves | reduce() returns | waiting |
"$docs/figures/draw.py" --bin "$bin" "$folder" overlap >"$folder/out" 2>"$folder/err" || die "cannot draw overlap"
column() { sed -n "s/ ms//g; s/^| $1 |//p" "$folder/out" | cut -d'|' -f"$2" | tr -dc '0-9.'; }
before() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }
for kind in none pumped thread; do
  before 0 "$(column $kind 1)" && before "$(column $kind 1)" "$(column $kind 3)" || die "$kind: no step"
done
before "$(column none 2)" "$(column none 1)" && die "none: a bucket left before the pass was over"
before "$(column pumped 2)" "$(column pumped 1)" || die "pumped: no bucket left before the pass was over"
for kind in none pumped thread; do # layers sleep, so that all kinds have the same pass to hide behind
  before 119.9 "$(column $kind 1)" || die "$kind: the pass must take six layers of 20 ms"
done
[ "$(grep -c '>waits [0-9]* ms<' "$folder/overlap.svg")" -eq 3 ] || die "each kind must say how long it waited"
