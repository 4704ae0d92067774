#!/usr/bin/env bash
# whole_run.sh BIN NAME: trains an example as it comes, on the data in $ATHANOR_DATA_DIR, and checks what it has learned.
set -euo pipefail
bin=$1 name=$2
data=${ATHANOR_DATA_DIR:-data-cache}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

needs() { # needs FOLDER
  [ -d "$data/$1" ] && return
  echo "Skipped: ATHANOR_DATA_DIR must name a folder with $1/, but is '$data'"
  exit 77
}
train() { # train RUN [FLAG...]
  local run=$folder/$1
  shift
  "$bin/$name" --data-dir "$data" --run-dir "$run" "$@" | tail -n 1
}
ends() { # ends RUN METRIC: the values of a metric in the lines that end a fit, one for each phase
  sed -n '/"event":"end"/s/.*"'"$2"'":\([-0-9.e+]*\).*/\1/p' "$folder/$1/metrics.jsonl"
}
expect() { # expect CONDITION WHAT: of numbers, as awk understands it
  echo "$2: $1"
  awk "BEGIN { exit !($1) }" || { echo "$name: $2 must hold, but does not"; exit 1; }
}

case $name in
  contrastive)
    needs cifar10
    train run
    mapfile -t accuracy < <(ends run test_accuracy) # of the probe of random weights, and of those that have learned
    expect "${accuracy[-1]} > ${accuracy[-2]} + 0.1" "ten points above random features"
    ;;
  dcgan)
    needs mnist
    train run
    "$bin/judge_digits" "$(ls "$folder"/run/checkpoints/step-*.safetensors | sort -V | tail -n 1)" "$data/mnist"
    ;;
  denoise)
    needs mnist
    train run
    expect "$(ends run test_psnr) > $(ends run test_psnr_of_noisy) + 6" "6 dB"
    ;;
  distill) # the mean of three seeds, beside students who learn from labels alone
    for seed in 1 2 3; do
      train "taught$seed" --seed $seed
      train "alone$seed" --seed $seed --share 0
      taught="${taught:-0} + $(ends "taught$seed" test_accuracy | tail -n 1)"
      alone="${alone:-0} + $(ends "alone$seed" test_accuracy | tail -n 1)"
    done
    expect "$taught > $alone" "above students without a teacher"
    ;;
  keypoints)
    train run
    expect "$(ends run test_pixels) < 1.5" "1.5 pixels"
    ;;
  segment)
    train run
    expect "$(ends run test_iou) > 0.9" "an IoU of 0.9"
    ;;
  speedrun_cifar10) # the mean of three seeds
    needs cifar10
    for seed in 1 2 3; do
      train "seed$seed" --precision bf16 --seed $seed
      sum="${sum:-0} + $(ends "seed$seed" test_accuracy)"
    done
    expect "($sum) / 3 >= 0.9385" "94 % of CIFAR-10"
    ;;
  *) echo "there is no example $name"; exit 2 ;;
esac
