#!/usr/bin/env bash
# recipes.sh BIN SOURCE: each file of recipes/ is read by the program of its first line, and trains for a step on made-up images, so few
# that only a low rate is safe.
set -euo pipefail
bin=$1
recipes=$2/recipes
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset ATHANOR_DATA_DIR
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null; exit 1; }
field() { sed -n "/\"event\":\"$2\"/s/.*\"$3\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1" | tail -1; }

few=(--device cpu --data synthetic:16 --batch-size 4 --accumulate 1 --lr 0.0001 --scale-lr none --val-batch-size 4 --max-steps 1 --limit-val-batches 1
  --run-dir none --metrics metrics.jsonl)
count=0
for recipe in "$recipes"/*.toml; do
  program=$(sed -n '1s/^# \([a-z0-9_]*\) --recipe .*/\1/p' "$recipe")
  [ -x "$bin/$program" ] || die "$recipe: its first line names no program"
  rm -f metrics.jsonl
  if [ "$program" = speedrun_cifar10 ]; then # it has images of its own alone: only their absence may be an error
    code=0
    "$bin/$program" --recipe "$recipe" --device cpu --data-dir . --run-dir none >out 2>err || code=$?
    { [ "$code" = 2 ] && grep -q "get_data.sh cifar10" err; } || die "$recipe: code $code"
  else
    sizes=()
    if [ "$program" = train_images ]; then
      sizes=(--image-size 64)
      if grep -q '^image-size.*:' "$recipe"; then sizes=(--image-size 32:0,64:1); fi
      if grep -q '^val-image-size' "$recipe"; then sizes+=(--val-image-size 96); fi
    fi
    "$bin/$program" --recipe "$recipe" "${few[@]}" "${sizes[@]}" >out 2>err || die "$recipe: code $?"
    [ "$(field metrics.jsonl end applied_steps)" = 1 ] || die "$recipe: expected 1 applied step"
    grep -qE '^[0-9.e+-]+$' <<<"$(field metrics.jsonl end test_loss)" || die "$recipe: its loss is not finite"
  fi
  count=$((count + 1))
done
[ "$count" -ge 11 ] || die "expected 11 recipes, but found $count"
