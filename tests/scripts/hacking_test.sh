#!/usr/bin/env bash
# hacking_test.sh BIN activation|convolution|op|cuda_convolution: HACKING.md's recipe, applied to a copy of the sources; the tests
# nearest to it, built and run there. Kernels of CUDA are compiled for the emulator.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
recipe=$2
copy=$(mktemp -d "${TMPDIR:-/tmp}/hacking.XXXXXX")
trap 'rm -rf "$copy"' EXIT
tar -C "$root" --exclude=./build --exclude=./.git -cf - . | tar -C "$copy" -xf -

case $recipe in
  activation) heading='## Adding an activation' ;;
  convolution) heading='## Adding a convolution' ;;
  op) heading='## Adding an op to' ;;
  cuda_convolution) heading='## Adding a CUDA convolution' ;;
esac
section=$(awk -v heading="$heading" 'index($0, "## ") == 1 { inside = index($0, heading) == 1 } inside' "$root/HACKING.md")
awk '/^```diff$/ { inside = 1; next } /^```$/ { inside = 0 } inside' <<<"$section" >"$copy/recipe.patch"
declare -A words=([2]=two [3]=three [4]=four [5]=five [6]=six [7]=seven [8]=eight)
files=$(grep -c '^+++ ' "$copy/recipe.patch")
grep -q "^$heading.*: ${words[$files]} files$" <<<"$section" || {
  echo "HACKING.md: the recipe edits $files files, its heading says otherwise: $(head -n 1 <<<"$section")"
  exit 1
}
patch --quiet --strip=1 --fuzz=0 --directory="$copy" <"$copy/recipe.patch"

build() { # folder "options" target...
  local folder=$copy/$1
  # shellcheck disable=SC2086
  cmake -S "$copy" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DATHANOR_ONE_ISA=ON -DATHANOR_BUILD_BENCH=OFF $2 >"$folder.log" ||
    { cat "$folder.log"; exit 1; }
  [[ $# -lt 3 ]] || cmake --build "$folder" --target "${@:3}"
}
compile_emulated() { # source...
  build emulated "-DATHANOR_CUDA=SIMT -DATHANOR_UNITY=OFF"
  local targets source object
  targets=$(ninja -C "$copy/emulated" -t targets all)
  for source; do
    object=$(grep -o "^[^:]*${source//./\\.}\.o" <<<"$targets") || { echo "hacking_test: nothing compiles $source"; exit 1; }
    ninja -C "$copy/emulated" "$object"
  done
}
run() { # test filter least
  local output
  output=$("$copy/build/bin/$1" --gtest_filter="$2") || { echo "$output"; exit 1; }
  local ran
  ran=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests*\.$/\1/p' <<<"$output")
  [[ $ran -ge $3 ]] || { echo "$1 --gtest_filter='$2': at least $3 tests must run, but $ran did"; exit 1; }
}
case $recipe in
  activation)
    build build "" autograd_test athanor-tool
    run autograd_test '*softsign*:Activations.*' 8
    grep -qw softsign <("$copy/build/bin/athanor" run-op --help)
    ;;
  convolution)
    build build "" kernels_test
    run kernels_test '*ConvList.Every*:ConvImplementations.*' 9
    ;;
  op)
    build build "" autograd_test
    run autograd_test '*log_sum_exp*:OpCases.*' 23
    compile_emulated kernels/cuda/softmax.cu
    ;;
  cuda_convolution) compile_emulated kernels/cuda/conv_naive.cu kernels/cuda/conv.cu kernels/account/conv.cpp ;;
esac
echo "HACKING.md: the recipe '${heading#* }' edits $files files, and its tests pass"
