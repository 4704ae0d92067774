#!/usr/bin/env bash
# old_checkpoint.sh BIN FOLDER ONEDNN_VERSION: checkpoints that earlier versions wrote end with the weights those versions
# ended with, or are refused in one line. FOLDER holds digits_VERSION.safetensors, saved after step 90 of 176 by
#   ONEDNN_MAX_CPU_ISA=AVX2 train_digits --threads 1 --epochs 4 --deterministic --precision f16 --ema 0.95 \
#     --early-stop val_loss:3 --clip-norm 5 --checkpoint-every 90 --checkpoint-dir DIR
# With one thread, oneDNN held to AVX2, and convolutions by their definition, as those versions had them, the weights are the
# same on every CPU with AVX-512. They differ between oneDNN's releases: for one that is not in the list below, and on a CPU
# without AVX-512, the accuracy alone is compared.
set -euo pipefail
bin=$1 folder=$2 onednn=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

expected_hash() { # expected_hash ONEDNN_VERSION
  case $1 in
    2.6.*) echo 5a08822c2cb1a3d2 ;;
  esac
}
die() { echo "$*"; cat "$scratch/out" "$scratch/err"; exit 1; }
field() { sed -n "/\"event\":\"end\"/s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$scratch/metrics.jsonl"; }

for checkpoint in "$folder"/digits_*.safetensors; do
  cp "$checkpoint" "$scratch/checkpoint.safetensors"
  rm -f "$scratch/metrics.jsonl"
  code=0
  ATHANOR_WINOGRAD=off ONEDNN_MAX_CPU_ISA=AVX2 "$bin/train_digits" --threads 1 --epochs 4 --deterministic --precision f16 --ema 0.95 \
    --early-stop val_loss:3 --clip-norm 5 --device cpu --resume "$scratch/checkpoint.safetensors" \
    --metrics "$scratch/metrics.jsonl" \
    >"$scratch/out" 2>"$scratch/err" || code=$?
  if [ "$code" = 2 ]; then
    [ "$(wc -l <"$scratch/err")" = 1 ] && grep -q 'version' "$scratch/err" || die "$checkpoint: refused, but not in one line that names the version"
    echo "$checkpoint: refused: $(cat "$scratch/err")"
    continue
  fi
  [ "$code" = 0 ] || die "$checkpoint: code $code"
  [ "$(field applied_steps)" = 176 ] || die "$checkpoint: must end after 176 steps"
  awk -v a="$(field test_accuracy)" 'BEGIN { exit !(a > 0.98) }' || die "$checkpoint: accuracy $(field test_accuracy)"
  want=$(expected_hash "$onednn")
  grep -qw avx512f /proc/cpuinfo || want=""
  if [ -n "$want" ]; then
    [ "$(field weights_hash)" = "$want" ] || die "$checkpoint: weights must be $want, but are $(field weights_hash)"
    echo "$checkpoint: ends with the same weights, $want"
  else
    echo "$checkpoint: ends with accuracy $(field test_accuracy), weights $(field weights_hash); none recorded for oneDNN '$onednn' on this CPU"
  fi
done
