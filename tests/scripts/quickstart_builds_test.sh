#!/usr/bin/env bash
# quickstart_builds_test.sh BIN: what scripts/quickstart.sh compiles is the library, train_digits and the tool, no other program; and the
# first line of a run says what computes.
set -euo pipefail
bin=$1 build=$(dirname "$1")
die() { echo "$*"; exit 1; }
[ -f "$build/build.ninja" ] || { echo "not built with ninja"; exit 77; }

inputs=$(ninja -C "$build" -t inputs bin/train_digits)
grep -q 'trainer/loop\|unity_trainer_cxx' <<<"$inputs" || die "the inputs of train_digits are not what this test thinks: $(head -3 <<<"$inputs")"
! grep -E 'athanor_tool|athanor_serve|train_mnist' <<<"$inputs" || die "train_digits waits for what it does not use"
! ninja -C "$build" -t inputs bin/athanor | grep -E 'train_mnist|_test' || die "the tool waits for what it does not use"

run=$("$bin/train_digits" --fast-dev-run --device cpu)
first=${run%%$'\n'*}
grep -qE '^train_digits: device cpu.*, (oneDNN [0-9]+\.[0-9]+\.[0-9]+|no oneDNN), (AVX-512|AVX2|NEON|baseline instructions),' <<<"$first" ||
  die "the first line does not say what computes: $first"
if grep -qw avx512vl /proc/cpuinfo 2>/dev/null && [ "$(uname -m)" = x86_64 ]; then
  grep -qF 'AVX-512' <<<"$first" || die "this CPU has AVX-512, but: $first"
fi
