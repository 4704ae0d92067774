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
# difference. So another seed may do, and later epochs differ more. In bf16, only the first epoch tells bf16 from f32.
near() { # near TYPE KEY EPOCHS TOLERANCE: the device's losses and the CPU's, relative
  paste <(field "cpu_$1.jsonl" epoch "$2") <(field "device_$1.jsonl" epoch "$2") |
    awk -v most="$4" -v epochs="$3" '
      NR <= epochs { d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > most * $1) bad = 1 }
      END { exit bad || NR != 5 }'
}
agrees() { # agrees TYPE: with the CPU, from one of four seeds
  local seed device
  for seed in 1 2 3 4; do
    for device in cpu cuda; do train "${device/cuda/device}_$1" --device $device --seed $seed --graph off --muon "$1"; done
    case $1 in
      f32) ! { near f32 train_loss 3 1e-5 && near f32 val_loss 3 1e-5; } || return 0 ;;
      bf16) ! near bf16 train_loss 1 2e-5 || return 0 ;;
    esac
  done
  die "$1: with no seed are the device's losses near the CPU's: $(field "device_$1.jsonl" epoch train_loss | tr '\n' ' '), but \
$(field "cpu_$1.jsonl" epoch train_loss | tr '\n' ' ')"
}
agrees f32
agrees bf16
