#!/usr/bin/env bash
# gpu_bundle_test.sh BIN: scripts/gpu_bundle.sh over a program of BIN: unpacked elsewhere it runs with the libraries that
# came along; too large an archive, or a program that would not find them, is an error.
set -euo pipefail
bin=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{build/bin,other,there}
cp "$bin/athanor" "$folder/build/bin"
cp "$bin/athanor" "$folder/build/bin/bench_cuda"
echo 'ATHANOR_CUDA_ARCHITECTURES:STRING=90a-real' >"$folder/build/CMakeCache.txt"

glibc=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2) # a bundle made here runs here

die() { echo "$*"; cat "$folder/out"; exit 1; }
pack() { # pack CODE ARGUMENTS...
  local want=$1 code=0
  shift
  "$here/../../scripts/gpu_bundle.sh" "$@" --glibc "$glibc" >"$folder/out" 2>&1 || code=$?
  [ "$code" -eq "$want" ] || die "gpu_bundle.sh $*: expected code $want, but got $code"
}
says() { grep -qE -- "$1" "$folder/out" || die "expected '$1'"; }

pack 2 "$folder/a.zip" --build "$folder/build"
says 'must be named'
pack 2 "$folder/a.tar.gz" --build "$folder/other"
says 'has no bin/bench_cuda'
pack 1 "$folder/a.tar.gz" --build "$folder/build" --limit-mb 1
says 'at most 1 million bytes'
[ ! -e "$folder/a.tar.gz" ] || die "too large an archive must not stay"

glibc=2.17 pack 1 "$folder/a.tar.gz" --build "$folder/build"
says 'must do with glibc 2\.17, but needs 2\.'
mkdir -p "$folder/cache/athanor/plans"
echo '{}' >"$folder/cache/athanor/plans/1.json"
pack 2 "$folder/a.tar.gz" --build "$folder/build" --cache "$folder/none"
says '--cache must be a folder'
pack 0 "$folder/a.tar.gz" --build "$folder/build" --cache "$folder/cache"
says '2 programs for 90a-real, needs glibc 2\.'
tar -xf "$folder/a.tar.gz" -C "$folder/there"
bundle=$folder/there/athanor-gpu
[ -f "$bundle/tests/golden/relu.safetensors" ] || die "golden files are missing"
[ -f "$bundle/cache/athanor/plans/1.json" ] || die "the plans of an earlier visit are missing"
[ -f "$bundle/bench/peers/pytorch/gpu_step.py" ] || die "PyTorch's side is missing"
ldd "$bundle/bin/athanor" >"$folder/out"
says "libfmt.* => $bundle/bin/\.\./lib/libfmt"
! grep -q 'stdc.*there' "$folder/out" || die "the machine's own C++ library comes first"
env -i PATH=/usr/bin:/bin bash -c 'set -e; cd "$0"; source env.sh; bin/athanor plan lenet5' "$bundle" \
  >"$folder/out" 2>&1 || die "an unpacked program does not run"

code=0
FAKE_GPU=none NVIDIA_PROC=$folder/none PATH=$here/gpu:$PATH "$bundle/scripts/gpu_check.sh" >"$folder/out" 2>&1 || code=$?
[ "$code" -eq 3 ] || [ "$code" -eq 2 ] || die "without a GPU: expected code 3, but got $code"

if ldd "$bin/train_digits" | grep libmpi >/dev/null; then
  cp "$bin/train_digits" "$folder/build/bin"
  pack 1 "$folder/a.tar.gz" --build "$folder/build"
  says 'train_digits must do without MPI'
  rm "$folder/build/bin/train_digits"
fi

cp "$(type -P ls)" "$folder/build/bin/train_lost"
pack 1 "$folder/a.tar.gz" --build "$folder/build"
says 'train_lost does not look for its libraries'
