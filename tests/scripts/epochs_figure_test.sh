#!/usr/bin/env bash
# epochs_figure_test.sh: the picture of docs/the_restarting_loader.md is that of the table beside it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
command -v python3 >/dev/null || { printf '%s: Skipped\npython3 is not installed here\n' "$0"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

die() { echo "$*"; cat err 2>/dev/null; exit 1; }
draw() { "$root/bench/peers/epochs_figure.py" "$@" 2>err; }
table=$root/bench/results/epochs_cpu.md

draw "$table" epochs.svg || die "no picture"
cmp epochs.svg "$root/docs/img/epochs.svg" || die "run bench/peers/epochs_figure.py bench/results/epochs_cpu.md docs/img/epochs.svg"
python3 -c 'import xml.dom.minidom as xml; xml.parse("epochs.svg")' || die "no XML"
[ "$(grep -c '<polyline' epochs.svg)" = 3 ] && [ "$(grep -c '<circle' epochs.svg)" = 15 ] || die "expected 3 curves of 5 points"

# A row that nobody asked for, or one that is not there, is an error of one line, and no picture.
rm epochs.svg
grep -v persistent "$table" >short.md
if draw short.md epochs.svg; then die "a curve is missing"; fi
grep -q 'must be of .*pytorch persistent' err && [ "$(wc -l <err)" = 1 ] || die "expected one line that says what is missing"
[ ! -e epochs.svg ] || die "a picture without the curve"
