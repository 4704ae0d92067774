#!/usr/bin/env bash
# gpu_bundle_test.sh BIN [real]: scripts/gpu_bundle.sh over programs and libraries that are made up; real: over the tool of BIN. Unpacked
# elsewhere they run with the libraries that came along; too large an archive, or a program that would not find them, is an error.
set -euo pipefail
bin=$1 real=${2-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{build/{bin,lib},other,there}
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

# made_up NAME [LIBRARY]: a program in C++ that needs a library of the build.
made_up() {
  local library=${2-libmade_up.so}
  [ -e "$folder/build/lib/$library" ] ||
    c++ -shared -fPIC -Wl,-soname,"$library" -x c++ -o "$folder/build/lib/$library" - <<<'int answer() { return 42; }'
  c++ -x c++ -o "$folder/build/bin/$1" - -x none "$folder/build/lib/$library" -Wl,-rpath,'$ORIGIN/../lib' -Wl,--enable-new-dtags \
    <<<'int answer(); int main(int count, char**) { try { throw answer() - 42 + (count == 3 ? 0 : 1); } catch (int code) { return code; } }'
}
if [ -n "$real" ]; then
  cp "$bin/athanor" "$folder/build/bin"
  library='libfmt.*'
else
  command -v c++ >/dev/null || { printf '%s: Skipped\nno c++ here\n' "$0"; exit 77; }
  made_up athanor
  library='libmade_up.so'
fi
cp "$folder/build/bin/athanor" "$folder/build/bin/bench_cuda"

mkdir -p "$folder/cache/athanor/plans"
echo '{}' >"$folder/cache/athanor/plans/1.json"
tar -C "$folder" -czf "$folder/cache.tar.gz" cache
pack 0 "$folder/a.tar.gz" --build "$folder/build" --cache "$folder/cache.tar.gz"
says '2 programs for 90a-real, needs glibc 2\.'
tar -xf "$folder/a.tar.gz" -C "$folder/there"
bundle=$folder/there/athanor-gpu
mv "$folder/build" "$folder/away" # nothing of it may be found there
[ -f "$bundle/tests/golden/relu.safetensors" ] || die "golden files are missing"
[ -f "$bundle/cache/athanor/plans/1.json" ] || die "the plans of an earlier visit are missing"
[ -f "$bundle/bench/peers/pytorch/gpu_step.py" ] || die "PyTorch's side is missing"
ldd "$bundle/bin/athanor" >"$folder/out"
says "$library => $bundle/bin/\.\./lib/"
! grep -q 'stdc.*there' "$folder/out" || die "the machine's own C++ library comes first"
env -i PATH=/usr/bin:/bin bash -c 'set -e; cd "$0"; source env.sh; bin/athanor plan lenet5' "$bundle" \
  >"$folder/out" 2>&1 || die "an unpacked program does not run"
mv "$folder/away" "$folder/build"
rm "$folder/a.tar.gz"

code=0
FAKE_GPU=none NVIDIA_PROC=$folder/none PATH=$here/gpu:$PATH "$bundle/scripts/gpu_visit.sh" --out "$folder/report" >"$folder/out" 2>&1 || code=$?
[ "$code" -eq 3 ] || [ "$code" -eq 2 ] || die "without a GPU: expected code 3, but got $code"
[ -z "$real" ] || exit 0

pack 2 "$folder/a.zip" --build "$folder/build"
says 'must be named'
pack 2 "$folder/a.tar.gz" --build "$folder/other"
says 'has no bin/bench_cuda'
pack 2 "$folder/a.tar.gz" --build "$folder/build" --cache "$folder/none"
says "--cache must be a visit's cache.tar.gz"
pack 1 "$folder/a.tar.gz" --build "$folder/build" --limit-mb 0
says 'at most 0 million bytes'
[ ! -e "$folder/a.tar.gz" ] || die "too large an archive must not stay"
glibc=2.1 pack 1 "$folder/a.tar.gz" --build "$folder/build"
says 'must do with glibc 2\.1, but needs 2\.'

made_up train_digits libmpi.so.40
pack 1 "$folder/a.tar.gz" --build "$folder/build"
says 'train_digits must do without MPI'
rm "$folder/build/bin/train_digits"

cp "$(type -P ls)" "$folder/build/bin/train_lost"
pack 1 "$folder/a.tar.gz" --build "$folder/build"
says 'train_lost does not look for its libraries'
