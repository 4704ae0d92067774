#!/usr/bin/env bash
# train_imagenet.sh BIN: a small training on photos: goes on where it was stopped, takes weights over, names bad files.
# Ends with 77 where $ATHANOR_DATA_DIR has no imagenet-sample.
set -euo pipefail
source "$(dirname "$0")/../../scripts/photos.sh"
bin=$1
need_photos
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null; exit 1; }
run() { # run CODE ARGUMENTS...
  local want=$1 code=0
  shift
  "$bin/train_imagenet" "$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "$*: expected code $want, but got $code"
}
refuses() { # refuses PATTERN ARGUMENTS...: code 2, one line
  local pattern=$1
  shift
  run 2 "$@"
  [ "$(wc -l <err)" -eq 1 ] || die "$*: expected one line on stderr"
  grep -qE -- "$pattern" err || die "$*: expected '$pattern'"
}
field() { sed -n "/\"event\":\"$2\"/s/.*\"$3\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1" | tail -1; }

link_photos imagenet 3 36 12

run 0 --help
grep -q -- '--image-size' out || die "--help lacks --image-size"
refuses "data: data-cache/imagenet/train must be a file or folder, but there is none; name one folder of photos, or name it with --train, .*--data-dir" --data-dir data-cache
refuses "data: nowhere/imagenet/val must be .*there is none; name it with --val, .*--data-dir" --data-dir nowhere --train imagenet/train
refuses "data: nothing must be a file or folder, but there is none; name it with --val$" --data-dir . --val nothing
refuses "--image-size: must be at least 1" --image-size 0
refuses "middle|at least 63 pixels" --data-dir . --model alexnet --image-size 40
few=(--data synthetic:40 --batch-size 10 --max-steps 2 --limit-val-batches 1)
refuses "--image-size: the weights of vit_tiny are for images of one size, but got 32x32 and 64x64 pixels" "${few[@]}" --model vit_tiny --image-size 32:0,64:1
refuses "--val-image-size: the weights of vit_tiny are" "${few[@]}" --model vit_tiny --image-size 32 --val-image-size 48
refuses "--drop-path: resnet20 must have layers of stochastic depth" "${few[@]}" --model resnet20 --image-size 32 --drop-path 0.1
run 0 "${few[@]}" --model vit_tiny --image-size 32 --drop-path 0.5 --tta flip --repeated-aug 2

# Progressive sizes, with --tta; the model takes images of the size that validated.
sizes=(--data-dir . --model resnet20 --batch-size 6 --epochs 3 --deterministic --lr 0.05 --val-image-size 40)
run 0 "${sizes[@]}" --image-size 16:0,24:1,32:2 --tta flip --metrics sizes.jsonl --run-dir sizes
run 0 "${sizes[@]}" --image-size 16:0,24:1,32:2 --tta flip --metrics more.jsonl --run-dir none --workers 3
[ "$(field sizes.jsonl end weights_hash)" = "$(field more.jsonl end weights_hash)" ] || die "sizes: threads change the weights"
"$bin/athanor" evaluate sizes --val imagenet/val >out || die "a model of progressive sizes cannot be evaluated"
grep -q "as its run reported" out || die "evaluate does not see what the run saw: $(cat out)"

train=(--data-dir . --model resnet20 --image-size 32 --batch-size 6 --epochs 3 --deterministic --lr 0.05)
run 0 "${train[@]}" --metrics straight.jsonl
[ "$(field straight.jsonl end applied_steps)" = 18 ] || die "expected 18 steps"

# The same photos from a packed file and a tar, by threads and without: the same weights.
for part in train val; do "$bin/athanor" pack imagenet/$part $part.athp >out; done
"$bin/athanor" pack train.athp train.tar >out
few=("${train[@]}" --max-steps 4)
run 0 "${few[@]}" --workers 0 --metrics folder.jsonl
run 0 "${few[@]}" --seed 1 --metrics other.jsonl
[ "$(field folder.jsonl end weights_hash)" != "$(field other.jsonl end weights_hash)" ] || die "seeds do nothing"
for how in "train.athp 0" "train.athp 2" "train.tar 2" "imagenet/train 2"; do
  run 0 "${few[@]}" --train ${how% *} --val val.athp --workers ${how#* } --metrics other.jsonl
  for key in weights_hash test_loss applied_steps; do
    [ "$(field folder.jsonl end $key)" = "$(field other.jsonl end $key)" ] || die "${how% *} by ${how#* } workers differs from the folder in $key"
  done
done
"$bin/athanor" pack train.athp shuffled.athp --shuffle-seed 1 >out
run 0 "${few[@]}" --train shuffled.athp --metrics other.jsonl
[ "$(field folder.jsonl end weights_hash)" != "$(field other.jsonl end weights_hash)" ] || die "samples do nothing"
printf X | dd of=shuffled.athp bs=1 seek=5000 conv=notrunc 2>/dev/null
refuses "shuffled.athp, offset 4096: the CRC of sample 0 " "${few[@]}" --train shuffled.athp

# Killed at its second checkpoint, in the middle of an epoch.
saving=("${train[@]}" --checkpoint-dir saved --checkpoint-every 4 --metrics resumed.jsonl)
for _ in $(seq 50); do
  rm -rf saved resumed.jsonl
  code=0
  ATHANOR_OMP_SET=1 "$bin/train_imagenet" "${saving[@]}" >out 2>err &
  pid=$!
  until [ -e saved/step-00000008.safetensors ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
  kill -KILL $pid 2>/dev/null || true
  wait $pid 2>/dev/null || code=$?
  [ $code -eq 0 ] || break # else it was over before it could be killed
done
[ $code -eq 137 ] || die "it must be killed, but ended with $code"
run 0 "${saving[@]}" --resume auto
grep -q "^resumed from saved/step-" out || die "it does not say where it goes on"
for key in weights_hash test_loss applied_steps; do
  [ "$(field straight.jsonl end $key)" = "$(field resumed.jsonl end $key)" ] || die "a resumed run differs in $key"
done

# Weights of three classes, for two: all but the head.
weights=saved/step-00000018.safetensors
[ -e $weights ] || die "no checkpoint: $(ls saved)"
mkdir -p two/train two/val
for part in train val; do cp -r imagenet/$part/class[01] two/$part/; done
fine=(--model resnet20 --train two/train --val two/val --image-size 32 --batch-size 6 --max-steps 1)
run 0 "${fine[@]}" --pretrained $weights
grep -q "^pretrained: 105 tensors from $weights; new, for 2 classes instead of 3: fc.weight, fc.bias$" out ||
  die "it does not say what it took"
run 0 "${train[@]}" --max-steps 1 --pretrained $weights
grep -q "^pretrained: 107 tensors from $weights$" out || die "it does not say that it took all"
refuses "--pretrained: $weights: load_state_dict: .*missing" --model resnet56 "${fine[@]:2}" --pretrained $weights
# By name: what scripts/get_weights.sh puts into the cache; of a network of its own there is none.
export XDG_CACHE_HOME=$PWD/cache
imagenet=(--model resnet18 "${fine[@]:2}")
refuses "--pretrained: imagenet must be weights of the network, but none are known for 'resnet20'" "${fine[@]}" --pretrained imagenet
refuses "resnet18 must be in $PWD/cache/athanor/weights/resnet18-f37072fd.pth, .* get it with scripts/get_weights.sh resnet18.imagenet1k_v1$" \
  "${imagenet[@]}" --pretrained imagenet
refuses "--pretrained: resnet50 are weights of resnet50, but the network is resnet18" "${imagenet[@]}" --pretrained resnet50
run 0 "${imagenet[@]}" --run-dir own
mkdir -p cache/athanor/weights
"$bin/athanor" convert own cache/athanor/weights/resnet18-f37072fd.safetensors --layout torch >out 2>err || die "convert"
mv cache/athanor/weights/resnet18-f37072fd.safetensors cache/athanor/weights/resnet18-f37072fd.pth
for name in imagenet resnet18.imagenet1k_v1; do
  run 0 "${imagenet[@]}" --pretrained $name
  grep -qx "pretrained: [0-9]* tensors from $PWD/cache/athanor/weights/resnet18-f37072fd.pth" out || die "--pretrained $name"
done
printf x | dd of=$weights bs=1 seek=200000 conv=notrunc 2>/dev/null
refuses "$weights is damaged" "${fine[@]}" --pretrained $weights
refuses "--pretrained: must be a file with weights, but there is no nowhere" "${fine[@]}" --pretrained nowhere

# Other classes in validation, and a damaged photo.
mv two/val/class1 two/val/class9
refuses "no others than 'class0', 'class1', but has 'class9'" "${fine[@]}"
mv two/val/class9 two/val/class1
bad=$(ls two/train/class1/*.JPEG | sed -n 1p)
head -c 5000 "$bad" >cut && rm "$bad" && mv cut "$bad"
refuses "two/train/class1/$(basename "$bad"): jpeg: offset [0-9]*: must be complete JPEG data" "${fine[@]}"
