#!/usr/bin/env bash
# own_kernels.sh SOURCE BUILD FOLDER CXX [LAUNCHER]: installs the emulator alone from the build tree BUILD into FOLDER, builds
# examples/own_kernels against it, and demands that the correct kernel passes and the planted race is reported. Where
# there is nvcc, the kernels must compile for a GPU too.
set -euo pipefail
source=$1 build=$2 folder=$3 cxx=$4 launcher=${5-}
example=$source/examples/own_kernels
source "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

rm -rf "$folder"
cmake --install "$build" --component simt --prefix "$folder/prefix" >/dev/null
[ ! -e "$folder/prefix/lib/libathanor.a" ] || fail "the component simt must bring the emulator alone"
! grep -rnE '#include *[<"](autograd|data|dist|kernels|nn|optim|tensor|trainer)/' "$folder/prefix" ||
  fail "the emulator must include nothing of the library"

cp -r "$example" "$folder/source" # outside the tree: nothing of it may be found by chance
cmake -S "$folder/source" -B "$folder/build" -G Ninja -D CMAKE_PREFIX_PATH="$folder/prefix" -D CMAKE_BUILD_TYPE=Release \
  -D CMAKE_CXX_COMPILER="$cxx" -D CMAKE_CXX_COMPILER_LAUNCHER="$launcher"
cmake --build "$folder/build"

check_race "$folder/build/check_races" "$example"
"$folder/build/check_bounds" || fail "check_bounds: the correct kernel must pass"
compile_for_gpu "$folder/source/row_sum.cu" -I "$folder/prefix/share/athanor/simt/include"
