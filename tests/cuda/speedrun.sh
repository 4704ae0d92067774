#!/usr/bin/env bash
# speedrun.sh BIN: speedrun_cifar10 on the device, a few steps of a narrow network on noise: steps captured as CUDA graphs are
# the others to the bit, with Muon in either dtype and on all sides of the whitening's freeze; the losses are the CPU's.
set -euo pipefail
bin=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null || true; exit 1; }
field() { sed -n "/\"event\":\"$2\"/s/.*\"$3\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1"; }

# The same ten pictures of noise again and again, in all files.
mkdir cifar10
for i in {0..9}; do perl -e 'srand($ARGV[0] + 101); print pack("C*", $ARGV[0], map { rand 256 } 1 .. 3072)' "$i"; done >ten
for _ in {1..10}; do cat ten; done >hundred
for _ in {1..100}; do cat hundred; done >cifar10/test_batch.bin
for i in {1..5}; do ln cifar10/test_batch.bin "cifar10/data_batch_$i.bin"; done

# Four of the five epochs have steps of both kinds; the last one ends with six views of each image.
train() { # train NAME FLAG...
  local name=$1
  shift
  rm -f "$name.jsonl"
  "$bin/speedrun_cifar10" --data-dir . --width 4 --epochs 5 --batch-size 4 --limit-train-batches 4 --val-batch-size 4 \
    --limit-val-batches 4 --deterministic --threads 1 --run-dir none --metrics "$name.jsonl" "$@" >out 2>err || die "$*: failed"
  cp out "$name.out"
}
for muon in f32 bf16; do
  train "plain_$muon" --device cuda --graph off --muon $muon
  train "captured_$muon" --device cuda --graph on --muon $muon --forbid-sync
  grep -q 'data on the device' "captured_$muon.out" || die "$muon: the data is not on the device"
  for key in weights_hash test_loss; do
    want=$(field "plain_$muon.jsonl" end $key)
    [ -n "$want" ] && [ "$(field "captured_$muon.jsonl" end $key)" = "$want" ] || die "$muon: captured steps end with another $key"
  done
done
[ "$(field plain_f32.jsonl end weights_hash)" != "$(field plain_bf16.jsonl end weights_hash)" ] || die "--muon bf16 changes nothing"

# Losses are equal to six digits, unless rounding decides which of two pixels is a maximum: Muon makes much of a small
# difference. So another seed may do, and later epochs differ more. In bf16 the losses differ from the first step on: a GPU
# rounds an iteration of Newton and Schulz at other places than the CPU. UpdateStepOnDevice has both against the formula.
near() { # near KEY: the device's losses and the CPU's in the first three epochs
  paste <(field cpu.jsonl epoch "$1") <(field device.jsonl epoch "$1") |
    awk 'NR <= 3 { d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > 1e-5 * $1) bad = 1 }
         END { exit bad || NR != 5 }'
}
for seed in 1 2 3 4; do
  for device in cpu cuda; do train "${device/cuda/device}" --device $device --seed $seed --graph off --muon f32; done
  ! { near train_loss && near val_loss; } || exit 0
done
die "with no seed are the device's losses near the CPU's: $(field device.jsonl epoch train_loss | tr '\n' ' '), but \
$(field cpu.jsonl epoch train_loss | tr '\n' ' ')"
