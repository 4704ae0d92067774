#!/usr/bin/env bash
# quotes.sh DOCS: every ```cuda block of the chapters stands word for word in an exercise, where the tests run it.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk -v folder="$folder" '
  /^```cuda$/ { inside = 1; ++blocks; name = sprintf("%s/%02d", folder, blocks); printf "%s:%d\n", FILENAME, FNR > (name ".where"); next }
  /^```/ { inside = 0 }
  inside { print > name }' "$1"/*.md
bad=0 count=0
for where in "$folder"/*.where; do
  block=${where%.where} found=0
  count=$((count + 1))
  for exercise in "$root"/examples/kernel_lab/*.cu; do
    if awk -v block="$block" '
      BEGIN { RS = "\001"; getline quoted < block; sub(/\n$/, "", quoted) }
      END { exit !index($0, quoted) }' "$exercise"; then found=1; fi
  done
  [ $found = 1 ] || { echo "$(cat "$where"): this code is in no exercise of examples/kernel_lab/"; bad=1; }
done
[ "$count" -gt 5 ] || { echo "the chapters quote only $count blocks: is the pattern still right?"; exit 1; }
exit $bad
