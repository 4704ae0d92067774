#!/usr/bin/env bash
# goes_red.sh NVCC: a planted spill, a planted stack, too many registers and a pattern for nothing must all be named.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scripts=$here/../../scripts
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

"$scripts/nvcc_log.sh" "$1" -arch=sm_90 -Xptxas=-v -c "$here/spills.cu" -o "$build/spills.cu.o"
echo "$build/spills.cu.o" >"$build/cuda_objects.txt"

# What holds from sm_100 on, or up to sm_80, says nothing of sm_90.
printf '%s\n' 'spills tidy<(float|Half)> 40' 'spills spills|has_stack 64 100' 'spills tidy<.*> 4 75-80' >"$build/green.txt"
"$scripts/kernel_report.sh" --build "$build" --check "$build/green.txt" ||
  { echo "a list of tidy kernels must pass"; exit 1; }

printf '%s\n' '# everything' '' 'spills tidy<.*> 4 75-90' 'spills spills|has_stack 64' 'spills gone.* 40' \
  'spills tidy<.*> 40 sm_80' >"$build/red.txt"
if found=$("$scripts/kernel_report.sh" --build "$build" --check "$build/red.txt"); then
  echo "planted spills were not found"
  exit 1
fi
for expected in 'spills\.cu: spills \(sm_90\) must not spill, but moves [1-9][0-9]* bytes' \
  'spills\.cu: has_stack \(sm_90\) must keep no stack, but has 64 bytes' \
  'spills\.cu: tidy<float> \(sm_90\) must need at most 4 registers, but needs [0-9]+' \
  'a line must be source, pattern, registers and perhaps an architecture, but is: spills tidy<\.\*> 40 sm_80' \
  'no kernel of spills\.cu is called \^\(gone\.\*\)\$'; do
  grep -qE "$expected" <<<"$found" || { printf 'expected %s in:\n%s\n' "$expected" "$found"; exit 1; }
done
