#!/usr/bin/env bash
# speedrun.sh BIN: speedrun_cifar10 on the device, a few steps of a narrow network on noise: steps captured as CUDA graphs are
# the others to the bit, with Muon in either dtype and on all sides of the whitening's freeze; the CPU's losses are near.
set -euo pipefail
bin=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null || true; exit 1; }
field() { sed -n "/\"event\":\"$2\"/s/.*\"$3\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1"; }

# The same ten pictures of noise again and again, in all files.
mkdir cifar10
for i in {0..9}; do printf "\\x$(printf %x "$i")"; head -c 3072 /dev/urandom; done >ten
for _ in {1..10}; do cat ten; done >hundred
for _ in {1..100}; do cat hundred; done >cifar10/test_batch.bin
for i in {1..5}; do ln cifar10/test_batch.bin "cifar10/data_batch_$i.bin"; done

# Four of the five epochs have steps of both kinds; the last one ends with six views of each image.
train() { # train NAME FLAG...
  local name=$1
  shift
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
train cpu --device cpu
near() { # near NAME TOLERANCE: of losses, relative
  for key in train_loss val_loss; do
    paste <(field cpu.jsonl epoch $key) <(field "$1.jsonl" epoch $key) |
      awk -v most="$2" '{ d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > most * $1) bad = 1 } END { exit bad || NR != 5 }' ||
      die "$1: $key: $(field "$1.jsonl" epoch $key | tr '\n' ' '), but on the CPU $(field cpu.jsonl epoch $key | tr '\n' ' ')"
  done
}
near plain_f32 1e-3
near plain_bf16 3e-2
[ "$(field plain_f32.jsonl end weights_hash)" != "$(field plain_bf16.jsonl end weights_hash)" ] || die "--muon bf16 changes nothing"
