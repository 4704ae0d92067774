#!/usr/bin/env bash
# Kills trainings by SIGKILL at random moments, resumes each until it ends, and compares what it leaves with an undisturbed run's.
#   scripts/kill_drills.sh [COUNT] [--seed N] [--drill N] [--only VARIANT] [--bin DIR] [--deadline SECONDS]
# COUNT drills (200), of f32, f16 and ema in turns, and one in ten of zero1 on two ranks.
# A drill is one run of train_digits: killed up to three times, resumed by --resume auto, and at last left alone. All
# choices are drawn from the seed (drawn and printed where it is not given) and the drill's number:
#   - when: at any moment, while a checkpoint is written, or while the model is written;
#   - whom, of two ranks: all processes, one rank, or the program that started them;
#   - how it saves: every so many steps, with --async-checkpoints or without, with --monitor and --save-top-k or without;
#   - what happens to the newest checkpoint in between: nothing, or it is truncated, or a byte of it changes.
# model.safetensors, and last.safetensors where there is one, must be the undisturbed run's byte for byte, and so must the weights
# after each epoch (metrics.jsonl). A damaged checkpoint must be named, and an older one taken. Each step must end within the
# deadline (300 s). Prints a table; ends with 1 where a drill fails, names it, and keeps its folder. Needs train_digits:
#   cmake --build --preset cpu --target train_digits
set -euo pipefail

usage() { echo "kill_drills.sh: $*" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
count=200 seed= only_drill= only_variant= bin=$root/build/cpu/bin deadline_s=300
while [ $# -gt 0 ]; do
  case $1 in
    --seed | --drill | --only | --bin | --deadline) [ $# -ge 2 ] || usage "$1 must be followed by a value" ;;&
    --seed) seed=$2 ;;
    --drill) only_drill=$2 ;;
    --only) only_variant=$2 ;;
    --bin) bin=$(cd "$2" && pwd) ;;
    --deadline) deadline_s=$2 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) [[ $1 =~ ^[1-9][0-9]*$ ]] || usage "must be a number of drills, --seed, --drill, --only, --bin or --deadline, but got '$1'"
      count=$1; shift; continue ;;
  esac
  shift 2
done
for number in "$deadline_s" "${seed:-0}" "${only_drill:-1}"; do
  [[ $number =~ ^[0-9]{1,8}$ ]] || usage "--seed, --drill and --deadline must be whole numbers below 100000000, but got '$number'"
done
[ -x "$bin/train_digits" ] || usage "there is no $bin/train_digits: cmake --build --preset cpu --target train_digits"
seed=${seed:-$((RANDOM * 1000 + RANDOM % 1000))}

variants=(f32 f16 ema zero1 f32 f16 ema f32 f16 ema) # in turns
[ -z "$only_variant" ] || [[ $only_variant = @(f32|f16|ema|zero1) ]] || usage "--only must be f32, f16, ema or zero1, but got '$only_variant'"
[ -z "$only_variant" ] || variants=("$only_variant")
declare -A flags=([f32]="" [f16]="--precision f16" [ema]="--ema 0.9" [zero1]="--devices 2 --strategy zero1")
declare -A best=([0]="" [1]="--monitor val_loss --save-top-k 2")
declare -A time_us drills kills saves models resumes damages equals # by variant; time_us also by reference

folder=$(mktemp -d)
kept=0
trap '[ "$kept" = 1 ] || rm -rf "$folder"' EXIT
cd "$folder"
unset ATHANOR_DATA_DIR ATHANOR_DIST_DEBUG
export ATHANOR_RUNS_DIR=none OMP_WAIT_POLICY=passive # which also spares the program its restart
train=("$bin/train_digits" --device cpu --epochs 3 --batch-size 128 --threads 1 --deterministic --run-dir)

draw() { drawn=$((RANDOM * 32768 + RANDOM)); drawn=$((drawn % $1)); } # draw N: `drawn` is 0 to N - 1. (A subshell would draw others.)
micros() { now_us=${EPOCHREALTIME/[.,]/}; }
exec {nothing}<> <(:) # from which nothing comes
pause() { read -rt "$1" -u "$nothing" || true; } # pause SECONDS, without a process of its own
sleep_us() { local s; printf -v s '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000)); pause "$s"; }
has() { compgen -G "$1" >/dev/null; } # has PATTERN: a file of that name
checkpoints() { find "$run/checkpoints" -maxdepth 1 -name 'step-*.safetensors' 2>/dev/null | sort; }
epochs_of() { sed -n 's/.*"event":"epoch","epoch":\([0-9]*\),.*"weights_hash":"\([0-9a-f]*\)".*/\1 \2/p' "$1/metrics.jsonl" | sort -u; }

# What an undisturbed run leaves
# ------------------------------------------------------------------------------------------------------------------------------
make_reference() { # make_reference VARIANT BEST: in ref.VARIANT.BEST; false where this build cannot
  local name=ref.$1.$2 code=0 began_us
  [ -z "${time_us[$name]-}" ] || return 0
  micros; began_us=$now_us
  timeout -k 1 "$deadline_s" "${train[@]}" "$name" ${flags[$1]} ${best[$2]} >out 2>err </dev/null || code=$?
  if [ "$1" = zero1 ] && [ $code -eq 3 ] && grep -qE 'made without|not in PATH' err; then return 1; fi
  [ $code -eq 0 ] || { cat out err; echo "kill_drills.sh: the undisturbed run $1 $2 must end with 0, but ended with $code"; exit 1; }
  micros; time_us[$name]=$((now_us - began_us))
}

# One run, and its end by SIGKILL
# ------------------------------------------------------------------------------------------------------------------------------
gone() { # all that this drill has started
  ! kill -0 "$pid" 2>/dev/null && { [ "$variant" != zero1 ] || ! pgrep -f -- "$folder/$run " >/dev/null; }
}
wait_for_end() { # false past the deadline
  local end=$((SECONDS + deadline_s))
  until gone; do
    [ $SECONDS -lt $end ] || return 1
    pause 0.01
  done
}
begin() { # the run, in the background; the first time from scratch
  local more=()
  [ "$begun" = 0 ] || { more=(--resume auto); resumes[$variant]=$((resumes[$variant] + 1)); }
  "${train[@]}" "$folder/$run" ${flags[$variant]} ${best[$monitored]} $saving "${more[@]}" >out 2>err </dev/null &
  pid=$! begun=1
}
aim() { # until the moment that is drawn has come, or the run has ended
  local pattern
  draw $((${time_us[ref.$variant.$monitored]} * 3 / 4 / (killed + 1))) # less is left of it each time
  case $1 in
    any) sleep_us "$drawn"; return ;;
    save) sleep_us $((drawn / 2)); pattern="$run/checkpoints/step-*.tmp" ;;
    model) pattern="$run/*.safetensors.*.tmp" ;;
  esac
  until has "$pattern" || ! kill -0 "$pid" 2>/dev/null; do pause 0.0005; done
}
shoot() { # WHOM: all, rank or program. One rank that dies is enough to end them all, and so is the program.
  local ranks=() targets=("$pid")
  if [ "$variant" = zero1 ]; then
    mapfile -t ranks < <(pgrep -P "$pid" || true)
    case $1 in
      all) targets=("$pid" "${ranks[@]}") ;;
      rank) [ ${#ranks[@]} -eq 0 ] || { draw ${#ranks[@]}; targets=("${ranks[drawn]}"); } ;;
    esac
  fi
  kill -KILL "${targets[@]}" 2>/dev/null || true
}
kill_once() { # begins the run and kills it: false, and `why` says it, where it does not end as it should
  local moments=(any any save model) whom=(all rank rank program) moment one code=0
  draw 4; moment=${moments[drawn]}
  draw 4; one=${whom[drawn]}
  [ "$variant" = zero1 ] || one=process
  begin
  aim "$moment"
  shoot "$one"
  log+="  $moment: SIGKILL to $one"$'\n'
  wait_for_end || { why="hangs after SIGKILL to $one"; return 1; }
  wait "$pid" 2>/dev/null || code=$?
  log+="    ended with $code; checkpoints: $(checkpoints | tail -n 1)"$'\n'
  if [ $code -ne 0 ]; then # else it had ended before: what it has left must stay
    [[ $code = 137 || $variant = zero1 && $code = @(74|143) ]] ||
      { why="must end with 0 or by SIGKILL, but ends with $code"; return 1; }
    killed=$((killed + 1)) kills[$variant]=$((kills[$variant] + 1))
    ! has "$run/checkpoints/step-*.tmp" || saves[$variant]=$((saves[$variant] + 1))
    ! has "$run/*.safetensors.*.tmp" || models[$variant]=$((models[$variant] + 1))
  fi
  heeds_damage
}

# Damage
# ------------------------------------------------------------------------------------------------------------------------------
damage_newest() { # one time in three; `damaged` is its name, `stamp` tells it from a whole one of the same name
  local file size byte at
  draw 3
  [ -z "$damaged" ] || return 0 # still there, for the run was killed before it looked
  file=$(checkpoints | tail -n 1)
  [ "$drawn" = 0 ] && [ -n "$file" ] || return 0
  size=$(stat -c %s "$file")
  draw 2
  if [ "$drawn" = 0 ]; then
    draw "$size"
    truncate -s "$drawn" "$file"
    log+="  ${file##*/}: $size bytes cut to $drawn"$'\n'
  else
    draw "$size"; at=$drawn
    byte=$(od -An -tu1 -j "$at" -N 1 "$file")
    draw 255
    printf "\\x$(printf %x $((byte ^ (drawn + 1))))" | dd of="$file" bs=1 seek="$at" conv=notrunc status=none
    log+="  ${file##*/}: byte $at of $size changed"$'\n'
  fi
  damaged=${file##*/} stamp=$(stat -c '%i %y' "$file")
  damages[$variant]=$((damages[$variant] + 1))
}
heeds_damage() { # what the last run has said of the file that was damaged before it
  local begins
  [ -n "$damaged" ] || return 0
  begins=$(grep -nE '^(resumed from|--resume auto: no valid checkpoint)' out | sed -n 1p) || begins=
  if [ -z "$begins" ]; then # killed before it said so
    [ "$(stat -c '%i %y' "$run/checkpoints/$damaged" 2>/dev/null)" = "$stamp" ] || damaged=
    return 0
  fi
  if [[ $begins = *"$damaged"* ]] || ! grep -qE "^skipped: .*$damaged" out; then
    why="must name and skip $damaged, which is damaged, but says: ${begins#*:}"
    return 1
  fi
  damaged=
}

# A drill
# ------------------------------------------------------------------------------------------------------------------------------
same() { # same FILE: in the run and its reference, or in neither
  local reference=ref.$variant.$monitored/$1
  if [ -e "$reference" ]; then cmp -s "$reference" "$run/$1"; else [ ! -e "$run/$1" ]; fi
}
drill() { # false, and `why` says it
  local code=0 every=(1 2 5 9) times
  draw 3; [ "$drawn" = 0 ] && monitored=1 || monitored=0
  draw 4; saving="--checkpoint-every ${every[drawn]}"
  draw 2; [ "$drawn" = 0 ] || saving+=" --async-checkpoints"
  make_reference "$variant" "$monitored"
  log+="  ${flags[$variant]} ${best[$monitored]} $saving"$'\n'
  draw 3; times=$((drawn + 1))
  [ "$variant" != zero1 ] || times=$((times / 3 + 1)) # ranks take their time to begin
  while [ "$times" -gt 0 ]; do
    kill_once || return 1
    damage_newest
    times=$((times - 1))
  done
  begin
  wait_for_end || { why="hangs when it is resumed and left alone"; return 1; }
  wait "$pid" || code=$?
  [ $code -eq 0 ] || { why="resumed and left alone, it must end with 0, but ends with $code"; return 1; }
  heeds_damage || return 1
  [ -z "$damaged" ] || { why="$damaged is damaged, and that was not reported"; return 1; }
  same model.safetensors || { why="model.safetensors differs"; return 1; }
  same last.safetensors || { why="last.safetensors differs"; return 1; }
  [ "$(epochs_of "$run")" = "$(epochs_of "ref.$variant.$monitored")" ] || { why="weights after an epoch differ"; return 1; }
  ! has "$run/*.tmp" || { why="leaves half a file: $(echo "$run"/*.tmp)"; return 1; }
}
run_drill() { # run_drill NUMBER VARIANT
  local number=$1
  variant=$2 run=drill.$1 log= why= begun=0 killed=0 damaged=
  RANDOM=$(((seed * 10007 + number) % 2147483647))
  for _ in 1 2 3 4; do draw 2; done # seeds that are near each other begin alike
  drills[$variant]=$((drills[$variant] + 1))
  if drill 2>said; then # bash says there who was killed
    equals[$variant]=$((equals[$variant] + 1))
    rm -rf "$run"
    return
  fi
  failed=$((failed + 1)) kept=1
  printf 'drill %s of seed %s (%s) FAILED: %s\n%s' "$number" "$seed" "$variant" "$why" "$log"
  { grep -v ' Killed  ' said || true; cat out err; } | tail -n 24 | sed 's/^/  | /'
  printf '  its folder: %s\n  again: scripts/kill_drills.sh --seed %s --drill %s --bin %s\n' "$folder/$run" "$seed" "$number" "$bin${only_variant:+ --only $only_variant}"
  { gone || kill -KILL "$pid" $(pgrep -f -- "$folder/$run " || true) || true; } 2>/dev/null
}

report() { # the table
  local row='%-8s %7s %7s %9s %9s %8s %8s %7s\n' one
  micros
  printf "\n$row" variant drills kills 'in a save' 'in model' resumes damaged equal
  for one in "${names[@]}"; do
    printf "$row" "$one" "${drills[$one]}" "${kills[$one]}" "${saves[$one]}" "${models[$one]}" "${resumes[$one]}" "${damages[$one]}" \
      "${equals[$one]}"
  done
  printf '%d of %d drills left what undisturbed runs leave; seed %d, %d.%d s per drill\n' $((ran - failed)) "$ran" "$seed" \
    $(((now_us - began_us) / (ran + (ran == 0)) / 1000000)) $(((now_us - began_us) / (ran + (ran == 0)) / 100000 % 10))
}

# ------------------------------------------------------------------------------------------------------------------------------
echo "kill_drills.sh: seed $seed"
micros; began_us=$now_us
failed=0 ran=0
mapfile -t names < <(printf '%s\n' "${variants[@]}" | awk '!seen[$0]++')
for one in "${names[@]}"; do
  drills[$one]=0 kills[$one]=0 saves[$one]=0 models[$one]=0 resumes[$one]=0 damages[$one]=0 equals[$one]=0
done
trap 'kill -KILL $pid 2>/dev/null || true; report; exit 130' INT TERM # of the drills until then
pid=
for number in $(seq "${only_drill:-1}" "${only_drill:-$count}"); do
  run_drill "$number" "${variants[(number - 1) % ${#variants[@]}]}"
  ran=$((ran + 1))
done
report
[ "$failed" = 0 ]
