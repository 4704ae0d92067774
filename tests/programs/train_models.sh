#!/usr/bin/env bash
# train_models.sh BIN: the models of athanor_ops train on photos in every precision: some steps, finite losses, other weights.
# Ends with 77 where $ATHANOR_DATA_DIR has no imagenet-sample.
set -euo pipefail
source "$(dirname "$0")/../../scripts/photos.sh"
bin=$1
shift
need_photos
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null; exit 1; }
field() { sed -n "/\"event\":\"$2\"/s/.*\"$3\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1" | tail -1; }

link_photos imagenet 2 12 4

models=(mobilenet_v2 mobilenet_v3_large mobilenet_v3_small mobilenet_v3_small_075 efficientnet_b0 convnext_tiny vit_tiny
  resnet50d resnext50_32x4d regnet_y_400mf densenet121)
for model in "${@:-${models[@]}}"; do
  for precision in f32 bf16 f16; do
    rm -f metrics.jsonl
    scale=() # by itself it begins at 65536 and halves, which takes steps
    [ $precision != f16 ] || scale=(--loss-scale dynamic:1)
    "$bin/train_imagenet" --data-dir . --model "$model" --image-size 32 --batch-size 4 --lr 0.0001 --max-steps 3 \
      --precision $precision "${scale[@]}" --metrics metrics.jsonl >out 2>err || die "$model in $precision: code $?"
    [ "$(field metrics.jsonl end applied_steps)" = 3 ] || die "$model in $precision: expected 3 applied steps"
    for loss in "$(field metrics.jsonl epoch train_loss)" "$(field metrics.jsonl end test_loss)"; do
      grep -qE '^[0-9.e+-]+$' <<<"$loss" || die "$model in $precision: its loss is '$loss'"
      echo "$model $precision $loss"
    done
  done
done
