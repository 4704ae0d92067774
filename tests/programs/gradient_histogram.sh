#!/usr/bin/env bash
# gradient_histogram.sh BIN DOCS: what examples/gradient_histogram.cpp counts and refuses, and docs/figures draws of it.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1 # a test leaves nothing in the tree
bin=$1 docs=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset ATHANOR_DATA_DIR
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null; exit 1; }
run() { # run CODE ARGUMENTS...
  local want=$1 code=0
  shift
  "$bin/gradient_histogram" "$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "$*: expected code $want, but got $code"
}
refuses() { # refuses PATTERN ARGUMENTS...: code 2, one line
  local pattern=$1
  shift
  run 2 "$@"
  [ "$(wc -l <err)" -eq 1 ] || die "$*: expected one line on stderr"
  grep -qE -- "$pattern" err || die "$*: expected '$pattern'"
}
# count TITLE ROW COLUMN: a number of the table; column 1 is of parameters, 2 of activations.
count() { sed -n "/^$1/,/^f16/p" out | sed -n "s/^  $2 *\([0-9,]*\) *[0-9.]* % *\([0-9,]*\) .*/\\$3/p" | sed -n 1p | tr -d ,; }

refuses "mean '--steps'" --step 3
refuses "mean 'digits_cnn'" --model digit_cnn
refuses "--steps" --steps -1
refuses "--loss-scale" --loss-scale 0
refuses "--out" --out /nowhere/histograms.json
refuses "scripts/get_data.sh cifar10" --model resnet20

# Without CIFAR-10 it takes the digits. Unscaled, gradients of activations become zero; scaled, hardly any.
run 0 --steps 60
draw() { "$docs/figures/draw.py" . gradient_histogram --from gradient_histogram.json >/dev/null || die "no picture"; }
draw
plain=$(count "f16, the loss as it is" "became zero" 2) scaled=$(count "f16, the loss times" "became zero" 2)
few=$(count "f16, the loss as it is" "subnormal: fewer bits" 2)
[ "$plain" -gt 1000 ] && [ "$few" -gt 10000 ] || die "unscaled: $plain became zero, $few subnormal"
[ $((scaled * 20)) -lt "$plain" ] || die "scaled: $scaled became zero, $plain without a scale"
[ "$(count "f16, the loss times" "overflowed" 2)" = 0 ] || die "overflow"
[ "$(head -c 4 gradient_histogram.svg)" = "<svg" ] && [ "$(tail -n 1 gradient_histogram.svg)" = "</svg>" ] || die "no SVG"
[ "$(grep -c '<g ' gradient_histogram.svg)" = 4 ] || die "expected four panels"
grep -q '>subnormal<' gradient_histogram.svg || die "no zones"

# Much too large a scale; and a file that was there is replaced, not added to.
run 0 --steps 1 --loss-scale 1e9
[ "$(count "f16, the loss times" "overflowed" 2)" -gt 0 ] || die "1e9 times the loss must overflow"
draw
[ "$(grep -c '</svg>' gradient_histogram.svg)" = 1 ] && grep -q 'times 1000000000' gradient_histogram.svg || die "the old picture is still there"
