#!/usr/bin/env bash
# together.sh SOURCE PREFIX FOLDER PICTURES CXX [LAUNCHER]: builds the projects of users against what is installed in PREFIX, all in
# one build in FOLDER, which an earlier one may have begun; and runs their programs. Where there is nvcc, kernels must compile for
# a GPU too.
set -euo pipefail
source=$1 prefix=$2 folder=$3 pictures=$4 cxx=$5 launcher=${6-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/checks.sh"
! grep -rnE '#include *[<"](autograd|data|dist|kernels|nn|optim|tensor|trainer)/' "$prefix/share/athanor" ||
  fail "the emulator must include nothing of the library"

copies=$folder/copies # outside the tree: nothing of it may be found by chance
rm -rf "$copies"
mkdir -p "$copies"
cp -rp "$here"/{project,own_tool} "$source"/examples/{own_project,own_kernels,own_op} "$copies"
# With one check the emulator is compiled once. The other: consumer.own_op, consumer.own_kernels.
sed -i 's/CHECK BOUNDS/CHECK RACE/' "$copies/own_op/CMakeLists.txt"
# Without optimisation, even where a build type asks for it: that is the compiler's work, not ours.
cmake -S "$here/together" -B "$folder/build" -G Ninja -D COPIES="$copies" -D CMAKE_PREFIX_PATH="$prefix" -D CMAKE_BUILD_TYPE=None \
  -D CMAKE_CXX_FLAGS=-O0 -D CMAKE_CXX_COMPILER="$cxx" -D CMAKE_CXX_COMPILER_LAUNCHER="$launcher"
cmake --build "$folder/build" --target consumer own_project own_tool check_races check check_kernel

if command -v pkg-config >/dev/null; then
  read -ra flags < <(PKG_CONFIG_PATH=$(dirname "$prefix"/lib*/pkgconfig/athanor.pc) pkg-config --cflags --libs athanor)
  "$cxx" -O0 "$copies/project/main.cpp" "${flags[@]}" -o "$folder/by_pkg_config" # a program is linked behind what it uses
  "$folder/by_pkg_config"
fi

cd "$folder/build"
./project/consumer
./own_project/own_project "$pictures"
[[ $(./own_project/own_project --help) == *--epochs* ]]
./own_tool/own_tool
check_race ./own_kernels/check_races "$copies/own_kernels"
./own_op/check
[ ! -e own_op/check_kernel ] || ./own_op/check_kernel
compile_for_gpu "$copies/own_kernels/row_sum.cu" -I "$prefix/share/athanor/simt/include"
compile_for_gpu "$copies/own_op/soft_shrink.cu" -I "$prefix/share/athanor/simt/include" -D ATHANOR_WITH_CUDA
