#!/usr/bin/env bash
# rank_drill.sh RANK_DRILL ATHANOR DRILL [TIMES [MPIEXEC]]: one of four ranks fails, and the job must end as it should, TIMES
# times: all ranks gone soon after the deadline (20 s are a busy machine's), each with its record and its line, the job with
# the exit code of the first to fail, the culprit named on stderr and by `athanor flight`, and no process left. With MPIEXEC a user
# has started the ranks by that.
set -euo pipefail
program=$1 athanor=$2 drill=$3 times=${4:-1} mpiexec=${5-}
deadline_s=8 ranks=4 cut_short=75
set -a
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/open_mpi.env"
OMP_NUM_THREADS=1
set +a

fail() {
  printf 'rank_drill %s: %s\n' "$drill" "$*"
  printf -- '--- stdout and stderr of the job (%s)\n' "$folder"
  cat "$folder/output"
  for file in "$folder"/flight.*; do
    [ -e "$file" ] && { echo "--- ${file##*/}"; head -n 3 "$file"; }
  done
  echo "--- athanor flight"
  "$athanor" flight "$folder" || true
  kept=1
  exit $verdict
}
says() { grep -qE -- "$1" "$folder/output" || fail "no line says '$1'"; }
concludes() {
  "$athanor" flight "$folder" >"$folder/conclusion" || fail "athanor flight fails"
  grep -qE -- "$1" "$folder/conclusion" || fail "athanor flight does not say '$1'"
}

run_once() { # run_once CULPRIT [ALGORITHM]
  local culprit=$1 algorithm=${2:-rank_order} began ended left rank status=0 code=74 others=() said="" found=""
  folder=$(mktemp -d) kept=0 verdict=1
  trap '[ "$kept" = 1 ] || rm -rf "$folder"' EXIT
  for rank in 0 1 2 3; do [ "$rank" = "$culprit" ] || others+=("$rank"); done

  timeout -k 5 600 ${mpiexec:+"$mpiexec" -n $ranks} "$program" "$drill" "$culprit" "$folder" $((deadline_s * 1000)) \
    "$algorithm" >"$folder/output" 2>&1 &
  local job=$!
  if [ "$drill" = signal ]; then
    for _ in $(seq 3000); do [ -e "$folder/trains.3" ] && break; sleep 0.1; done
    sleep 0.5
    touch "$folder/failed"
    pkill -TERM -P "$job" # timeout's child
  fi
  wait "$job" || status=$?
  ended=$(date +%s%N)
  for _ in $(seq 600); do left=$(pgrep -f "$folder" || true); [ -z "$left" ] && break; sleep 0.1; done
  [ -z "$left" ] || fail "processes are left: $left"
  if [ -e "$folder/failed" ]; then
    began=$(date -r "$folder/failed" +%s%N)
    [ $(((ended - began) / 1000000)) -le $(((deadline_s + 20) * 1000)) ] ||
      fail "the job took $(((ended - began) / 1000000)) ms to end"
  fi

  # What the job ends with, what somebody says, and what the records show.
  case $drill in
    none) code=0 ;;
    kill) code=137 said="rank $culprit (was killed by|.* exited on) signal 9" found="rank $culprit left no record" ;;
    crash | overflow) code=139 said="rank $culprit (was killed by|.* exited on) signal 11" found="rank $culprit crashed .SIGSEGV." ;;
    exit) said="rank $culprit has ended" found="rank $culprit left no record" ;;
    stop) # it is woken to be ended, and may get as far as the collective before that
      said="rank [0-3] waits for rank $culprit in $algorithm all_reduce #[0-9]+, bucket [0-9]+, for [0-9.]+ s"
      found="^rank $culprit: .*it had been stopped for [0-9.]+ s itself" ;;
    hang)
      said="rank [0-3] waits for rank $culprit in $algorithm all_reduce #[0-9]+, bucket [0-9]+, for [0-9.]+ s"
      found="rank $culprit never entered #[0-9]+ $algorithm all_reduce, bucket [0-9]+" ;;
    throw) code=2 said="^rank $culprit: error: the drill's own error" found="rank $culprit ended by an error of its own" ;;
    models) # all compare themselves with rank 0: where that is the odd one, the first of the others is named
      code=2 said="same parameters, precision and settings, but rank $((culprit > 0 ? culprit : 1)) differs from rank 0" ;;
    steps) code='(2|74)' said="rank $culprit" found="rank $culprit entered #[0-9]+ barrier" ;; # sizes differ, or one waits
    desync) code=2 said="^rank [0-3]: error: all ranks must start the same .*rank $culprit (starts )?barrier #[0-9]+" ;;
    signal) said="^rank [0-3]: error: asked to end \(SIGTERM\): " found='.' ;;
  esac
  # mpirun kills all as soon as the first has ended, 0.3 s after its report: on a busy machine others may not have come to theirs.
  if [ -n "$mpiexec" ] && [ -n "$found" ]; then
    for rank in "${others[@]}"; do grep -qs '"entries"' "$folder/flight.$rank.json" || verdict=$cut_short; done
  fi
  [[ $status =~ ^$code$ ]] || fail "the job must end with $code, but ended with $status"
  if [ "$drill" = none ]; then
    ! compgen -G "$folder/flight.*" >/dev/null || fail "a run that ended well leaves a record"
  else
    says "$said"
  fi
  if [ -n "$found" ]; then
    concludes "$found"
    for rank in "${others[@]}"; do
      grep -q '"entries"' "$folder/flight.$rank.json" || fail "rank $rank left no whole record"
      [ -n "$mpiexec" ] || says "^rank $rank: error: " # mpirun may kill a rank before it can speak
    done
  fi
  rm -rf "$folder"
}

for ((i = 0; i < times; ++i)); do
  # Ranks take turns. In a ring, each waits for its neighbour.
  arguments=($(((2 + i) % ranks)) "$([ $((i % 2)) = 0 ] && echo rank_order || echo ring)")
  for try in 1 2 3 4 5; do
    code=0
    run_once "${arguments[@]}" & # and not in a condition, in which errors would not end it
    wait $! || code=$?
    [ $code -eq $cut_short ] && [ $try -lt 5 ] || break
  done
  [ $code -eq 0 ] || exit $code
done
echo "rank_drill $drill: $times of $times ended as they should"
