#!/usr/bin/env bash
# bench/scale/simulate.sh PLATFORM PROGRAM [ARGUMENT...]: runs a program of the smpi preset on PLATFORM.xml and its hosts.
set -euo pipefail
platform=$1 program=$2
shift 2

settings=(
  smpi/simulate-computation:no # time passes where compute() says so, not where this machine is slow
  smpi/lat-factor:0:1          # the platform's own latency and bandwidth: the defaults are those of an old cluster, whose
  smpi/bw-factor:0:1           # messages took 11 times as long
  network/TCP-gamma:0          # no windows of TCP
  network/crosstraffic:0       # acknowledgements take no bandwidth
  # Data goes when both sides are there, and a send is over when it has arrived, however small. Those that are over
  # before are held in one list of the whole simulation, which every message that arrives looks through.
  smpi/send-is-detached-thresh:0
  smpi/test:0                  # asking whether a message is there takes no time
  smpi/wtime:0
  smpi/grow-injected-times:no
  smpi/shared-malloc:local # shared_by_ranks()
)
options=()
for setting in "${settings[@]}"; do options+=("--cfg=$setting"); done

exec smpirun -np "$(wc -l <"$platform.hosts")" -hostfile "$platform.hosts" -platform "$platform.xml" \
  "${options[@]}" --log=root.thresh:error "$program" "$@"
