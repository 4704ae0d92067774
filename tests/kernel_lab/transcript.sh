#!/usr/bin/env bash
# transcript.sh CHAPTER EXERCISE [--ptx]: the gdb session in CHAPTER (its ```gdb blocks, taken together) is what gdb says of
# EXERCISE: the same lines of source, the same values. --print writes the session instead. With --ptx it is a session of nvcc's PTX, and
# each ```ptx block stands in it. Code 77, and the reason, where there is no gdb, or not the nvcc that the chapter names.
set -euo pipefail
print=0
[ "$1" != --print ] || { print=1; shift; }
chapter=$1 exercise=$2 form=${3-}
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
command -v gdb >/dev/null || { printf '%s: Skipped\ngdb is not installed here\n' "$0"; exit 77; }
if [ -n "$form" ]; then
  source "$scripts/gpu_env.sh"
  version=$(sed -n 's/.*used version \([0-9.]*[0-9]\).*/\1/p' "$chapter")
  { find_nvcc && nvcc --version | grep -qF "release $version,"; } ||
    { printf '%s: Skipped\nnvcc %s is not installed here\n' "$0" "$version"; exit 77; }
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk '/^```gdb$/ { inside = 1; next } /^```/ { inside = 0 } inside && !/^$/' "$chapter" >"$folder/written"
{
  printf 'set pagination off\nset width 0\nset debuginfod enabled off\n'
  sed -n 's/^(gdb) //p' "$folder/written" | while read -r command; do
    printf 'echo (gdb) %s\\n\n%s\n' "$command" "$command"
  done
} >"$folder/commands"
KERNEL_LAB_GDB="-batch -x $folder/commands" SIMT_ORDER=forward "$scripts/kernel_lab.sh" $form --gdb "$exercise" </dev/null 2>&1 |
  grep -vE '^$|libthread_db|^Building |^Reading symbols' >"$folder/said" || true

[ $print = 0 ] || { cat "$folder/said"; exit; }
same() { grep -E '^(\(gdb\) |\$[0-9]+ = |[0-9]+	|Value returned|[a-z]+ = )' "$1"; }  # frames and addresses differ between machines
diff <(same "$folder/written") <(same "$folder/said") || { echo "the session in $chapter is not what gdb says"; exit 1; }
if [ -n "$form" ]; then # its blocks of PTX, as they stand there
  awk -v file="${KERNEL_LAB_BUILD:-$scripts/../build/kernel_lab}/ptx/$exercise.ptx" '
    BEGIN { while ((getline line < file) > 0) all = all line "\n" }
    /^```ptx$/ { inside = 1; block = ""; next }
    /^```/ && inside { inside = 0; ++blocks; if (!index(all, block)) { print "nvcc does not write:\n" block; bad = 1 } }
    inside { block = block $0 "\n" }
    END { exit bad || blocks < 3 }' "$chapter"
fi
