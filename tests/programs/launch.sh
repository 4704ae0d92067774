#!/usr/bin/env bash
# launch.sh BIN MPIRUN CASE [COUNT [SEED]]: several ranks as a user starts them: on one machine by --devices, and under mpirun, unless
# that is empty.
set -euo pipefail
bin=$1 mpirun=$2 case=$3
mapfile -t settings < <(grep -v '^#' "$(dirname "${BASH_SOURCE[0]}")/../../scripts/open_mpi.env")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for name in $(env | sed -n 's/^\(SLURM_[A-Z_]*\|OMPI_COMM_WORLD_[A-Z_]*\|RANK\|WORLD_SIZE\|MASTER_[A-Z]*\)=.*/\1/p'); do
  unset "$name"
done
train=("$bin/train_digits" --batch-size 64 --deterministic)

die() {
  echo "$*"
  cat out err 2>/dev/null || true
  # Where each rank stood, of ranks that crashed or gave up.
  find . -name 'flight.*.json' -exec sh -c 'echo "$1:"; head -n 5 "$1"' sh {} \; 2>/dev/null || true
  exit 1
}
run() { # run CODE COMMAND...
  local want=$1 code=0
  shift
  "$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "$*: expected code $want, but got $code"
}
one_line() { # one_line PATTERN: all that is on stderr
  [ "$(grep -c . err)" -eq 1 ] || die "expected one line on stderr"
  grep -qE -- "$1" err || die "expected '$1'"
}
field() { sed -n "/\"event\":\"$2\"/s/.*\"$3\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1" | tail -1; }
by_mpirun() { # by_mpirun N ARGUMENTS...
  env "${settings[@]}" "$mpirun" -n "$1" "${@:2}"
}
# Batch norm takes its statistics from a rank's part: other numbers of ranks learn as much, not the same.
close() { awk "BEGIN { d = $1 - $2; exit !(d < 0.03 && d > -0.03) }" || die "$1 and $2 differ"; }
left() { # processes that work in our folder, but for this script
  local count=0 pid
  for pid in /proc/[0-9]*; do
    [ "$(readlink "$pid/cwd" 2>/dev/null)" = "$folder" ] || continue
    case $(readlink "$pid/exe" 2>/dev/null) in */train_digits | *mpirun* | *orte*) count=$((count + 1)) ;; esac
  done
  echo "$count"
}
nothing_left() {
  for _ in $(seq 1200); do
    [ "$(left)" = 0 ] && return
    sleep 0.1
  done
  die "processes are left"
}
ends_within() { # ends_within SECONDS PID
  local end=$((SECONDS + $1))
  while kill -0 "$2" 2>/dev/null; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.02
  done
}
knows_usr1() { # knows_usr1 PID: whether the process ignores or handles SIGUSR1, or is gone
  local name mask
  [ -e "/proc/$1/status" ] || return 0
  while read -r name mask; do
    case $name in SigIgn: | SigCgt:) [ $((16#$mask >> 9 & 1)) = 0 ] || return 0 ;; esac
  done <"/proc/$1/status"
  return 1
} 2>/dev/null
saved() { (ls saved 2>/dev/null || true) | { grep '^step-[0-9]*\.safetensors$' || true; } | tail -1; }
wait_for_save() { # until there is another than $1, or $2 has ended
  for _ in $(seq 30000); do
    [ "$(saved)" != "$1" ] && return
    kill -0 "$2" 2>/dev/null || break
    sleep 0.01
  done
  [ "$(saved)" != "$1" ] || die "nothing is saved"
}
# Half a second, in which ranks agree on a last step, may be too short beside other work; a run may be over before it is killed.
did_not_agree() { [ "$code" -eq 74 ] && grep -q "ranks did not agree on a last step in time" err; }
again_and_again() { # again_and_again FUNCTION ARGUMENTS...: until it returns 0; 1 says that it came to no verdict
  local try
  for try in $(seq 5); do
    "$@" && return
    nothing_left
  done
  die "$*: no verdict in $try attempts"
}

case $case in
equal)
  steps=(--max-steps 50 --epochs 10)
  run 0 "${train[@]}" "${steps[@]}" --metrics one.jsonl
  run 0 "${train[@]}" "${steps[@]}" --metrics ddp.jsonl --devices 2
  grep -q "strategy ddp on 2 ranks (--devices)" out || die "it does not say who started what"
  [ "$(grep -c "test accuracy" out)" -eq 1 ] || die "more than one rank talks"
  [ ! -s err ] || die "stderr"
  run 0 "${train[@]}" "${steps[@]}" --metrics zero1.jsonl --devices 2 --strategy zero1
  runs=(zero1)
  if [ -n "$mpirun" ]; then
    runs+=(mpirun)
    run 0 by_mpirun 2 "${train[@]}" "${steps[@]}" --metrics mpirun.jsonl --strategy ddp
    run 0 by_mpirun 1 "${train[@]}" "${steps[@]}" --metrics alone.jsonl --strategy zero1
    grep -q "strategy single (nothing to share for zero1)," out || die "zero1 on one rank: not a word"
    [ "$(field alone.jsonl end weights_hash)" = "$(field one.jsonl end weights_hash)" ] || die "one rank is not one device"
  fi
  [ "$(wc -l <ddp.jsonl)" -eq "$(wc -l <one.jsonl)" ] || die "more than one rank writes metrics"
  [ "$(field ddp.jsonl end ranks)" = 2 ] && [ "$(field zero1.jsonl end strategy)" = zero1 ] || die "end line"
  for run in "${runs[@]}"; do
    for key in weights_hash test_loss test_accuracy applied_steps; do
      [ "$(field ddp.jsonl end $key)" = "$(field $run.jsonl end $key)" ] || die "$run differs from ddp in $key"
    done
  done
  nothing_left
  ;;
four)
  run 0 "${train[@]}" --devices 4 --epochs 2 --strategy ddp --metrics four.jsonl
  run 0 "${train[@]}" --devices 4 --epochs 2 --strategy zero1 --metrics zero1.jsonl
  [ "$(field four.jsonl end weights_hash)" = "$(field zero1.jsonl end weights_hash)" ] || die "zero1 is not ddp"
  [ "$(field four.jsonl end ranks)" = 4 ] || die "end line"
  nothing_left
  ;;
errors)
  run 2 "${train[@]}" --devices 2 --lr nan
  one_line "--lr"
  run 2 "${train[@]}" --devices 2 --pretrained one.jsonl
  one_line "there is no one.jsonl"
  echo "not weights" >bad.safetensors
  run 2 "${train[@]}" --devices 2 --pretrained bad.safetensors
  one_line "^rank 0: error: .*bad.safetensors"
  run 3 "${train[@]}" --devices 2 --memory-limit 100000
  one_line "^rank 0: error: .*memory"
  mkdir full && touch full/step-00000001.safetensors
  for more in "" --sync-bn; do
    run 2 "${train[@]}" --devices 2 --checkpoint-dir full $more
    one_line "^rank 0: error: .*--resume"
  done
  for flag in --checkpoint-dir --flight-dir; do
    run 2 "${train[@]}" --devices 2 $flag /proc/nothing
    one_line "^rank 0: error: $flag: /proc/nothing must be a folder"
  done
  SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 run 2 "${train[@]}" --devices 2 --pretrained bad.safetensors
  one_line "^rank 0: error: .*bad.safetensors" # a shell in an allocation starts its own
  run 2 "$bin/train_digits" --deterministic --devices 3 --batch-size 2
  one_line "^rank 0: error: --batch-size"
  run 2 "${train[@]}" --devices $((33 * $(nproc)))
  one_line "^error: --devices [0-9]*: must be at most [0-9]*, 32 ranks for each core"
  run 2 "${train[@]}" --devices 2 --algorithm native
  one_line "^error: --algorithm native: needs MPI.* --devices 2 share memory"
  RANK=1 run 2 "${train[@]}"
  one_line "RANK must come with"
  [ -n "$mpirun" ] || exit 0
  run 2 by_mpirun 2 "${train[@]}" --strategy single
  grep -qE "^rank [01]: error: --strategy single: must have one rank, but mpirun has started 2" err || die "single"
  run 2 by_mpirun 2 "${train[@]}" --devices 4
  grep -q "must be the number of ranks that mpirun has started on this machine, 2" err || die "devices"
  RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1 run 3 "${train[@]}"
  one_line "communicate through MPI, which torchrun has not started"
  nothing_left
  ;;
signals)
  go=("${train[@]}" --epochs 100000 --checkpoint-dir saved --checkpoint-every 20 --devices 2 --resume auto)
  ends_by() { # ends_by SIGNAL CODE STRATEGY
    before=$(saved) code=0
    env --default-signal "${go[@]}" --strategy "$3" >out 2>err &
    pid=$!
    wait_for_save "$before" $pid
    kill "-$1" $pid
    [ "$1" != HUP ] || kill -HUP $pid 2>/dev/null || true # by the system and by the shell
    wait $pid || code=$?
    ! did_not_agree || return 1
    [ "$code" -eq "$2" ] || die "$1: got $code"
    [ ! -s err ] || die "$1: an end that was asked for is no error"
    grep -q "^ended by SIG$1 .*continue with --resume auto" out || die "$1: it does not say where it stands"
    last=$(sed -n 's/^ended by .* saved in \(.*\): continue with.*/\1/p' out)
    [ "$last" = "saved/$(saved)" ] || die "$1: $last is not the newest"
    nothing_left
  }
  # Each goes on with what the one before has saved.
  again_and_again ends_by TERM 143 ddp
  again_and_again ends_by INT 130 zero1
  again_and_again ends_by HUP 129 ddp
  # Under nohup a terminal that has gone away is nothing, and the signal after it is the first.
  ends_under_nohup() {
    before=$(saved) code=0
    (trap '' HUP; exec "${go[@]}" --strategy ddp >out 2>err) &
    pid=$!
    wait_for_save "$before" $pid
    kill -HUP $pid
    wait_for_save "$(saved)" $pid
    kill -0 $pid || die "nohup: it has ended"
    kill -TERM $pid
    wait $pid || code=$?
    ! did_not_agree || return 1
    [ "$code" -eq 143 ] && grep -q "^ended by SIGTERM .*continue with --resume auto" out || die "nohup: got $code"
    nothing_left
  }
  again_and_again ends_under_nohup
  ;;
early)
  # While the ranks start: COUNT signals at moments of the first second that SEED draws, to the program or, as Ctrl-C,
  # to its process group. SIGUSR1 ends nothing; before main() nobody can ignore it. Each start goes on with the run before.
  count=${4:-8} seed=${5:-$RANDOM} slowest_ms=0 busy=0
  echo "early: $count signals, seed $seed"
  RANDOM=$seed
  kinds=(INT CTRL_C TERM USR1)
  set -m # process groups of their own, as a terminal's
  for ((i = 0; i < count; ++i)); do
    kind=${kinds[i % 4]} code=0
    printf -v pause '0.%03d' $((RANDOM % 1000))
    env --default-signal "${train[@]}" --epochs 100000 --devices 2 --run-dir kept --resume auto >out 2>err &
    pid=$!
    sleep "$pause"
    if [ "$kind" = USR1 ]; then
      until knows_usr1 $pid; do sleep 0.002; done
      kill -USR1 $pid
      printf -v more '0.%03d' $((RANDOM % 500))
      sleep "$more"
    fi
    case $kind in
      CTRL_C) want=130; kill -INT -- -$pid ;;
      INT) want=130; kill -INT $pid ;;
      *) want=143; kill -TERM $pid ;;
    esac || die "$kind after $pause s: it has ended before"
    began=${EPOCHREALTIME/[.,]/}
    ends_within 120 $pid || die "$kind after $pause s: it hangs"
    took_ms=$(((${EPOCHREALTIME/[.,]/} - began) / 1000))
    [ $took_ms -le $slowest_ms ] || slowest_ms=$took_ms
    wait $pid || code=$?
    if did_not_agree && [ $((busy += 1)) -le 5 ]; then # not yet a verdict
      i=$((i - 1))
      nothing_left
      continue
    fi
    [ "$code" -eq $want ] || die "$kind after $pause s: expected code $want, but got $code"
    [ ! -s err ] || die "$kind after $pause s: an end that was asked for is no error"
    nothing_left
  done
  set +m
  run 0 "${train[@]}" --max-steps 2 --devices 2
  echo "early: $count of $count ended as they should, the slowest within $slowest_ms ms"
  ;;
stopped)
  # One rank hangs: the others cannot agree on a last step, save nothing, and say so.
  code=0
  ATHANOR_OMP_SET=1 "${train[@]}" --epochs 100000 --devices 3 --checkpoint-dir saved --checkpoint-every 10000min --metrics going.jsonl \
    >out 2>err &
  pid=$!
  until grep -qs '"event":"epoch"' going.jsonl; do kill -0 $pid || die "it does not train"; sleep 0.05; done
  stopped=$(pgrep -P $pid | tail -1)
  kill -STOP "$stopped"
  kill -TERM $pid
  wait $pid || code=$?
  [ "$code" -eq 74 ] || die "got $code"
  grep -qE "^rank [0-2]: error: asked to end, but .* nothing more is saved" err || die "it does not say so"
  [ -z "$(saved)" ] || die "it has saved $(saved)"
  nothing_left
  ;;
paused)
  # Ctrl-Z and fg: for longer than the deadline, and no rank is lost.
  state() { sed 's/.*) //; s/ .*//' "/proc/$1/stat"; }
  set -m # a process group of its own, as a terminal's
  ATHANOR_OMP_SET=1 "${train[@]}" --epochs 100000 --devices 2 --dist-timeout 8 --checkpoint-dir saved --checkpoint-every 20 \
    >out 2>err &
  pid=$!
  wait_for_save "" $pid
  kill -TSTP -- -$pid
  for process in $pid $(pgrep -P $pid); do
    for _ in $(seq 2400); do [ "$(state "$process")" = T ] && break; sleep 0.05; done
    [ "$(state "$process")" = T ] || die "process $process goes on ($(cat "/proc/$process/stat"))"
  done
  before=$(saved)
  sleep 10
  kill -CONT -- -$pid
  wait_for_save "$before" $pid
  code=0
  kill -TERM $pid
  wait $pid || code=$?
  if ! did_not_agree; then
    [ "$code" -eq 143 ] || die "after Ctrl-Z and fg: got $code"
    [ ! -s err ] || die "after Ctrl-Z and fg: stderr"
  fi
  nothing_left
  ;;
threads)
  # ulimit -u, which root is not held to: as a user with no other processes.
  [ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
  chmod 777 .
  cp "$bin/train_digits" .
  chmod 755 train_digits
  for most in 1 2 3; do
    code=0
    timeout 120 setpriv --reuid 4711 --regid 4711 --clear-groups prlimit --nproc=$most \
      ./train_digits --epochs 1 --max-steps 2 --devices 2 >out 2>err || code=$?
    [ "$code" -eq 3 ] || die "ulimit -u $most: got $code"
    [ "$(wc -l <err)" -eq 1 ] && grep -q "error: " err || die "ulimit -u $most: expected one line"
  done
  nothing_left
  ;;
restarts)
  # --max-restarts: the launcher itself starts a job again that has lost a rank; the weights are those of a run that lost none.
  whole=("${train[@]}" --epochs 30 --devices 2 --metrics)
  run 0 "${whole[@]}" straight.jsonl
  go=("${whole[@]}" restarted.jsonl --checkpoint-dir saved --checkpoint-every 5 --resume auto)
  run 2 "${whole[@]}" none.jsonl --max-restarts 3
  one_line "--max-restarts 3: needs --resume auto"
  run 2 "${train[@]}" --max-restarts 3 --resume auto --checkpoint-dir saved
  one_line "--max-restarts 3: needs --devices"
  lose_two() {
    rm -rf saved restarted.jsonl
    before="" code=0
    ATHANOR_OMP_SET=1 "${go[@]}" --max-restarts 3 >out 2>err &
    pid=$!
    for lost in 1 2; do
      until [ "$(saved)" != "$before" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
      kill -KILL $(pgrep -P $pid | tail -1) 2>/dev/null || break # it is over
      before=$(saved)
      until [ "$(grep -c "^warning: a rank was lost" err)" -eq $lost ] || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
    done
    wait $pid || code=$?
    [ "$code" -eq 0 ] || die "--max-restarts: got $code"
    [ "$(grep -c "^warning: a rank was lost" err)" -eq 2 ]
  }
  again_and_again lose_two
  grep -q "^warning: a rank was lost, and the job ended with code 137: restart 2 of 3$" err || die "no second restart is announced"
  [ "$(field straight.jsonl end weights_hash)" = "$(field restarted.jsonl end weights_hash)" ] || die "hash differs"
  nothing_left
  # A signal for the job ends it: that is no lost rank.
  ends_by_a_signal() {
    rm -rf saved
    code=0
    ATHANOR_OMP_SET=1 "${train[@]}" --epochs 100000 --devices 2 --checkpoint-dir saved --resume auto --max-restarts 3 >out 2>err &
    pid=$!
    wait_for_save "" $pid
    kill -TERM $pid
    wait $pid || code=$?
    ! grep -q "restart 1 of 3" err || die "SIGTERM: it starts again"
    ! did_not_agree || return 1
    [ "$code" -eq 143 ] && [ ! -s err ] || die "SIGTERM: got $code"
    nothing_left
  }
  again_and_again ends_by_a_signal
  ;;
recipes)
  # The commands of docs/reference/several_devices.md, on this machine: mpirun as it is; Slurm and torchrun by what they set for each rank.
  bash "$(dirname "${BASH_SOURCE[0]}")/launch_recipes.sh" "$bin" "$mpirun" "$(dirname "${BASH_SOURCE[0]}")/../../docs/reference/several_devices.md"
  nothing_left
  ;;
killed)
  # A rank, and the launcher: nothing is left, and the run that goes on is the one that was let alone.
  whole=("${train[@]}" --epochs 30 --devices 2 --metrics)
  run 0 "${whole[@]}" straight.jsonl
  go=("${whole[@]}" resumed.jsonl --checkpoint-dir saved --checkpoint-every 5 --resume auto)
  kill_one() { # kill_one WHOM
    rm -rf saved resumed.jsonl
    [ ! -d kept ] || { cp -r kept saved && cp kept.jsonl resumed.jsonl; }
    before=$(saved) code=0
    ATHANOR_OMP_SET=1 "${go[@]}" >out 2>err &
    pid=$!
    wait_for_save "$before" $pid
    case $1 in
    rank) kill -KILL $(pgrep -P $pid | tail -1) 2>/dev/null || true ;;
    launcher) kill -KILL $pid 2>/dev/null || true ;;
    esac
    { wait $pid || code=$?; } 2>/dev/null
    [ "$code" -ne 0 ] || return 1 # it was over before it could be killed
    [ "$code" -eq 137 ] || die "$1: got $code"
    nothing_left
    rm -rf kept && cp -r saved kept && cp resumed.jsonl kept.jsonl
  }
  again_and_again kill_one rank
  again_and_again kill_one launcher
  run 0 "${go[@]}"
  [ "$(field straight.jsonl end weights_hash)" = "$(field resumed.jsonl end weights_hash)" ] || die "hash differs"
  ;;
lost)
  # Whatever the ranks were doing when one of them was killed or stopped: a line names it, and `athanor flight` that one and
  # nobody else.
  for how in KILL:137:zero1:rank_order STOP:74:zero1:rank_order KILL:137:ddp:ring STOP:74:ddp:ring; do
    IFS=: read -r signal want strategy algorithm <<<"$how"
    rm -rf saved
    code=0
    ATHANOR_OMP_SET=1 "${train[@]}" --epochs 100000 --devices 4 --strategy "$strategy" --algorithm "$algorithm" \
      --checkpoint-dir saved --dist-timeout 10 >out 2>err &
    pid=$!
    wait_for_save "" $pid
    sleep 0.5
    culprit=$(pgrep -P $pid | sed -n 3p)
    rank=$(tr '\0' '\n' <"/proc/$culprit/environ" | sed -n 's/^RANK=//p')
    kill "-$signal" "$culprit"
    { wait $pid || code=$?; } 2>/dev/null
    [ "$code" -eq "$want" ] || die "$how: got $code"
    nothing_left
    if [ "$signal" = KILL ]; then
      [ "$(grep -cE "^rank [0-3]: error: .*(rank $rank )?was killed by signal 9" err)" -eq 4 ] || die "$how: not every line names rank $rank"
    else
      grep -qE "waits for rank $rank in " err || die "$how: nobody names rank $rank"
    fi
    "$bin/athanor" flight saved >flight || die "$how: no record"
    head -n 1 flight | grep -qE "^rank $rank( left no record|: .*it had been stopped)" || { cat flight; die "$how: flight"; }
    ! sed '/^last collective\|^no collective/,$d' flight | grep -vE "^rank $rank[ :]|for rank $rank in" ||
      { cat flight; die "$how: flight names somebody else"; }
  done
  ;;
worlds)
  # Saved by two, gone on with by one and by three.
  whole=("${train[@]}" --epochs 6 --metrics)
  run 0 "${whole[@]}" straight.jsonl --devices 2
  run 0 "${whole[@]}" first.jsonl --devices 2 --checkpoint-dir saved --max-time 0.000001
  for ranks in 1 3; do
    cp -r saved "saved$ranks"
    run 0 "${whole[@]}" "$ranks.jsonl" --devices "$ranks" --checkpoint-dir "saved$ranks" --resume auto
    close "$(field straight.jsonl end test_accuracy)" "$(field "$ranks.jsonl" end test_accuracy)"
    [ "$(field straight.jsonl end applied_steps)" = "$(field "$ranks.jsonl" end applied_steps)" ] || die "steps"
  done
  ;;
*) die "no such case: $case" ;;
esac
