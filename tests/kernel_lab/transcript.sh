#!/usr/bin/env bash
# transcript.sh CHAPTER EXERCISE: the gdb session in CHAPTER (its ```gdb blocks, taken together) is what gdb says of
# EXERCISE: the same lines of source, the same values. --print writes the session instead. Code 77, and the reason, where there is no gdb.
set -euo pipefail
print=0
[ "$1" != --print ] || { print=1; shift; }
chapter=$1 exercise=$2
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
command -v gdb >/dev/null || { printf '%s: Skipped\ngdb is not installed here\n' "$0"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk '/^```gdb$/ { inside = 1; next } /^```/ { inside = 0 } inside && !/^$/' "$chapter" >"$folder/written"
{
  printf 'set pagination off\nset width 0\nset debuginfod enabled off\n'
  sed -n 's/^(gdb) //p' "$folder/written" | while read -r command; do
    printf 'echo (gdb) %s\\n\n%s\n' "$command" "$command"
  done
} >"$folder/commands"
KERNEL_LAB_GDB="-batch -x $folder/commands" SIMT_ORDER=forward "$scripts/kernel_lab.sh" --gdb "$exercise" </dev/null 2>&1 |
  grep -vE '^$|libthread_db|^Building |^Reading symbols' >"$folder/said" || true

[ $print = 0 ] || { cat "$folder/said"; exit; }
same() { grep -E '^(\(gdb\) |\$[0-9]+ = |[0-9]+	|Value returned|[a-z]+ = )' "$1"; }  # frames and addresses differ between machines
diff <(same "$folder/written") <(same "$folder/said") || { echo "the session in $chapter is not what gdb says"; exit 1; }
