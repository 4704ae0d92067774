#!/usr/bin/env bash
# train_images.sh BIN: one folder of photos is enough: a part of each class is kept, the same one in every run and in
# evaluate, and --test measures what chose nothing. Ends with 77 where $ATHANOR_DATA_DIR has no imagenet-sample.
set -euo pipefail
source "$(dirname "$0")/../../scripts/photos.sh"
bin=$1
need_photos
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset ATHANOR_RUNS_DIR
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null; exit 1; }
run() { # run CODE PROGRAM ARGUMENTS...
  local want=$1 code=0
  shift
  "$bin/$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "$*: expected code $want, but got $code"
}
refuses() { # refuses PATTERN PROGRAM ARGUMENTS...: code 2, one line
  local pattern=$1
  shift
  run 2 "$@"
  [ "$(wc -l <err)" -eq 1 ] || die "$*: expected one line on stderr"
  grep -qE -- "$pattern" err || die "$*: expected '$pattern'"
}
end() { sed -n "/\"event\":\"end\"/s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1/metrics.jsonl"; }

link_photos all 3 36 12
mv all/train photos
shape=(--device cpu --model resnet20 --image-size 32)
few=("${shape[@]}" --epochs 1)

# 36 photos of 3 classes: 2 of each 12 are a fifth, and batches are small ones.
run 0 train_images photos "${few[@]}"
one=runs/train_images/1
grep -q "30 images to train on, 6 to test" out || die "expected a fifth of each class"
grep -q "batch 8, .*learning rate up to 0.0156" out || die "expected small batches"
python3 -c '
import json
flags = json.load(open("runs/train_images/1/config.json"))["flags"]
assert flags["PHOTOS"]["value"] == "photos" and flags["--batch-size"]["value"] == "8", flags
' || die "config.json"
run 0 train_imagenet photos "${few[@]}" --batch-size 8 --lr 0.015625
[ "$(end $one weights_hash)" = "$(end runs/train_images/2 weights_hash)" ] || die "the earlier name, or the same flags, train otherwise"
run 0 train_images photos "${few[@]}" --batch-size 4 --max-steps 1 --crop-share 0.9 --label-smoothing 0.2 --run-dir none
grep -q "batch 4, .*learning rate up to 0.0078125 (0.5 for 256 images, scaled to 4), .*, label smoothing 0.2, crop share 0.9$" out || die "the rate of a small batch"
run 0 train_images photos "${few[@]}" --batch-size 4 --max-steps 1 --lr 0.5 --run-dir none
grep -q "learning rate up to 0.5, " out || die "a rate that was given"

# evaluate takes the same images, and names them.
run 0 athanor evaluate $one --device cpu --json all.json
grep -q "^as its run reported$" out || die "evaluate does not find the run's images"
grep -q "^the 6 of .*/photos that its run validated on: 6 images$" out || die "which images"
grep -qE "photos/class[012]/.*JPEG: class[012], predicted class[012]" out || die "mistakes are not named"
first=$(find photos/class0/ -name '*.JPEG' | sort | sed -n 1p)
cp "$first" photos/class0/new.JPEG
run 0 athanor evaluate $one --device cpu
grep -q "^not measured, because new or changed in .*: 1 (.*class0/new.JPEG)$" err && grep -q "^as its run reported$" out || die "a photo that was added"
rm photos/class0/new.JPEG
mkdir away && mv photos away && cd away
run 0 athanor evaluate "$folder/$one" --device cpu
grep -q "^photos is not where the run began" err || die "images of another folder are taken without a word"
cd .. && mv away/photos .
run 0 train_images photos --val-split 0.5 --seed 3 "${few[@]}" --max-steps 1 --test all/val
grep -q "^all/val: 12 images$" out || die "--test is not measured"
run 0 athanor evaluate runs/train_images/3 --device cpu
grep -q "^as its run reported$" out || die "evaluate does not know --val-split and --seed"

# Classes of other sizes, made equal in the loss: other weights, and a setting of the run.
mkdir -p few/class0 few/class1 && cp -L photos/class0/* few/class0 && cp -L "$(find photos/class1/ -name '*.JPEG' -print -quit)" few/class1/a.JPEG
cp few/class1/a.JPEG few/class1/b.JPEG
run 0 train_images few "${few[@]}" --run-dir plain
run 0 train_images few "${few[@]}" --run-dir balanced --class-weights balanced
[ "$(end plain weights_hash)" != "$(end balanced weights_hash)" ] || die "--class-weights changes nothing"
refuses "--class-weights is not given and was balanced" train_images few "${shape[@]}" --epochs 2 --run-dir balanced --resume auto
refuses "--class-weights: must be none or balanced" train_images few "${few[@]}" --class-weights even
run 0 train_images few "${few[@]}" --run-dir factors --class-weights class0=2
[ "$(end plain weights_hash)" != "$(end factors weights_hash)" ] || die "--class-weights NAME=W changes nothing"
refuses "--class-weights: must name classes of the training images, 'class0', 'class1', but 'cat' is none" train_images few "${few[@]}" --class-weights cat=2
# Or drawn equally often, whatever reads them.
for workers in 0 3; do
  run 0 train_images few "${few[@]}" --run-dir "drawn$workers" --sampler balanced --workers "$workers"
done
[ "$(end drawn0 weights_hash)" = "$(end drawn3 weights_hash)" ] || die "--sampler depends on workers"
[ "$(end plain weights_hash)" != "$(end drawn0 weights_hash)" ] || die "--sampler changes nothing"
refuses "--sampler weights: samples must have a field 'weight'" train_images few "${few[@]}" --sampler weights
refuses "--sampler: .*--order pages" train_images few "${few[@]}" --sampler balanced --order pages

# --augment: what is cut while it is decoded, a random part of the photo unless the list has none.
run 0 train_images few "${few[@]}" --run-dir usual --augment resized-crop,flip
run 0 train_images few "${few[@]}" --run-dir larger --augment resized-crop:0.9,flip
run 0 train_images few "${few[@]}" --run-dir middle --augment flip
[ "$(end plain weights_hash)" = "$(end usual weights_hash)" ] || die "resized-crop,flip is not the default"
for run in larger middle; do
  [ "$(end plain weights_hash)" != "$(end $run weights_hash)" ] || die "--augment changes nothing in $run"
done
[ "$(end larger weights_hash)" != "$(end middle weights_hash)" ] || die "--augment flip still crops"
refuses "--augment is flip and was resized-crop,flip;" train_images few "${shape[@]}" --epochs 2 --run-dir plain --augment flip --resume auto

# train/ and val/ below the folder are what they are called.
mkdir both && mv photos both/train && cp -r all/val both/val
run 0 train_images both "${few[@]}" --max-steps 1
grep -q "36 images to train on, 12 to test" out || die "train/ and val/"

# Off means off for networks that have nothing to turn off, too.
run 0 train_images few "${few[@]}" --max-steps 1 --run-dir none --drop-path 0 --dropout 0 --aug-repeats 0 --ema 0
refuses "--drop-path: resnet20 must have" train_images few "${few[@]}" --drop-path 0.1

refuses "--val-split: must be .* but got 1.5" train_images both --val-split 1.5
refuses "--crop-share: belongs to --resize crop, but got --resize pad" train_images both --resize pad --crop-share 0.9
refuses "--train: cannot be combined with PHOTOS" train_images both --train both
refuses "data: nowhere must be" train_images nowhere
refuses "takes one set of photos, but got 'both' and 'more'.*cp -rs" train_images both more
refuses "takes one set of photos, but got 'b.tar' and 'c.tar'.*quotes" train_images --val a.tar b.tar c.tar
refuses "--test: evaluates the model that the run saves" train_images both --test both/val --run-dir none
# A resumed run must have the same images to validate on.
run 0 train_images both/train "${few[@]}" --run-dir named
refuses "--val-split is 0.3 and was 0.2" train_images both/train --val-split 0.3 "${few[@]}" --run-dir named --resume auto
mkdir -p phone/cat && cp both/train/class0/*.JPEG phone/cat && mkdir phone/dog && echo x >phone/dog/1.heic
# Labels that begin at 1.
head -c $((6 * 32 * 32 * 3)) /dev/zero >ones.bin && printf '\1\2\1\2\1\2' >labels.bin
echo '{"height": 32, "width": 32, "channels": 3, "labels": "labels.bin", "label_dtype": "u8"}' >ones.json
run 0 train_images --train ones.bin --val ones.bin "${few[@]}" --max-steps 1 --run-dir none
grep -q "^not used: 1 classes without images, because labels begin at 1" out || die "labels that begin at 1"
# Classes that one of two sets lacks, and names that it does not have.
mkdir part && cp -r both/val/class1 part
run 0 train_images --train both/train --val part "${few[@]}" --max-steps 1 --run-dir none
grep -q "^not used: 2 classes without validation images (class0, class2)" out || die "classes that are not validated"
printf '\0\1\2\0\1\2' >labels.bin
run 0 train_images --train both/train --val ones.bin "${few[@]}" --max-steps 1 --run-dir none
grep -q "^not used: 3 class names that are not matched, because --val has none" out || die "a set without names"
printf '\2\4\2\4\2\4' >labels.bin
run 0 train_images --train ones.bin --val ones.bin "${few[@]}" --max-steps 1 --run-dir none
grep -q "2 classes without images, because labels begin at 2" out && grep -q "1 classes without images (3)" out || die "labels 2 and 4"
refuses "phone/dog/1.heic is HEIC.*heif-convert" train_images phone
