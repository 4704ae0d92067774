#!/usr/bin/env bash
# Builds the benchmarks and runs them: all, or the sets that are named (scripts/bench.sh matmul conv). Prints a table with the part
# of the roof that each row reaches; --json and --markdown write files.
#   scripts/bench.sh matmul --json before.json       # before a change: also keeps the binaries
#   scripts/bench.sh matmul --against before.json    # after it: old and new in turns; what is slower, what is faster
#   scripts/bench.sh softmax --trial 20              # is the comparison right, on this machine, now? 20 times without a change, 20 with 5 %
# --bin DIR runs the binaries of DIR and builds nothing. Codes: 0; 1 with --against where a row is slower; 2 for wrong arguments.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bin='' arguments=() targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --rows | --json | --markdown | --against | --seconds | --trial | --planted | --record | --bin)
      [ $# -ge 2 ] || fail 2 "scripts/bench.sh: $1 must be followed by a value"
      if [ "$1" = --bin ]; then bin=$(cd "$2" && pwd) || exit 2; else arguments+=("$1" "$2"); fi
      shift
      ;;
    -*) arguments+=("$1") ;;
    *) targets+=("bench_$1"); arguments+=("$1") ;;
  esac
  shift
done
case " ${arguments[*]} " in
  *" --help "* | *" -h "*) ;;
  *)
    if [ -z "$bin" ]; then
      where=$PWD
      set_up python3
      say "Building the benchmarks (build/cpu)" >&2
      { configure cpu && cmake --build --preset cpu --target "${targets[@]-bench}"; } >&2
      cd "$where"
    fi
    ;;
esac
exec python3 "$root/bench/bench.py" --bin "${bin:-$root/build/cpu/bin}" --kept "$root/build/bench-kept" "${arguments[@]}"
