#!/usr/bin/env bash
# public_headers.sh ROOT: headers that a user may include, one a line: those that a CMakeLists.txt names in athanor_headers().
set -euo pipefail
cd "$1"
mapfile -t lists < <(grep -rl --include=CMakeLists.txt --exclude-dir=build '^athanor_headers(' ./*/ || true)
[ ! -e athanor.h ] || echo athanor.h
[ ${#lists[@]} -eq 0 ] || awk '
  FNR == 1 { folder = FILENAME; gsub(/^\.\/|CMakeLists\.txt$/, "", folder); gsub("//", "/", folder) }
  sub(/^athanor_headers\(/, "") { inside = 1 }
  inside { last = sub(/\).*/, ""); for (i = 1; i <= NF; ++i) print folder $i; inside = !last }' "${lists[@]}" | sort
