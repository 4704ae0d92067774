#!/usr/bin/env bash
# bench/peers/run.sh WORKLOAD [--precision f32|bf16|f16|int8] [--json FILE] [--rounds N] [--threads N] [--venv DIR]
#                    [--only TEXT] [--neighbours N]
# bench/peers/run.sh zoo [--minutes 20] [--compile] [--precision P] [--threads N] [--only NETWORK] [--json FILE] [--venv DIR]
#
# Times WORKLOAD (update; resnet20-b128-train, resnet18-infer-b1 and the like) in Athanor and in its peers in turns, A B A B,
# with as many threads each, and prints the ratio: above 1, the peer takes longer. PyTorch, ONNX Runtime and OpenVINO are taken
# from the Python environment in DIR, by default $ATHANOR_PEERS_VENV or ~/.cache/athanor/peers:
#
#     python3 -m venv ~/.cache/athanor/peers && ~/.cache/athanor/peers/bin/pip install -r bench/peers/requirements.txt
#
# Nothing else of the project needs it. bench/peers/README.md says more.
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

usage() { fail 2 "$(sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}")"; }
[ $# -ge 1 ] || usage
workload=$1
shift
venv=${ATHANOR_PEERS_VENV:-$HOME/.cache/athanor/peers} threads='' precision='' json='' only='' script=compare.py
more=()
while [ $# -gt 0 ]; do
  if [ "$workload $1" = 'zoo --compile' ]; then
    more+=(--compile)
    shift
    continue
  fi
  [ $# -ge 2 ] || usage
  case $1 in
    --minutes) [ "$workload" = zoo ] || usage; more+=(--minutes "$2") ;;
    --precision) precision=$2 ;;
    --json) json=$(realpath -m "$2") ;;
    --rounds) more+=(--rounds "$2") ;;
    --neighbours) more+=(--neighbours "$2") script=busy.py ;;
    --threads) threads=$2 ;;
    --venv) venv=$(realpath -m "$2") ;;
    --only) only=$2 ;;
    *) usage ;;
  esac
  shift 2
done
here=$root/bench/peers
program=$workload
networks="($(PYTHONPATH=$here python3 -BSc 'import workloads; print("|".join(workloads.NAMES))'))"
[[ $workload =~ ^$networks(-b[0-9]+)?(-224)?-infer(-b[0-9]+)?$ ]] && program=infer
[[ $workload =~ ^$networks(-b[0-9]+)?(-224)?-train(-b[0-9]+)?$ ]] && program=train
case $workload in
  zoo) program=train ;;
  mnist-run | cifar10-run | jpegs-run | speedrun-run | first-step) program=tuned_run ;;
  infer | train | networks | worker | naive | speedrun | *_run*) program=none ;;
esac
[ -f "$here/pytorch/$program.py" ] ||
  fail 2 "peers: workload must be one of $(cd "$here/pytorch" && ls ./*.py | sed -n 's/^\.\/\(.*\)\.py$/\1/p' |
    grep -vx -e worker -e naive -e networks -e infer -e train -e speedrun -e ".*_run.*" | tr '\n' ' ')or zoo, mnist-run, cifar10-run, jpegs-run, speedrun-run, first-step, or a network as resnet20-b128-train, -infer or -infer-b1, but is $workload"
case $precision in
  '' | f32 | bf16 | f16) ;;
  int8) [ "$program" = infer ] || fail 2 "peers: $workload has no --precision int8: only forward passes have" ;;
  *) fail 2 "peers: --precision must be f32, bf16, f16 or int8, but is $precision" ;;
esac
whole=no # a network, against every peer
case $program in infer | train) whole=yes ;; esac
[ "$whole" = no ] || [ "$precision" != f16 ] || fail 2 "peers: $workload has --precision f32 and bf16, but not f16"
install="python3 -m venv $venv && $venv/bin/pip install -r bench/peers/requirements.txt"
[ -x "$venv/bin/python3" ] || fail 2 "peers: $venv must be a Python environment with the peers: $install"
[ "$whole" = yes ] || "$venv/bin/python3" -c 'import torch' 2>/dev/null ||
  fail 2 "peers: $venv must be a Python environment with PyTorch: $install"

[ "$whole" = yes ] || [ $script = compare.py ] || fail 2 "peers: --neighbours is for networks, as resnet20-b128-train"

set_up
if [ "$program" = tuned_run ]; then
  [ -f build/cpu/build.ninja ] || configure cpu
  cmake --build --preset cpu --target train_mnist train_cifar10 train_images speedrun_cifar10 >build/cpu/peers.log 2>&1 ||
    { cat build/cpu/peers.log >&2; fail 1 "peers: the train programs did not build"; }
  exec python3 "$here/whole_runs.py" "$workload" --bin build/cpu/bin --data "${ATHANOR_DATA_DIR:-$root/data-cache}" \
    --python "$venv/bin/python3" ${precision:+--precision "$precision"} ${threads:+--threads "$threads"} ${only:+--only "$only"} ${json:+--json "$json"} "${more[@]}"
fi
[ -f build/cpu/build.ninja ] || configure cpu
targets=("peer_$program")
[ "$whole" = no ] || targets+=(peer_infer athanor-tool)
cmake --build --preset cpu --target "${targets[@]}" >build/cpu/peers.log 2>&1 ||
  { cat build/cpu/peers.log >&2; fail 1 "peers: ${targets[*]} did not build"; }
export PYTHONPATH=$here
if [ "$workload" = zoo ]; then
  exec python3 "$here/zoo.py" --train build/cpu/bin/peer_train --networks build/cpu/bin/peer_infer --athanor build/cpu/bin/athanor \
    --python "$venv/bin/python3" ${precision:+--precision "$precision"} ${threads:+--threads "$threads"} ${only:+--only "$only"} ${json:+--json "$json"} "${more[@]}"
fi
if [ "$whole" = yes ]; then
  all=$(nproc) counts=("$threads")
  [ -n "$threads" ] || counts=(1 "$all")
  [ "$all" != 1 ] || counts=(1)
  python3 "$here/$script" "$workload" --ours "build/cpu/bin/peer_$program" --networks build/cpu/bin/peer_infer \
    --athanor build/cpu/bin/athanor --python "$venv/bin/python3" --precision "${precision:-f32}" --threads "${counts[@]}" ${json:+--json "$json"} "${more[@]}"
else
  export OMP_NUM_THREADS=${threads:-$(nproc)}
  python3 "$here/interleave.py" --ours "build/cpu/bin/peer_$workload" \
    --peer "'$venv/bin/python3' '$here/pytorch/$workload.py'" \
    --only "${only:-${precision:+/$precision/}}" ${json:+--json "$json"} "${more[@]}"
fi
