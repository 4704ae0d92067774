#!/usr/bin/env bash
# tests/smpi/simulated_test.sh BIN [--build TREE]: what 64 simulated ranks must do. BIN holds the programs of the smpi
# preset; with --build, what is old in its TREE is built first.
#
#   DDP and ZeRO-1 learn the digits, with the same bits, under every algorithm; one infinite pixel is skipped by all. An all-reduce
#   of whole numbers has their sum.
#   A flat ring takes what its model says; over nodes, the hierarchical ring is quicker.
set -euo pipefail
skip() {
  echo "tests/smpi/simulated_test.sh: Skipped"
  echo "$1"
  exit 77
}
command -v smpirun >/dev/null || skip "SimGrid is not installed: apt-get install libsimgrid-dev"
if [ "${2-}" = --build ]; then
  [ -f "$3/CMakeCache.txt" ] || skip "nothing is built for SimGrid: cmake --workflow --preset smpi"
  cmake --build "$3" --target scale_time scale_train
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../bench/scale" && pwd)
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "simulated_test: $1" >&2
  exit 1
}

"$here/platform.py" --ranks 64 "$work/nodes" >/dev/null
"$here/platform.py" --ranks 64 --node-size 1 "$work/alike" >/dev/null
cd "$work"

"$here/simulate.sh" nodes "$bin/scale_train" --steps 4 --samples 1 --node-size 8 --algorithm ring hierarchical rank_order >trained ||
  { cat trained; fail "DDP and ZeRO-1 must end alike, and sums be right"; }
cat trained
[ "$(grep -c 'skipped	equal$' trained)" = 3 ] || fail "three algorithms must skip one step and be equal"

# 1 MiB: 126 steps of 7 us and of a 64th at 50 GB/s.
"$here/simulate.sh" alike "$bin/scale_time" all_reduce --mib 1 | tee alike.tsv
awk -F'\t' '{ model = 126 * (7 + 1048576 / 64 / 50e3); off = $5 / model - 1; exit !(off < 0.05 && off > -0.05) }' alike.tsv ||
  fail "the flat ring must be within 5 % of its model"
for algorithm in ring hierarchical; do
  "$here/simulate.sh" nodes "$bin/scale_time" all_reduce --mib 1 --algorithm $algorithm --node-size 8
done | tee nodes.tsv
awk -F'\t' '{ us[$3] = $5 } END { exit !(us["hierarchical"] > 0 && us["hierarchical"] < us["ring"]) }' nodes.tsv ||
  fail "the hierarchical ring must win past one node"
