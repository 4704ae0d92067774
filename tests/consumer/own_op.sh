#!/usr/bin/env bash
# own_op.sh SOURCE PREFIX FOLDER CXX [LAUNCHER]: builds examples/own_op against what is installed in PREFIX, and runs its checks: the op on
# the CPU, and its CUDA kernels on the emulator. Where there is nvcc, the kernels must compile for a GPU too.
set -euo pipefail
source=$1 prefix=$2 folder=$3 cxx=$4 launcher=${5-}
source "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

rm -rf "$folder"
mkdir -p "$folder"
cp -r "$source/examples/own_op" "$folder/source" # outside the tree: nothing of it may be found by chance
cmake -S "$folder/source" -B "$folder/build" -G Ninja -D CMAKE_PREFIX_PATH="$prefix" -D CMAKE_BUILD_TYPE=Release \
  -D CMAKE_CXX_COMPILER="$cxx" -D CMAKE_CXX_COMPILER_LAUNCHER="$launcher"
cmake --build "$folder/build"
"$folder/build/check"
[ ! -e "$folder/build/check_kernel" ] || "$folder/build/check_kernel"
compile_for_gpu "$folder/source/soft_shrink.cu" -I "$prefix/share/athanor/simt/include" -D ATHANOR_WITH_CUDA
