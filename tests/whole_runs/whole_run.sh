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
train() { "$bin/$name" --data-dir "$data" --checkpoint-dir "$folder/saved" --metrics "$folder/metrics.jsonl" "$@"; }
newest() { ls "$folder"/saved/step-*.safetensors | sort -V | tail -1; }

case $name in
  dcgan)
    needs mnist
    train
    "$bin/judge_digits" "$(newest)" "$data/mnist"
    ;;
  *) echo "there is no example $name"; exit 2 ;;
esac
