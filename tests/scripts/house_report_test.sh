#!/usr/bin/env bash
# house_report_test.sh: the house is within its budgets; and scripts/house_report.py goes red for each thing it is to find,
# planted in a small tree.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
report=(python3 "$root/scripts/house_report.py" --check)
"${report[@]}"

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
die() { printf '%s\n' "$*"; exit 1; }
mkdir -p cmake tests/include_direction tensor kernels simt nn
cp "$root/tests/include_direction/check.sh" tests/include_direction/
cat >HACKING.md <<'EOF'
| room | lines at most | goal | holds |
|---|---|---|---|
| engine | 2,000 | 20 | `tensor/` `kernels/` `nn/` |
| simt | 10 | 5 | `simt/` |

`kernels/long.cpp` (460 lines) is to be split.
EOF
lines() { for ((i = 0; i < $1; ++i)); do echo "// $i"; done; }
touch cmake/headers.cmake
printf '#pragma once\n' >tensor/shape.h
printf '#include "tensor/shape.h"\n' >kernels/conv.h
lines 460 >kernels/long.cpp
lines 10 >simt/fiber.cpp
{
  printf 'namespace a {\nstruct S {\n  S() : x_{1}, y_(2) {}\n  int x_, y_;\n};\n'
  printf 'const int table[] = {1, 2};\n#if X\nvoid f() {\n#else\nvoid f(int) {\n#endif\n  const char* s = "}";  // }\n}\n'
  printf 'template <class T>\nvoid slow(T t) {\n'
  lines 70
  printf '  if (t) { auto g = [] { return 1; }; }\n}\n}\n'
} >nn/module.cpp
found=$("${report[@]}" --root .) || die "a clean tree must pass: $found"
grep -qE '^engine +55[0-9] +2,000 +20 ' <<<"$found" || die "engine is counted wrong: $found"
grep -qE '^simt +10 +10 +5 ' <<<"$found" || die "simt is counted wrong: $found"
grep -q '^functions: 3, ' <<<"$found" || die "three functions: $found"
grep -qF '74  nn/module.cpp:14 slow' <<<"$found" || die "a long function was not found: $found"

goes_red() { # goes_red MESSAGE: and the tree is clean again when the file written last is gone
  if found=$("${report[@]}" --root .); then die "expected a failure: $1"; fi
  grep -qF "wrong: $1" <<<"$found" || die "expected '$1' in: $found"
  [ "$(grep -c '^wrong' <<<"$found")" -eq 1 ] || die "only '$1' was to be found: $found"
}
echo >>simt/fiber.cpp
goes_red 'simt has 11 lines, 1 over its budget'
lines 10 >simt/fiber.cpp
lines 451 >nn/long.cpp
goes_red 'nn/long.cpp has 451 lines'
rm nn/long.cpp
echo >>kernels/long.cpp
goes_red 'kernels/long.cpp has 461 lines: split it, 460 are the most'
lines 460 >kernels/long.cpp
for file in tests/cuda/long_test.cpp tests/long.py examples/long.sh bench/long.h; do
  mkdir -p "${file%/*}"
  lines 450 >"$file"
  "${report[@]}" --root . >/dev/null || die "450 lines are not too many: $file"
  echo >>"$file"
  goes_red "$file has 451 lines: split it, 450 are the most"
  printf '\n`%s` (451 lines) is to be split.\n' "$file" >>HACKING.md
  found=$("${report[@]}" --root .) || die "$file is listed in HACKING.md as longer, but is refused"
  grep -qxF "$file: 451 lines, still to be split" <<<"$found" || die "$file is not reported: $found"
  echo >>"$file"
  goes_red "$file has 452 lines: split it, 451 are the most"
  rm "$file"
done
lines 451 >tests/table.csv # no source
"${report[@]}" --root . >/dev/null || die "a table is no source"
printf '#include "nn/module.h"\n' >tensor/up.cpp
goes_red 'tensor/up.cpp:1: tensor/ may include only'
rm tensor/up.cpp
printf '#include "kernels/b.h"\n' >kernels/a.h
printf '#include "kernels/c.h"\n' >kernels/b.h
printf '#include "kernels/a.h"\n' >kernels/c.h
goes_red 'a circle of includes: kernels/a.h kernels/b.h kernels/c.h'
