#!/usr/bin/env bash
# scripts/fuzz.sh [--seconds N] [--jobs N] [NAME...]: builds the fuzzers of tests/fuzz/ with clang, AddressSanitizer and
# UndefinedBehaviorSanitizer, and runs each (or those named) for N seconds, 60 by default, one at a time or so many at
# once. What it finds stays in build/fuzz/findings/. Ends with 1 if there is any.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

seconds=60 jobs=1
while [[ ${1-} = --* ]]; do
  case $1 in
    --seconds) seconds=$2 ;;
    --jobs) jobs=$2 ;;
    *) fail 2 "unknown option $1" ;;
  esac
  shift 2
done
cd "$root"
clang=$(command -v clang++-14 clang++ | sed -n 1p) || true
[ -n "$clang" ] || fail 2 "clang is needed: apt-get install clang-14"
build=build/fuzz
mkdir -p $build/findings
cmake -S tests/fuzz -B $build -G Ninja -DCMAKE_CXX_COMPILER="$clang" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" >$build/configure.log 2>&1 ||
  { cat $build/configure.log >&2; exit 3; }
cmake --build $build -j "$(nproc)" >$build/build.log 2>&1 || { cat $build/build.log >&2; exit 3; }
$build/make_corpus $build/seeds

fuzz_one() { # NAME
  local log=$build/$1.log verdict=ok
  mkdir -p "$build/corpus/$1" "$build/seeds/$1"
  "$build/$1_fuzz" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$build/findings/$1-" "$build/corpus/$1" "$build/seeds/$1" >"$log" 2>&1 ||
    verdict="FOUND: $(grep -m 1 '^SUMMARY: ' "$log" || tail -n 1 "$log")"
  printf '%-10s %9s runs in %s s, %s: %s\n' "$1" "$(sed -n 's/^stat::number_of_executed_units: //p' "$log")" \
    "$seconds" "$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1)" "$verdict"
  [ "$verdict" = ok ]
}
export -f fuzz_one
export build seconds

names=("$@")
[ ${#names[@]} -gt 0 ] ||
  mapfile -t names < <(find $build -maxdepth 1 -name '*_fuzz' -printf '%f\n' | sed 's/_fuzz$//' | sort)
printf '%s\n' "${names[@]}" | xargs -P "$jobs" -I NAME bash -c 'fuzz_one NAME' || exit 1
