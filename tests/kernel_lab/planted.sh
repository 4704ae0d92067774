#!/usr/bin/env bash
# planted.sh FOLDER: bugs planted into the shipped exercises, each of which must be named with its line.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
shipped=$root/examples/kernel_lab folder=$1
mkdir -p "$folder"
cd "$folder"
cp "$shipped"/{my_kernel,row_sum,rms_norm}.h .

# expect NAME TEXT...: the lab fails NAME, and says each TEXT.
expect() {
  local name=$1 said text
  shift
  if said=$("$root/scripts/kernel_lab.sh" --dir "$folder" "$name" 2>&1); then
    printf '%s: the planted bug was not found:\n%s\n' "$name" "$said"
    exit 1
  fi
  for text in "$@"; do
    grep -qF -- "$text" <<<"$said" || { printf '%s: expected "%s" in:\n%s\n' "$name" "$text" "$said"; exit 1; }
  done
}
line_of() { grep -nF -- "$2" "$1.cu" | sed -n 1p | cut -d: -f1; }

# The body as most write it first: it reads in front of the array and behind it.
sed 's|^  // Fill in.*|  if (i < n) y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3;|' "$shipped/my_kernel.cu" >ends.cu
expect ends "bounds    WRONG: READ of 4 bytes at " \
  "/ends.cu:$(line_of ends 'x[i - 1]'), 4 bytes before an array, in thread (0,0,0) of block (0,0,0)"

# A body that is right.
sed 's|^  // Fill in.*|  if (i < n) y[i] = (x[i > 0 ? i - 1 : 0] + x[i] + x[i + 1 < n ? i + 1 : i]) / 3;|' "$shipped/my_kernel.cu" >solved.cu
"$root/scripts/kernel_lab.sh" --dir "$folder" solved >said 2>&1 || { cat said; exit 1; }

# The barrier in the loop is gone.
awk '/__syncthreads/ && ++n == 2 { next } { print }' "$shipped/row_sum.cu" >no_barrier.cu
at=no_barrier.cu:$(line_of no_barrier 'sums[thread] += ')
expect no_barrier "races     FOUND: kernel row_sum: race in shared memory" "writes at $at, " "read at $at, "

# Two sums in one kernel share an array, and a fast thread overwrites it for the second before a slow one has read the
# first. No order the emulator knows makes that happen; it is a race all the same.
sed 's|block_sum(squares) / cols|(block_sum(squares) + 0 * block_sum(1.0f)) / cols|' "$shipped/rms_norm_shuffle.cu" >twice.cu
expect twice "values    right" "races     FOUND: kernel rms_norm_shuffle: race in shared memory" \
  "writes at twice.cu:$(line_of twice 'sums[threadIdx.x / 32] = value')" "read at twice.cu:$(line_of twice 'total += sums')"

# Only the first warp has written.
sed 's|^  sums\[thread\] = sum;|  if (thread < 32) sums[thread] = sum;|' "$shipped/row_sum.cu" >unwritten.cu
expect unwritten "races     FOUND: kernel row_sum: thread " "reads shared memory that no thread of the block has written, at unwritten.cu:$(line_of unwritten 'sums[thread] += ')"

# Half a warp and more wait where the others never come.
awk '/__syncthreads/ && ++n == 1 { sub(/__sync/, "if (thread < 40) __sync") } { print }' "$shipped/row_sum.cu" >divergent.cu
expect divergent "FAULT" "barrier divergence: thread (0,0,0) waits at " "/divergent.cu:$(line_of divergent 'if (thread < 40)')"

# It ends the program: nothing is known of its races. And what comes after a wrong one is counted all the same.
sed 's|^  // Fill in.*|  if (i < n) y[i] = x[i + (1LL << 40)];|' "$shipped/my_kernel.cu" >crash.cu
expect crash "bounds    WRONG: " "races     unknown: the program ended with code 139"
! said=$("$root/scripts/kernel_lab.sh" --dir "$folder" ends solved 2>&1) || { echo "ends must be wrong"; exit 1; }
[ "$(grep -c '^  counted ' <<<"$said")" = 1 ] || { printf 'solved must be counted, and ends must not:\n%s\n' "$said"; exit 1; }

# What is no exercise.
echo 'not C++' >nonsense.cu
for name in nonsense absent; do
  code=0
  "$root/scripts/kernel_lab.sh" --dir "$folder" $name >said 2>&1 || code=$?
  [ "$code" = 2 ] || { echo "$name must be code 2, but is $code"; exit 1; }
done
