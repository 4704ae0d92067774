#!/usr/bin/env bash
# bench/peers/run.sh WORKLOAD [--precision f32|bf16|f16] [--json FILE] [--rounds N] [--threads N] [--venv DIR]
#                    [--only TEXT]
#
# Times WORKLOAD (update) in Athanor and in PyTorch in turns, A B A B, with as many threads each, and prints the ratio:
# above 1, the peer takes longer. PyTorch is taken from the Python environment in DIR, by default $ATHANOR_PEERS_VENV or
# ~/.cache/athanor/peers:
#
#     python3 -m venv ~/.cache/athanor/peers && ~/.cache/athanor/peers/bin/pip install torch numpy
#
# Nothing else of the project needs it.
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

usage() { fail 2 "$(sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}")"; }
[ $# -ge 1 ] || usage
workload=$1
shift
venv=${ATHANOR_PEERS_VENV:-$HOME/.cache/athanor/peers} threads=$(nproc) precision='' json='' only=''
more=()
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --precision) precision=$2 ;;
    --json) json=$(realpath -m "$2") ;;
    --rounds) more+=(--rounds "$2") ;;
    --threads) threads=$2 ;;
    --venv) venv=$(realpath -m "$2") ;;
    --only) only=$2 ;;
    *) usage ;;
  esac
  shift 2
done
here=$root/bench/peers
[ -f "$here/pytorch/$workload.py" ] || fail 2 "peers: workload must be one of $(cd "$here/pytorch" && ls ./*.py |
  sed -n 's/^\.\/\(.*\)\.py$/\1/p' | grep -vx worker | tr '\n' ' '), but is $workload"
case $precision in
  '' | f32 | bf16 | f16) ;;
  *) fail 2 "peers: --precision must be f32, bf16 or f16, but is $precision" ;;
esac
"$venv/bin/python3" -c 'import torch' 2>/dev/null ||
  fail 2 "peers: $venv must be a Python environment with PyTorch: python3 -m venv $venv && $venv/bin/pip install torch numpy"

set_up
[ -f build/cpu/build.ninja ] || configure cpu
cmake --build --preset cpu --target "peer_$workload" >build/cpu/peers.log 2>&1 ||
  { cat build/cpu/peers.log >&2; fail 1 "peers: peer_$workload did not build"; }
export OMP_NUM_THREADS=$threads
python3 "$here/interleave.py" --ours "build/cpu/bin/peer_$workload" \
  --peer "'$venv/bin/python3' '$here/pytorch/$workload.py'" \
  --only "${only:-${precision:+/$precision/}}" ${json:+--json "$json"} "${more[@]}"
