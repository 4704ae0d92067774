#!/usr/bin/env bash
# check.sh FILE COMPILER [FLAGS...]: FILE compiles, and with -DATHANOR_MUST_FAIL does not, for the reason it states.
set -euo pipefail
file=$1
shift
expected=$(sed -n '1s|^// error: ||p' "$file")
[ -n "$expected" ] || { echo "$file:1: must read '// error: REGEX'"; exit 1; }

"$@" "$file" || { echo "$file: must compile without ATHANOR_MUST_FAIL"; exit 1; }
if output=$("$@" -DATHANOR_MUST_FAIL "$file" 2>&1); then
  echo "$file: must not compile with ATHANOR_MUST_FAIL"
  exit 1
fi
grep -qE "$expected" <<<"$output" || { printf '%s: expected an error like %s, but got\n%s\n' "$file" "$expected" "$output"; exit 1; }
