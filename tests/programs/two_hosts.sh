#!/usr/bin/env bash
# tests/programs/two_hosts.sh BIN [mnist]: ranks on two hosts, which are network namespaces of this machine with a cable between them.
#
#   1. The tests of collectives and of training pass on two ranks of each.
#   2. Training reaches the accuracy of one rank: on the digits, and with mnist on that, where it is (ATHANOR_DATA_DIR,
#      data-cache).
#   3. The cable is cut in the middle: all ranks end soon after the deadline (20 s are a busy machine's), with 74, saying who is missing.
#   4. --resume auto goes on, and reaches the bits of a run that was not disturbed.
#
# Ends with 77 and a reason where namespaces are not allowed. Takes along what it made, however it ends.
set -euo pipefail
bin=$1
a=ath${$}a b=ath${$}b # names of the hosts, and of their namespaces
net=10.77.$((RANDOM % 200 + 20))
work=$(mktemp -d)

skip() {
  echo "tests/programs/two_hosts.sh: Skipped"
  echo "$1"
  exit 77
}
fail() {
  echo "two_hosts: $1" >&2
  exit 1
}
pids_in() { ip netns pids "$1" 2>/dev/null || true; }
clean_up() {
  local host pid
  for host in "$a" "$b"; do
    for pid in $(pids_in "$host"); do kill -9 "$pid" 2>/dev/null || true; done
    ip netns del "$host" 2>/dev/null || true # the cable goes with it
    rm -f /dev/shm/vader_segment."$host".*
  done
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mpirun=$(command -v mpirun.openmpi || command -v mpirun) || skip "mpirun was not found: install openmpi-bin"
for tool in ip unshare; do
  command -v "$tool" >/dev/null || skip "$tool was not found: install iproute2 and util-linux"
done
ip netns add "$a" 2>"$work/why" || skip "network namespaces are not allowed here: $(head -n 1 "$work/why")"
ip netns add "$b"
ip link add "${a}0" netns "$a" type veth peer name "${b}0" netns "$b" 2>"$work/why" ||
  skip "a cable between network namespaces cannot be made here: $(head -n 1 "$work/why")"
unshare --uts true 2>"$work/why" || skip "hosts cannot have names of their own here: $(head -n 1 "$work/why")"
address() { ip -n "$1" addr add "$2/24" dev "${1}0" && ip -n "$1" link set "${1}0" up && ip -n "$1" link set lo up; }
address "$a" "$net.1"
address "$b" "$net.2"

# What mpirun takes for ssh. Ranks find out who shares their machine by its name, so that each host has one.
cat >"$work/rsh" <<END
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c "hostname $b; \$*"
END
chmod +x "$work/rsh"

set -a
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/open_mpi.env"
unset OMPI_MCA_btl_tcp_if_include # a network between two hosts is needed
OMP_NUM_THREADS=1 ATHANOR_TEST_RANKS_PER_HOST=2
set +a
on_two_hosts() { # on_two_hosts COMMAND...: two ranks on each
  exec ip netns exec "$a" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$a" "$mpirun" \
    --mca plm_rsh_agent "$work/rsh" --mca pml ob1 --mca btl_tcp_if_include "$net.0/24" --mca oob_tcp_if_include "$net.0/24" \
    -x OMPI_MCA_mpi_yield_when_idle -x OMP_NUM_THREADS -x ATHANOR_TEST_RANKS_PER_HOST -H "$net.1:2,$net.2:2" -n 4 "$@"
}
cable() { ip -n "$b" link set "${b}0" "$1"; }

# gone_within SECONDS PATTERN: no process in either namespace has PATTERN in its command line.
gone_within() {
  local until=$((SECONDS + $1)) host pid left
  while :; do
    left=""
    for host in "$a" "$b"; do
      for pid in $(pids_in "$host"); do
        { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -q "^[^ ]*$2" && left="$left $pid"
      done
    done
    [ -n "$left" ] || return 0
    [ "$SECONDS" -lt "$until" ] || { echo "still there:$left" >&2; return 1; }
    sleep 0.2
  done
}

echo "== tests over two hosts"
for suite in MpiCollectives MpiTraining; do
  (on_two_hosts "$bin/dist_mpi_test" "--gtest_filter=$suite.*") >"$work/$suite.log" 2>&1 || { cat "$work/$suite.log"; fail "$suite failed"; }
  grep -E '\[  PASSED' "$work/$suite.log" || { cat "$work/$suite.log"; fail "$suite does not say that it passed"; }
done
# It was really two hosts: bytes went over the cable.
crossed=$(ip netns exec "$a" cat "/sys/class/net/${a}0/statistics/tx_bytes" 2>/dev/null || ip -n "$a" -s link show "${a}0" | awk '/TX:/ { getline; print $1 }')
echo "$crossed bytes over the cable"
[ "$crossed" -gt 1000000 ] || fail "at least 1 MB must have crossed the cable"

accuracy() { sed -n 's/^test accuracy \([0-9.]*\) %.*/\1/p' "$1"; }
# reaches MARGIN COMMAND...: four ranks come within MARGIN % of one.
reaches() {
  local margin=$1 strategy one four
  shift
  "$@" >"$work/one.log" 2>&1 || { cat "$work/one.log"; fail "training on one rank failed"; }
  one=$(accuracy "$work/one.log")
  for strategy in ddp zero1; do
    (on_two_hosts "$@" --strategy $strategy) >"$work/$strategy.log" 2>&1 || { cat "$work/$strategy.log"; fail "$strategy failed"; }
    four=$(accuracy "$work/$strategy.log")
    echo "one rank $one %, four with $strategy $four %"
    awk -v one="$one" -v four="$four" -v margin="$margin" 'BEGIN { exit !(four > 90 && four >= one - margin) }' ||
      { cat "$work/$strategy.log"; fail "four ranks must learn what one does"; }
  done
}
echo "== training over two hosts"
reaches 1.5 "$bin/train_digits" --seed 1 --epochs 4
data=$(realpath -m "${ATHANOR_DATA_DIR:-data-cache}")
if [ "${2-}" != mnist ]; then
  echo "== MNIST: two_hosts.sh BIN mnist"
elif [ -d "$data/mnist" ]; then
  echo "== an epoch of MNIST over two hosts"
  reaches 0.3 "$bin/train_mnist" --seed 1 --epochs 1 --data-dir "$data"
else
  echo "== MNIST is not in $data: scripts/get_data.sh mnist"
fi

# mpirun does not notice by itself that a host is silent, and hears no exit code from there: each rank's is written down.
coded='"$@"; echo "rank $OMPI_COMM_WORLD_RANK ends with $?" >>"$0"'

# cut PROGRAM STARTED LIMIT PATTERN ARGUMENT...: runs it on two hosts, cuts the cable when STARTED is true, and checks how it ends.
cut() {
  local program=$1 started=$2 limit=$3 pattern=$4 job began host
  shift 4
  rm -f "$work/codes"
  (on_two_hosts sh -c "$coded" "$work/codes" "$program" "$@") >"$work/cut.log" 2>&1 &
  job=$!
  until eval "$started"; do
    kill -0 "$job" 2>/dev/null || { cat "$work/cut.log"; fail "the ranks did not begin"; }
    sleep 0.1
  done
  cable down
  began=$SECONDS
  gone_within "$limit" "$program" || { cat "$work/cut.log"; fail "ranks must end within $limit s of the cut"; }
  echo "ranks gone after $((SECONDS - began)) s"
  for host in '[01]' '[23]'; do # one that is first takes its neighbour along
    for _ in $(seq 600); do ! grep -qs "rank $host ends with 74" "$work/codes" || break; sleep 0.1; done # the shell around it writes that
    grep -q "rank $host ends with 74" "$work/codes" || { cat "$work/cut.log"; fail "ranks $host must end with 74"; }
  done
  sort "$work/codes"
  ! grep -v 'ends with \(74\|137\|143\)$' "$work/codes" || fail "no rank may end in another way"
  grep -m 1 -E "$pattern" "$work/cut.log" || { cat "$work/cut.log"; fail "the ranks must say who is missing"; }
  for host in "$a" "$b"; do # mpirun and its daemon wait for each other, for ever
    for pid in $(pids_in "$host"); do kill -9 "$pid" 2>/dev/null || true; done
  done
  wait "$job" 2>/dev/null || true
  cable up
}

echo "== the cable is cut"
silent='rank [23] must answer within 2 s, but rank [01] has received nothing from it'
cut "$bin/lost_link_mpi_test" "grep -q 'all ranks are going' '$work/cut.log'" 22 "$silent"

weights() { sed -n 's/.*, weights \([0-9a-f]*\).*/\1/p' "$1"; }
training=("$bin/train_digits" --seed 1 --epochs 16 --strategy zero1 --checkpoint-every 50) steps=704
halves=(--checkpoint-dir "$work/halves" --resume auto --flight-dir "$work/flight")
saved() { # steps of the newest checkpoint
  local newest
  newest=$(ls "$work/halves" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)\.safetensors$/\1/p' | tail -n 1) || true
  echo "${newest:-0}"
}

echo "== the cable is cut while they train"
(on_two_hosts "${training[@]}" --checkpoint-dir "$work/whole") >"$work/whole.log" 2>&1 || { cat "$work/whole.log"; fail "training failed"; }
# A rank's own line names who is missing; the deadline is 5 s, and a busy machine looks at the clock later.
cut "${training[0]}" '[ "$(saved)" -ge 100 ]' 25 'rank [01]: error: rank [01] waits for rank [23] in .*, for ([5-9]|[1-9][0-9])(\.[0-9])? s' "${training[@]:1}" "${halves[@]}" --dist-timeout 5
[ "$(saved)" -lt $steps ] || fail "the cable must be cut in the middle"

echo "== and goes on"
(on_two_hosts "${training[@]}" "${halves[@]}") >"$work/resumed.log" 2>&1 || { cat "$work/resumed.log"; fail "training did not go on"; }
grep -E "resumed from .*: [0-9]+ of $steps steps" "$work/resumed.log" || { cat "$work/resumed.log"; fail "it must go on after the cut"; }
echo "undisturbed $(weights "$work/whole.log"), resumed $(weights "$work/resumed.log")"
[ -n "$(weights "$work/whole.log")" ] && [ "$(weights "$work/whole.log")" = "$(weights "$work/resumed.log")" ] ||
  fail "a resumed run must end with the bits of an undisturbed one"
echo "two hosts: ok"
