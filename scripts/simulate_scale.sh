#!/usr/bin/env bash
# Trains and times on 8 to 1,024 ranks that SimGrid simulates, from the library's own sources: writes bench/results/scale_smpi.md
# and docs/img/scale.svg. The network is made up (bench/scale/platform.py says of what); nothing here was measured on one.
# Takes 16 minutes of one core. --quick: to 64 ranks, and the table goes to build/smpi/scale/ only. Installs SimGrid where it is
# missing.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

quick=""
case "${1-}" in
  "") ;;
  --quick) quick=yes ;;
  *) fail 2 "usage: scripts/simulate_scale.sh [--quick]" ;;
esac

set_up libsimgrid-dev python3
configure smpi
cmake --build --preset smpi --target scale_time scale_train
out=build/smpi/scale
rm -rf "$out"
mkdir -p "$out"
rows=$out/rows.tsv
bin=build/smpi/bin
node=8

# The rows of one run, with the seconds it took here.
run() { # run RANKS NODE_SIZE PROGRAM ARGUMENT...
  local ranks=$1 size=$2 start=$SECONDS
  shift 2
  say "$ranks ranks on nodes of $size: $*"
  bench/scale/platform.py --ranks "$ranks" --node-size "$size" "$out/$ranks.$size" >"$out/network.$size"
  bench/scale/simulate.sh "$out/$ranks.$size" "$bin/$1" "${@:2}" | tee "$out/last.tsv"
  sed "s/\$/\t$size\t$((SECONDS - start))/" "$out/last.tsv" >>"$rows"
}

# The agreement is P (P - 1) messages at a time: nothing for a network, minutes for its simulation. Past 64 ranks it takes what one
# message does, and P rows of 200 bytes.
agreement() { [ "$1" -le 64 ] || awk -v p="$1" 'BEGIN { print "--agreement-us", 7 + p * 200 / 50e3 }'; }

# With data: all bits.
for ranks in 8 $([ "$quick" ] || echo 16 32) 64; do
  run "$ranks" $node scale_train --steps $([ "$quick" ] && echo 4 || echo 12) --node-size $((ranks > node ? node : ranks / 2)) \
    --algorithm ring hierarchical rank_order
done

# Without, for time. First the network of the formula, on which every hop is the same.
run 64 1 scale_time all_reduce --algorithm ring --mib 0.0625 1 16 64
worlds="8 16 32 64"
[ "$quick" ] || worlds="$worlds 128 256 512 1024"
for ranks in $worlds; do
  algorithms="hierarchical"
  [ "$ranks" -gt 256 ] || algorithms="ring $algorithms"      # two million messages a bucket
  [ "$ranks" -gt 64 ] || algorithms="$algorithms rank_order" # P (P - 1) messages at a time: none would do it
  for algorithm in $algorithms; do
    nodes=(--algorithm "$algorithm" --node-size $node)
    run "$ranks" $node scale_time all_reduce "${nodes[@]}" --mib 1 4 25
    buckets=25
    case $ranks/$algorithm in
      64/ring | 64/hierarchical | 256/hierarchical) buckets="5 25 100" ;;
      256/ring | 1024/hierarchical) buckets="25 100" ;;
    esac
    run "$ranks" $node scale_time step "${nodes[@]}" --bucket-mib $buckets --strategy ddp zero1 $(agreement "$ranks")
  done
  run "$ranks" $node scale_time step --algorithm hierarchical --node-size $node --overlap none $(agreement "$ranks")
done

table=$out/scale_smpi.md figure=$out/scale.svg
[ "$quick" ] || { table=bench/results/scale_smpi.md figure=docs/img/scale.svg; }
bench/scale/table.py "$rows" "$out/network.$node" "$table"
bench/scale/figure.py "$table" "$figure"
say "$table, $figure"
