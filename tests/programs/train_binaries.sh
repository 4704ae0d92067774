#!/usr/bin/env bash
# train_binaries.sh BIN: the training programs as a user runs them: exit codes, messages, files, signals, equal runs.
set -euo pipefail
bin=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset ATHANOR_DATA_DIR
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null; exit 1; }
run() { # run CODE BINARY ARGUMENTS...
  local want=$1 code=0
  shift
  "$bin/$1" "${@:2}" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "$*: expected code $want, but got $code"
}
refuses() { # refuses PATTERN BINARY ARGUMENTS...: code 2, one line
  local pattern=$1
  shift
  run 2 "$@"
  [ "$(wc -l <err)" -eq 1 ] || die "$*: expected one line on stderr"
  grep -qE -- "$pattern" err || die "$*: expected '$pattern'"
}
field() { sed -n "/\"event\":\"$2\"/s/.*\"$3\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1" | tail -1; }

run 0 train_digits --help
grep -q -- '--early-stop' out || die "--help lacks flags"
[ -z "$(grep -E '.{81}' out)" ] || die "--help is wider than a terminal"
refuses "mean '--epochs'" train_digits --epoch 3
refuses "no flag '--epoch'; did you mean '--epochs'\?; no flag '--lrr'; did you mean '--lr'\?; see" train_digits --epoch 3 --lrr 1
refuses "mean 'digits_cnn'" train_digits --model digit_cnn
refuses "use ddp" train_digits --devices 2 --strategy dp
refuses "--lr" train_digits --lr nan
refuses "--metrics" train_digits --metrics /nowhere/file
refuses "scripts/get_data.sh mnist" train_mnist
refuses "scripts/get_data.sh cifar10" train_cifar10 --data-dir "$folder"
refuses "--strategy zero1: .*there is one; add --devices" train_digits --strategy zero1
refuses "--strategy zero1: .*there is one; add --devices" train_digits --strategy zero1 --devices 1
run 0 train_digits --device cpu --strategy ddp --fast-dev-run
grep -q "strategy single (nothing to share for ddp), " out || die "ddp with one device: not a word"
run 0 train_digits --device cpu --devices auto --strategy zero1 --fast-dev-run
grep -q "strategy single (--devices auto: no GPU in use; nothing to share for zero1), " out || die "--devices auto: not a word"
run 0 train_digits --device cpu --devices auto --fast-dev-run
grep -q "strategy single (--devices auto: no GPU in use), " out || die "--devices auto: not a word"
# Images of other than three channels have their own mean and deviation.
for channels in 1 2 4; do
  { printf '\0\0\10\4\0\0\0\50\0\0\0\10\0\0\0\10\0\0\0'; printf "\\$channels"; head -c $((40 * 64 * channels)) /dev/urandom; } >few-images-idx4-ubyte
  { printf '\0\0\10\1\0\0\0\50'; for _ in {1..20}; do printf '\0\1'; done; } >few-labels-idx1-ubyte
  few=(train_images few-images-idx4-ubyte --device cpu --model resnet20 --image-size 32 --epochs 1)
  run 0 "${few[@]}" --run-dir none
  grep -q "32x32x$channels, 2 classes" out || die "$channels channels: not trained on"
done
refuses "color-jitter, but have 4; .*--augment" "${few[@]}" --run-dir none --augment color-jitter

run 3 train_digits --memory-limit 100000
[ "$(wc -l <err)" -eq 1 ] || die "out of memory takes more than a line"
grep -qE -- "--memory-limit: must exceed the [0-9]+ bytes held .* take [0-9]+, but is 100000$" err || die "it does not say what it needs"
# In the first step it is found which batch fits, and that one does.
run 0 train_digits --batch-size 512 --epochs 1 --metrics big.jsonl
limit=$(($(field big.jsonl end peak_bytes) * 85 / 100)) # how much a step takes depends on the oneDNN that is here
run 3 train_digits --memory-limit $limit --batch-size 512 --epochs 1
fits=$(sed -nE 's/.*would with (--batch-size [0-9]+); (--accumulate [0-9]+) keeps the.*/\1 \2/p' err)
[ -n "$fits" ] && [ "$(wc -l <err)" -eq 1 ] || die "it does not say which batch fits"
run 0 train_digits --memory-limit $limit --epochs 1 $fits
run 3 train_digits --model resnet20 --memory-limit 9000000 --epochs 1
grep -q "The run does not fit in memory, not even with a smaller batch" err || die "it does not say that nothing fits"

# A question is answered, and nothing else is left.
run 0 train_digits --find-lr --run-dir asked --lr 0.5 --threads 1
grep -qE '^next +.*train_digits --run-dir asked --threads 1 --lr [0-9.]+$' out || die "--find-lr names no command"
[ "$(ls asked)" = lr_curve.svg ] || die "--find-lr leaves other things"
run 0 train_digits --find-batch-size --run-dir asked --threads 1
grep -qE '^fastest +[0-9,]+, [0-9,]+ images/s' out || die "--find-batch-size names none"
[ "$(ls asked)" = lr_curve.svg ] || die "--find-batch-size leaves things"

run 0 train_digits --fast-dev-run --metrics dev.jsonl
[ "$(field dev.jsonl end applied_steps)" = 1 ] || die "fast-dev-run made more than a step"

# Equal runs, and a different one.
for seed in 3 3 4; do run 0 train_digits --epochs 2 --deterministic --seed "$seed" --metrics equal.jsonl --forbid-sync; done
mapfile -t hashes < <(sed -n '/"event":"end"/s/.*"weights_hash":"\([^"]*\)".*/\1/p' equal.jsonl)
[ "${hashes[0]}" = "${hashes[1]}" ] && [ "${hashes[0]}" != "${hashes[2]}" ] || die "hashes: ${hashes[*]}"

# A signal ends it after the step under way, with a last line. (A script's background jobs ignore SIGINT: --default-signal.)
for signal in INT:130 TERM:143; do
  rm -f signal.jsonl
  code=0
  ATHANOR_OMP_SET=1 env --default-signal "$bin/train_digits" --epochs 100000 --metrics signal.jsonl >out 2>err &
  pid=$!
  until [ -s signal.jsonl ]; do kill -0 $pid || die "it does not train"; sleep 0.05; done
  kill "-${signal%:*}" $pid
  wait $pid || code=$?
  [ "$code" -eq "${signal#*:}" ] || die "$signal: got $code"
  [ "$(field signal.jsonl end stopped_by)" = signal ] || die "$signal: no end line"
done

# Whether it is the program itself, and no more the shell that starts it, and has its handler.
catches_sigint() {
  [ "$(cat "/proc/$pid/comm")" = train_digits ] && [ $((0x$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status") & 2)) -ne 0 ]
} 2>/dev/null

# One that comes while the data are still being made or read ends it at once, also with a line. (It may come later beside other work.)
for _ in $(seq 50); do
  code=0
  ATHANOR_OMP_SET=1 env --default-signal "$bin/train_digits" --data synthetic:3000000 --run-dir none >out 2>err &
  pid=$!
  until catches_sigint; do kill -0 $pid 2>/dev/null || die "it ends before a signal has come"; sleep 0.01; done
  kill -INT $pid
  wait $pid || code=$?
  grep -q "^ended by SIGINT after" out || break
done
[ "$code" -eq 130 ] && [ "$(cat err)" = "ended by SIGINT before the first step; nothing was saved" ] || die "an early SIGINT: got $code"

# Killed again and again, at whatever it is doing, a run that goes on ends as the one that was let alone.
newest() { (ls saved 2>/dev/null || true) | { grep '^step-[0-9]*\.safetensors$' || true; } | tail -1; }
train=(train_digits --epochs 40 --deterministic --early-stop val_loss:100)
run 0 "${train[@]}" --metrics straight.jsonl
saving=("${train[@]}" --checkpoint-dir saved --checkpoint-every 7 --metrics resumed.jsonl)
for signal in KILL:137 INT:130 TERM:143 KILL:137; do
  case $signal in KILL*) progress=on ;; *) progress=off ;; esac # which is no setting of a run
  for try in $(seq 50); do
    rm -rf saved resumed.jsonl
    [ ! -d kept ] || { cp -r kept saved && cp kept.jsonl resumed.jsonl; }
    before=$(newest) code=0
    ATHANOR_OMP_SET=1 env --default-signal "$bin/train_digits" "${saving[@]:1}" --resume auto --progress $progress >out 2>err &
    pid=$!
    until [ "$(newest)" != "$before" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
    kill "-${signal%:*}" $pid 2>/dev/null || true
    { wait $pid || code=$?; } 2>/dev/null
    [ "$code" -eq 0 ] || break # else it was over before it could be killed
  done
  [ "$code" -eq "${signal#*:}" ] || die "${signal%:*}: got $code"
  rm -rf kept && cp -r saved kept && cp resumed.jsonl kept.jsonl
done
run 0 "${saving[@]}" --resume auto
grep -q "^resumed from saved/step-" out || die "it does not say where it goes on"
for key in weights_hash test_accuracy applied_steps epochs; do
  [ "$(field straight.jsonl end $key)" = "$(field resumed.jsonl end $key)" ] || die "a resumed run differs in $key"
done
[ "$(field straight.jsonl epoch val_loss)" = "$(field resumed.jsonl epoch val_loss)" ] || die "val_loss differs"
[ "$(ls saved | wc -l)" -eq 3 ] || die "expected three checkpoints, but there are: $(ls saved)"

# The newest one damaged: the one before it serves, and it says so.
damaged=saved/$(newest)
printf 'x' | dd of="$damaged" bs=1 seek=200000 conv=notrunc 2>/dev/null
run 0 "${saving[@]}" --resume auto
grep -q "^skipped: .*$damaged is damaged" out || die "it does not say what is damaged"
[ "$(field straight.jsonl end weights_hash)" = "$(field resumed.jsonl end weights_hash)" ] || die "hash differs"
refuses "saved/step-.* --batch-size is 16 and was 32 .*--pretrained" "${saving[@]}" --resume auto --batch-size 16
refuses "must be empty .*--resume auto" "${saving[@]}"
refuses "there is no saved/none" "${saving[@]}" --resume saved/none
refuses "must be a checkpoint of a run" "${train[@]}" --resume resumed.jsonl

# A full disk (which a limit on the size of files is to a program): one line, and nothing is left behind.
( trap '' XFSZ; ulimit -f 64; refuses "save: cannot write full/step-.*: File too large" \
  "${train[@]}" --checkpoint-dir full )
[ -z "$(ls full)" ] || die "left behind: $(ls full)"

# That limit ends no program of ours, whoever set it.
head -c 2000 /dev/zero >large.jsonl
( ulimit -f 1; refuses "--metrics: large.jsonl cannot be written: File too large" train_digits --fast-dev-run --metrics large.jsonl )

# Threads that the system does not give. (A limit that does not hold for root.)
if command -v setpriv >/dev/null && [ "$(id -u)" -eq 0 ]; then
  mkdir threads && chmod 777 threads "$folder"
  few() { (cd threads && setpriv --reuid=54321 --regid=54321 --clear-groups --inh-caps=-all --bounding-set=-all \
    bash -c 'ulimit -u 2; exec "$@"' few "$@"); }
  if few "$bin/train_digits" --help >/dev/null 2>&1; then # a folder that nobody else may read is no fault of ours
    for flags in "--threads 4 --workers 0" "--threads 1 --workers 4"; do
      code=0
      # shellcheck disable=SC2086
      few "$bin/train_digits" --device cpu --fast-dev-run $flags >out 2>err || code=$?
      [ "$code" -eq 3 ] && [ "$(cat err)" = "error: threads: the system cannot start another thread (ulimit -u); raise the limit, or use fewer --threads and --workers" ] || die "$flags with few threads: got $code"
    done
  fi
fi

# A run that diverges says so, and leaves no checkpoint in the place of a good one.
run 4 train_digits --device cpu --epochs 1 --max-steps 14 --lr 1e30 --metrics diverged.jsonl
[ "$(grep -c "diverged: the last validation's loss is .*; lower --lr, or set --clip-norm" out)" -eq 1 ] || die "it does not say so"
grep -q ' s \*$' out && die "a loss that is no number is the best"
[ "$(field diverged.jsonl end stopped_by)" = diverged ] || die "stopped_by: $(field diverged.jsonl end stopped_by)"
[ "$(grep -c "error: diverged: the last validation's loss is .*; lower --lr" err)" -eq 1 ] || die "stderr does not say so"
run 4 train_digits --device cpu --epochs 1 --max-steps 14 --lr 1e30 --progress off
[ -z "$(cat out)" ] && [ "$(grep -c "error: diverged: the last validation's loss is " err)" -eq 1 ] ||
  die "it does not say so without --progress"
run 4 train_digits --device cpu --epochs 1 --max-steps 14 --lr 1e30 --checkpoint-dir diverged --checkpoint-every 2
[ -z "$(ls diverged)" ] || die "saved although it has diverged: $(ls diverged)"
run 4 train_digits --device cpu --epochs 1 --max-steps 3 --lr 9223372036854775807
grep -q -- "; lower --lr" out || die "it does not name the flag"

# The promise of the README.
run 0 train_digits --metrics full.jsonl
accuracy=$(field full.jsonl end test_accuracy)
awk "BEGIN { exit !($accuracy >= 0.975) }" || die "test accuracy $accuracy is below 0.975"
