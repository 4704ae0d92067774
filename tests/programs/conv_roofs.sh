#!/usr/bin/env bash
# conv_roofs.sh BIN DOCS: what bench_conv_choices prints, refuses and writes, and the picture that is drawn of it.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1 # a test leaves nothing in the tree
bin=$1 docs=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null; exit 1; }
for wrong in digits_cnn digits_cnn:0 digits_cnn:4:f33 no_such_model:4; do
  code=0
  "$bin/bench_conv_choices" "$wrong" >out 2>err || code=$?
  [ "$code" -eq 2 ] && [ "$(wc -l <err)" -eq 1 ] || die "$wrong: expected one line and code 2, but got $code"
done

OMP_NUM_THREADS=1 "$bin/bench_conv_choices" --json rows.json digits_cnn:4 digits_cnn:4:bf16 >out 2>err || die "code $?"
# Three convolutions, the first of which has no backward-data: eight passes in each precision.
[ "$(grep -c "GFLOP/s, [1-9]" out)" -eq 16 ] || die "expected 16 passes"
[ "$(grep -cE '^digits_cnn:4:(f32|bf16) +[0-9.]+ +[0-9.]+ +[0-9.]+' out)" -eq 2 ] || die "expected two sums"
python3 - <<'EOF' || die "rows.json"
import json
found = json.load(open("rows.json"))
rows = found["rows"]
assert len(rows) == 16 and found["flops_per_s"] > 1e8 and found["bytes_per_s"] > 1e8, found
first = rows[0]
words = first["conv"].split()
assert words[:3] == ["forward", "f32", "f32"] and words[4:7] == ["4", "8", "8"], words
n, h, w, c, k, r, s, p, q = map(int, words[4:13])
assert first["flops"] == 2 * n * p * q * k * r * s * c, first
assert first["bytes"] == 4 * (n * h * w * c + k * r * s * c + n * p * q * k), first
assert all(t > 0 for row in rows for t in row["seconds"].values()), rows
EOF
if ! grep -q '"vendor"' rows.json; then exit 0; fi # a build without oneDNN has nothing to compare with
"$docs/figures/draw.py" . conv_roofs --from rows.json >table || die "no picture"
[ "$(grep -c '<circle' conv_roofs.svg)" -eq 19 ] || die "expected two dots for each of eight passes, and three in the legend"
grep -qE '^forward +3 ' table || die "$(cat table)"
