#!/usr/bin/env bash
# scripts/nvcc_log.sh [LAUNCHER] nvcc ... -o FILE.o: the compiler launcher of .cu files. What ptxas says of each
# kernel (-Xptxas=-v: registers, shared memory, spills) goes to FILE.o.ptxas, where scripts/kernel_report.sh reads it;
# all else stays on the terminal.
set -uo pipefail

object="" before=""
for argument in "$@"; do
  [ "$before" != -o ] || object=$argument
  before=$argument
done
[ -n "$object" ] || exec "$@"

said=$(mktemp)
trap 'rm -f "$said"' EXIT
"$@" 2>"$said"
status=$?
resources='^ptxas info |^ +[0-9]+ bytes stack frame, '
grep -vE "$resources" "$said" >&2
[ "$status" -ne 0 ] || { grep -E "$resources" "$said" >"$object.ptxas" || true; }
exit "$status"
