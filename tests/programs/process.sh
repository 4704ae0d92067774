#!/usr/bin/env bash
# process.sh BIN: a program as a process among others: its descriptors, its signals, its name.
set -euo pipefail
bin=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null; exit 1; }
one_line() { # one_line CODE PATTERN: how the last command ended, and all that is on stderr
  [ "$code" -eq "$1" ] || die "$2: expected code $1, but got $code"
  [ "$(wc -l <err)" -eq 1 ] || die "$2: expected one line on stderr"
  grep -qE -- "$2" err || die "expected '$2'"
}
short=("$bin/train_digits" --device cpu --epochs 1 --max-steps 5)

# stdout closed: nothing is trained, and no other file takes its place. Full: the training is done, and it is said.
code=0; "${short[@]}" --metrics closed.jsonl >&- 2>err || code=$?
one_line 2 "^error: stdout: must be open, but is closed"
[ ! -e closed.jsonl ] || die "it has trained"
code=0; "${short[@]}" --metrics full.jsonl >/dev/full 2>err || code=$?
one_line 2 "^error: stdout: must accept all output, but does not"
grep -q '"event":"end"' full.jsonl || die "the training did not end"
code=0; "${short[@]}" --devices 2 >/dev/full 2>err || code=$?
one_line 2 "^error: stdout: must accept all output, but does not"
code=0; "$bin/train_digits" --help >/dev/full 2>err || code=$?
one_line 2 "^error: stdout: .*"
code=0; "$bin/athanor" inspect --json full.jsonl >/dev/full 2>err || code=$?
[ "$code" -eq 2 ] || die "athanor inspect to a full disk: got $code"
code=0; "$bin/athanor" --help >&- 2>err || code=$?
one_line 2 "^error: stdout: must be open"
# stdin and stderr closed: what is written to a file is what belongs there.
"${short[@]}" --metrics quiet.jsonl <&- >out 2>&- || die "without stdin and stderr: got $?"
[ "$(grep -cv '^{"event"' quiet.jsonl)" -eq 0 ] || die "quiet.jsonl holds other than metrics"

# begin COMMAND...: until it trains, with the flags in `more`. (A script's background jobs ignore SIGINT: --default-signal.)
more=()
begin() {
  rm -f signal.jsonl
  "$@" "$bin/train_digits" --device cpu --epochs 100000 --metrics signal.jsonl "${more[@]}" >out 2>err &
  pid=$!
  until [ -s signal.jsonl ]; do
    kill -0 $pid 2>/dev/null || die "it does not train"
    sleep 0.05
  done
}
finish() { # finish CODE NAME
  code=0
  wait $pid || code=$?
  ended "$@"
}
ended() {
  [ "$code" -eq "$1" ] || die "SIG$2: expected code $1, but got $code"
  grep -q "^ended by SIG$2 after" out || die "SIG$2: it does not say so"
  grep -q '"event":"end".*"stopped_by":"signal"' signal.jsonl || die "SIG$2: no last line"
}
for signal in INT:130 TERM:143 HUP:129; do
  begin env --default-signal
  kill "-${signal%:*}" $pid
  # A terminal that goes away says so twice.
  [ "$signal" != HUP:129 ] || kill -HUP $pid 2>/dev/null || true
  finish "${signal#*:}" "${signal%:*}"
done
# What is ignored stays ignored: SIGINT in the background of a script, SIGHUP under nohup.
for ignored in INT HUP; do
  begin env --default-signal "--ignore-signal=$ignored"
  [ "$ignored" = INT ] || [ "$(cat /proc/$pid/comm)" = train_digits ] || die "ps calls it $(cat /proc/$pid/comm)"
  kill "-$ignored" $pid
  sleep 0.5
  kill -0 $pid 2>/dev/null || die "SIG$ignored is not ignored"
  kill -TERM $pid
  finish 143 TERM
done

# SIGUSR1 saves, and ends nothing; of ranks, the program that started them is told.
saves_when_asked() { # saves_when_asked RANKS: false where ranks did not agree in half a second on where to end, beside other work
  rm -rf asked
  more=(--devices $1 --checkpoint-dir asked --checkpoint-every 10000min)
  begin env --default-signal
  kill -USR1 $pid
  until [ -n "$(find asked -name 'step-*.safetensors' 2>/dev/null)" ]; do
    kill -0 $pid 2>/dev/null || die "SIGUSR1 on $1 ranks has ended it"
    sleep 0.05
  done
  [ "$(find asked -name 'step-*.safetensors' | wc -l)" -eq 1 ] || die "SIGUSR1 on $1 ranks: expected one checkpoint"
  sleep 0.3
  kill -0 $pid 2>/dev/null || die "SIGUSR1 on $1 ranks has ended it"
  kill -TERM $pid
  code=0
  wait $pid || code=$?
  [ $code -ne 74 ] || ! grep -q "ranks did not agree on a last step in time" err || return 1
  ended 143 TERM
}
for ranks in 1 2; do
  for try in $(seq 5); do ! saves_when_asked $ranks || break; done
  [ $code -eq 143 ] || die "ranks have not agreed in $try attempts"
done
