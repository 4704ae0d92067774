#!/usr/bin/env bash
# Trains the same runs with two builds and compares the weights they end with: what must not change has not changed.
#   scripts/compare_runs.sh BIN_A BIN_B [--steps N] [--only PATTERN]
# BIN_A and BIN_B hold the train programs. The runs are train_digits, train_mnist, train_cifar10 (200 steps each, or N) and
# train_imagenet (10 steps), each in f32, bf16 and f16, on one device and on two with ddp and zero1. ATHANOR_DATA_DIR names the
# folder of mnist/, cifar10/ and imagenet-sample/; programs without their data are left out, and named.
# Prints a row per run: its name, both weights_hash, "equal" or "DIFFERENT". Ends with 1 where a row differs.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/photos.sh"

fail() { echo "compare_runs.sh: $*" >&2; exit 2; }
[ $# -ge 2 ] || fail "usage: scripts/compare_runs.sh BIN_A BIN_B [--steps N] [--only PATTERN]"
a=$1 b=$2 steps=200 only=.
shift 2
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || fail "$1 must be followed by a value"
  case $1 in
    --steps) steps=$2 ;;
    --only) only=$2 ;;
    *) fail "must be --steps or --only, but got '$1'" ;;
  esac
  shift 2
done
data=${ATHANOR_DATA_DIR:-/nowhere}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export ATHANOR_RUNS_DIR=none # what is compared is in the metrics
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

hash_of() { # hash_of BIN PROGRAM ARGUMENTS...: that of the weights after training, or why there is none
  local bin=$1 program=$2 code=0
  shift 2
  rm -f "$folder/metrics.jsonl"
  "$bin/$program" "$@" --metrics "$folder/metrics.jsonl" >"$folder/out" 2>"$folder/err" </dev/null || code=$?
  if [ $code -ne 0 ] && [ $code -ne 4 ]; then # 4: it diverged, and has weights as well
    echo "code:$code"
  else
    sed -n '/"event":"end"/s/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p' "$folder/metrics.jsonl"
  fi
}

rows=0 different=0
compare() { # compare NAME PROGRAM ARGUMENTS...
  local name=$1 of_a of_b verdict=equal
  [[ $name =~ $only ]] || return 0
  shift
  of_a=$(hash_of "$a" "$@")
  of_b=$(hash_of "$b" "$@")
  [[ $of_a = "$of_b" && $of_a != code:* ]] || { verdict=DIFFERENT; different=$((different + 1)); }
  rows=$((rows + 1))
  printf '%-28s %-16s %-16s %s\n' "$name" "$of_a" "$of_b" "$verdict"
}

programs=(train_digits)
for set in mnist cifar10 imagenet-sample; do
  if [ -d "$data/$set" ]; then
    programs+=("train_${set%-sample}")
  else
    echo "train_${set%-sample}: skipped: ATHANOR_DATA_DIR names no folder with $set"
  fi
done
[ ! -d "$photos" ] || link_photos "$folder/imagenet" 3 24 24

for program in "${programs[@]}"; do
  arguments=(--epochs 100 --max-steps "$steps")
  case $program in
    train_mnist | train_cifar10) arguments+=(--data-dir "$data") ;;
    train_imagenet)
      arguments=(--epochs 100 --max-steps 10 --train "$folder/imagenet/train" --val "$folder/imagenet/val" --image-size 64 --batch-size 16 --lr 0.5) ;;
  esac
  for precision in f32 bf16 f16; do
    for strategy in single ddp zero1; do
      ranks=(--devices 2 --strategy "$strategy")
      [ $strategy != single ] || ranks=()
      compare "$program $precision $strategy" "$program" "${arguments[@]}" --precision "$precision" "${ranks[@]}"
    done
  done
done
echo "$rows runs, $different different"
[ "$rows" -gt 0 ] && [ "$different" -eq 0 ]
