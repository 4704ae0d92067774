#!/usr/bin/env bash
# own_kernels.sh SOURCE BUILD FOLDER CXX [LAUNCHER]: installs the emulator alone from the build tree BUILD into FOLDER, builds
# examples/own_kernels against it, and demands that the correct kernel passes and the planted race is reported. Where
# there is nvcc, the kernels must compile for a GPU too.
set -euo pipefail
source=$1 build=$2 folder=$3 cxx=$4 launcher=${5-}
example=$source/examples/own_kernels
fail() { printf '%s\n' "$@"; exit 1; }

rm -rf "$folder"
cmake --install "$build" --component simt --prefix "$folder/prefix" >/dev/null
[ ! -e "$folder/prefix/lib/libathanor.a" ] || fail "the component simt must bring the emulator alone"
! grep -rnE '#include *[<"](autograd|data|dist|kernels|nn|optim|tensor|trainer)/' "$folder/prefix" ||
  fail "the emulator must include nothing of the library"

cp -r "$example" "$folder/source" # outside the tree: nothing of it may be found by chance
cmake -S "$folder/source" -B "$folder/build" -G Ninja -D CMAKE_PREFIX_PATH="$folder/prefix" -D CMAKE_BUILD_TYPE=Release \
  -D CMAKE_CXX_COMPILER="$cxx" -D CMAKE_CXX_COMPILER_LAUNCHER="$launcher"
cmake --build "$folder/build"

for program in check_races check_bounds; do
  "$folder/build/$program" || fail "$program: the correct kernel must pass"
done
code=0
found=$("$folder/build/check_races" racy) || code=$?
line=$(grep -n 'partial\[threadIdx.x\] +=' "$example/row_sum.cu" | cut -d: -f1)
[[ $code = 1 && $found == *"kernel row_sum_racy: race in shared memory"*"row_sum.cu:$line,"* ]] ||
  fail "the race at row_sum.cu:$line must be reported with code 1, but code $code says:" "$found"

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [ -n "$nvcc" ]; then
  "$nvcc" -std=c++20 -I "$folder/prefix/share/athanor" -c "$folder/source/row_sum.cu" -o "$folder/row_sum.o"
fi
