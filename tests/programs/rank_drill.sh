#!/usr/bin/env bash
# rank_drill.sh MPIEXEC RANK_DRILL ATHANOR DRILL [TIMES]: one of four ranks fails, and the job must end as it should, TIMES
# times: all ranks gone within the deadline and 5 s, each with its record, its line and its exit code, the culprit named on
# stderr and by `athanor flight`, no process and no shared memory left.
set -euo pipefail
mpiexec=$1 program=$2 athanor=$3 drill=$4 times=${5:-1}
deadline_s=3 ranks=4
set -a
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/open_mpi.env"
OMP_NUM_THREADS=1
set +a
open_mpi=$("$mpiexec" --version | sed -n 's/.*(Open MPI) \([0-9]*\).*/\1/p')

fail() {
  printf 'rank_drill %s: %s\n' "$drill" "$*"
  printf -- '--- stdout and stderr of the job (%s)\n' "$folder"
  cat "$folder/output"
  for file in "$folder"/code.* "$folder"/flight.*; do
    [ -e "$file" ] && { echo "--- ${file##*/}"; head -n 3 "$file"; }
  done
  echo "--- athanor flight"
  "$athanor" flight "$folder" || true
  kept=1
  exit 1
}
says() { grep -qE -- "$1" "$folder/output" || fail "nobody says '$1'"; }
code() { # code RANK CODE
  local got=none
  [ -s "$folder/code.$1" ] && got=$(cat "$folder/code.$1")
  [ "$got" = "$2" ] || fail "rank $1 must end with $2, but ended with $got"
}
may_end() { # may_end CODE RANK...: with it, or killed by mpirun, which does so as soon as another has ended
  local code=$1 rank
  shift
  for rank in "$@"; do
    [ ! -s "$folder/code.$rank" ] || [ "$(cat "$folder/code.$rank")" = 137 ] || code "$rank" "$code"
  done
}
mpirun_ends() { [ "$status" = "$1" ] || fail "mpirun must end with $1, but ended with $status"; }
concludes() { "$athanor" flight "$folder" > "$folder/conclusion" || fail "athanor flight fails"
  grep -qE -- "$1" "$folder/conclusion" || fail "athanor flight does not say '$1'"; }

run_once() { # run_once CULPRIT [ALGORITHM]
  local culprit=$1 algorithm=${2:-rank_order} began ended left others=() rank
  status=0
  folder=$(mktemp -d) kept=0
  trap '[ "$kept" = 1 ] || rm -rf "$folder"' EXIT
  for rank in 0 1 2 3; do [ "$rank" = "$culprit" ] || others+=("$rank"); done

  timeout -k 5 90 "$mpiexec" -n "$ranks" "$program" "$drill" "$culprit" "$folder" $((deadline_s * 1000)) \
    "$algorithm" > "$folder/output" 2>&1 &
  local job=$!
  if [ "$drill" = signal ]; then
    for _ in $(seq 300); do [ -e "$folder/word.3" ] && break; sleep 0.1; done
    sleep 0.5
    touch "$folder/failed"
    pkill -TERM -P "$job" # timeout's child, mpirun
  fi
  wait "$job" || status=$?
  ended=$(date +%s%N)
  if [ "$open_mpi" -ge 5 ]; then # it drops what ranks write while it ends them: their records have it, too
    sed -sn '1s/.*"rank":\([0-9]*\),.*"error":"\(.*\)","began_us".*/rank \1: error: \2/p' "$folder"/flight.*.json \
      >> "$folder/output" 2>/dev/null || true
  fi

  # Nothing is left, and nothing took long.
  for _ in $(seq 20); do left=$(pgrep -f "$folder" || true); [ -z "$left" ] && break; sleep 0.1; done
  [ -z "$left" ] || fail "processes are left: $left"
  while read -r segment; do
    [ ! -e "$segment" ] || fail "shared memory is left: $segment"
  done < <(sort -u "$folder"/word.* 2>/dev/null)
  if [ "$drill" != none ] && [ "$drill" != models ]; then
    began=$(date -r "$folder/failed" +%s%N)
    [ $(((ended - began) / 1000000)) -le $(((deadline_s + 5) * 1000)) ] ||
      fail "the job took $(((ended - began) / 1000000)) ms to end"
  fi

  local lost="rank $culprit did not do its part of $algorithm all_reduce #[0-9]+, bucket [0-9]+, for [0-9.]+ s"
  # Open MPI 5 kills a quarter of a second after SIGTERM, too soon for blame; it names the rank itself.
  [ "$open_mpi" -lt 5 ] || [[ $drill != @(kill|exit) ]] || lost="rank $culprit (did not do its part|with PID)"
  local never="rank $culprit never entered #[0-9]+ $algorithm all_reduce, bucket [0-9]+"
  case $drill in
    none)
      mpirun_ends 0
      for rank in 0 1 2 3; do code "$rank" 0; done
      ! compgen -G "$folder/flight.*" > /dev/null || fail "a run that ended well leaves a record"
      rm -rf "$folder"
      return ;;
    kill)
      mpirun_ends 137
      code "$culprit" 137
      never="rank $culprit left no record: .*; ranks? [0-3, ]+ waits? for it in #[0-9]+ $algorithm" ;;
    crash | overflow)
      mpirun_ends 139
      code "$culprit" 139
      grep -q '"reason":"SIGSEGV"' "$folder/flight.$culprit.json" || fail "the crash left no record"
      concludes "rank $culprit crashed .SIGSEGV." ;;
    exit)
      code "$culprit" 0
      never="rank $culprit left no record: .*; ranks? [0-3, ]+ waits? for it in #[0-9]+ $algorithm" ;;
    stop)
      mpirun_ends 74
      # mpirun wakes it to end it, and it may get as far as the collective before it does, or past it.
      says "^rank $culprit: error: ended by SIGTERM: it had been stopped for [0-9.]+ s itself"
      never="^rank $culprit: (ended by SIGTERM: )?it had been stopped for [0-9.]+ s itself" ;;
    hang)
      mpirun_ends 74
      says "^rank $culprit: error: ended by SIGTERM: rank $culprit is in no collective: its last, .* was done [0-9.]+ s ago" ;;
    throw)
      mpirun_ends 2
      code "$culprit" 2
      says "^rank $culprit: error: the drill's own error" ;;
    models)
      mpirun_ends 2
      may_end 2 0 1 2 3
      # All compare themselves with rank 0: where that is the odd one, the first of the others is named.
      says "same parameters, precision and settings, but rank $((culprit > 0 ? culprit : 1)) differs from rank 0"
      rm -rf "$folder"
      return ;;
    steps)
      never="rank $culprit entered #[0-9]+ barrier" lost="rank $culprit" ;;
    desync)
      mpirun_ends 2
      may_end 2 0 1 2 3
      for rank in "${others[@]}"; do
        says "^rank $rank: error: all ranks must start the same .*, but rank $rank starts $algorithm all_reduce #[0-9]+, bucket 0, .*, and rank $culprit barrier #[0-9]+"
      done
      says "^rank $culprit: error: all ranks must start the same .*, but rank $culprit starts barrier #[0-9]+, and rank $((culprit == 0)) "
      rm -rf "$folder"
      return ;;
    signal)
      others=(0 1 2 3) never='.' lost='.'
      says '^rank [0-3]: error: ended by SIGTERM: ' ;;
  esac
  [ "$status" != 0 ] || fail "mpirun must not end with 0"
  [ "$drill" = steps ] || may_end 74 "${others[@]}"
  for rank in "${others[@]}"; do
    grep -q '"entries"' "$folder/flight.$rank.json" || fail "rank $rank left no whole record"
    says "^rank $rank: error: "
  done
  says "$lost"
  concludes "$never"
  # Whatever the algorithm, nobody who waits himself is blamed.
  case $drill in kill | exit | stop | hang | throw | crash | overflow)
    ! grep -E 'rank [0-9]+ did not do its part' "$folder/output" | grep -vqE "$lost" || fail "somebody else is blamed" ;;
  esac
  rm -rf "$folder"
}

for ((i = 0; i < times; ++i)); do
  # Ranks take turns. In a ring, each waits for its neighbour.
  run_once $(((2 + i) % ranks)) "$([ $((i % 2)) = 0 ] && echo rank_order || echo ring)"
done
echo "rank_drill $drill: $times of $times ended as they should"
