#!/usr/bin/env bash
# house_report_test.sh: no include of the tree points upwards or in a circle; scripts/house_report.py goes red for one that does,
# planted in a small tree, and counts that tree right.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
report=(python3 "$root/scripts/house_report.py" --check)
"${report[@]}"

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
die() { printf '%s\n' "$*"; exit 1; }
mkdir -p scripts tests/include_direction tensor kernels/cpu simt nn
cp "$root/tests/include_direction/check.sh" tests/include_direction/
cp "$root/scripts/public_headers.sh" scripts/
lines() { for ((i = 0; i < $1; ++i)); do echo "// $i"; done; }
printf '#pragma once\n' >tensor/shape.h
printf '#include "tensor/shape.h"\n' >kernels/conv.h
lines 460 >kernels/cpu/long.cpp
mkdir tests/nn
lines 500 >tests/nn/long.py
lines 600 >tests/nn/table.csv # no source
lines 10 >simt/fiber.cpp
printf 'namespace a {}\n' >nn/module.cpp
found=$("${report[@]}" --root .) || die "a clean tree must pass: $found"
shows() { grep -qE "$1" <<<"$found" || die "expected '$1' in: $found"; }
shows '^kernels +461 +2 '
shows '^  kernels/cpu +460 +1 '
shows '^simt +10 +1 '
shows '^all rooms +473 +5 '
shows '^  tests/nn +500 +1 '

goes_red() { # goes_red MESSAGE: and nothing else is wrong
  if found=$("${report[@]}" --root .); then die "expected a failure: $1"; fi
  grep -qF "wrong: $1" <<<"$found" || die "expected '$1' in: $found"
  [ "$(grep -c '^wrong' <<<"$found")" -eq 1 ] || die "only '$1' was to be found: $found"
}
printf '#include "nn/module.h"\n' >tensor/up.cpp
goes_red 'tensor/up.cpp:1: tensor/ may include only'
rm tensor/up.cpp
printf '#include "kernels/b.h"\n' >kernels/a.h
printf '#include "kernels/c.h"\n' >kernels/b.h
printf '#include "kernels/a.h"\n' >kernels/c.h
goes_red 'a circle of includes: kernels/a.h kernels/b.h kernels/c.h'
