#!/usr/bin/env bash
# tool_quantize.sh BIN SOURCE: a model of 8-bit integers is made, used as any model, measured against its float model, and refused
# where integers cannot be used.
source "$(dirname "${BASH_SOURCE[0]}")/tool.sh"

refuses() { # refuses PATTERN ARGUMENTS...: code 2 and one line on stderr
  local pattern=$1
  shift
  athanor 2 "$@"
  [ "$(wc -l <err)" -eq 1 ] || die "$*: expected one line on stderr"
  grep -qE -- "$pattern" err || die "$*: expected '$pattern'"
}
field() { # field FILE NAME: a text of the file's metadata
  python3 - "$@" <<'PYTHON'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
print(json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"].get(sys.argv[2], ""))
PYTHON
}
top1() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["top1"])' "$1"; }

"$bin/train_digits" --device cpu --epochs 4 >out 2>err || die "it does not train"
run=runs/train_digits/1

# Each method: the file says what it is, is a quarter of the size, and says the same of almost all digits.
for method in minmax percentile entropy; do
  athanor 0 quantize runs/train_digits/latest $method.safetensors --calibrate digits --method $method --max-drop 5 --threads 1
  grep -qE "^in int8 +[0-9]+ of [0-9]+ layers$" out || die "$method: what is in int8"
  grep -qE "^agreement +(9[5-9]|100)\.[0-9]+ % of these images" out || die "$method: the agreement"
  grep -qE "^saved +$method.safetensors " out || die "$method: what is saved"
  grep -qE "^next +athanor evaluate $method.safetensors --val DATA --max-drop 5$" out || die "$method: what to type next"
  [ "$(field $method.safetensors quantized)" = int8 ] || die "$method: not described"
  [ "$(field $method.safetensors float_model)" = "$PWD/$run/model.safetensors" ] || die "$method: its float model"
  [ "$(stat -c %s $method.safetensors)" -lt $(($(stat -c %s $run/model.safetensors) / 2)) ] || die "$method: its size"
done
cmp -s minmax.safetensors percentile.safetensors && die "--method does nothing"
athanor 0 quantize $run again.safetensors --calibrate digits --max-drop 5 --threads 2
cmp -s again.safetensors percentile.safetensors || die "two threads make another file"

# It is evaluated, also against its float model, on the images of that one's run.
athanor 0 evaluate $run --threads 1 --json float.json
athanor 0 evaluate percentile.safetensors --threads 1 --json int8.json --max-drop 5
grep -qE "percentile.safetensors: digits_cnn of train_digits, int8," out || die "evaluate does not say that it is int8"
grep -qE "top-1 [0-9.]+ % in f32, [0-9.]+ % in int8: a drop of -?[0-9.]+ points" out || die "no drop"
python3 -c 'import json; a, b = (json.load(open(name)) for name in ("float.json", "int8.json")); got = b["float"]
assert "float" not in a and got["score"] == 100 * a["top1"] and abs(got["drop"] - 100 * (a["top1"] - b["top1"])) < 1e-9, got' ||
  die "evaluate --json does not have the drop"
python3 -c 'import sys; a, b = map(float, sys.argv[1:]); assert abs(a - b) <= 0.05, (a, b)' \
  "$(top1 float.json)" "$(top1 int8.json)" || die "the accuracy of $run is lost"
mkdir pictures
python3 "$source/tests/programs/digit_pictures.py" "$source/data/digits/digits.csv.gz" pictures 40
athanor 0 predict $run pictures --top 1
cut -d' ' -f1,2 out >float.said
athanor 0 predict percentile.safetensors pictures --top 1
cut -d' ' -f1,2 out >int8.said
[ "$(diff float.said int8.said | grep -c '^<')" -le 2 ] || die "predict says something else: $(diff float.said int8.said)"

# Layers stay in f32 by name, or because the accuracy would drop: of labels that are as the float model says, any error is a drop.
layer=$(python3 - <<'PYTHON'
import json, struct
data = open("percentile.safetensors", "rb").read()
entries = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
print(next(name for name in entries if name.endswith(".weight") and entries[name]["dtype"] == "I8")[:-len(".weight")])
PYTHON
)
athanor 0 quantize $run kept.safetensors --calibrate digits --max-drop 5 --keep "$layer"
grep -qE "^in f32 +$layer$" out || die "--keep: $layer"
refuses "there is no|must be|no layer" quantize $run no.safetensors --calibrate digits --keep "${layer}x"
grep -q "'$layer'" err || die "--keep names no likely layer"

# A model that is bad on purpose: its activations are cut off, so evaluate blames layers, and quantize keeps them.
athanor 0 quantize $run cut.safetensors --calibrate digits --percentile 60 --max-drop 100
refuses "top-1 may drop by at most 0 points, but drops by [0-9.]+; the layers .*: athanor quantize --keep [a-z0-9_.,]+ " \
  evaluate cut.safetensors --max-drop 0
athanor 0 quantize $run mended.safetensors --calibrate digits --percentile 60 --max-drop 1
grep -qE "stays in f32$" out || die "no layer was chosen"
drop=$(sed -nE 's/^accuracy +top-1 ([0-9.]+) % in f32, ([0-9.]+) % in int8.*/\1 \2/p' out)
python3 -c 'import sys; a, b = map(float, sys.argv[1:]); assert a - b <= 1.01, (a, b)' $drop || die "--max-drop is not kept: $drop"

# The float model may be elsewhere.
mv $run/model.safetensors moved.safetensors
refuses "--float: must name the float model of percentile.safetensors" evaluate percentile.safetensors --val digits --max-drop 5
athanor 0 evaluate percentile.safetensors --val digits --max-drop 5 --float moved.safetensors
mv moved.safetensors $run/model.safetensors

# Bad input, and what integers cannot do. Nothing is written.
refuses "percentile.safetensors exists" quantize $run percentile.safetensors --calibrate digits
refuses "is quantized to int8" quantize percentile.safetensors no.safetensors --calibrate digits
refuses "must end in .safetensors" quantize $run no.onnx --calibrate digits
refuses "--method: must be minmax, percentile or entropy" quantize $run no.safetensors --calibrate digits --method max
refuses "there is no.*nowhere|nowhere" quantize $run no.safetensors --calibrate nowhere
refuses "OUT must be in a folder that exists, but .*/nowhere does not" quantize $run nowhere/no.safetensors --calibrate digits
refuses "--percentile: is for --method percentile alone" quantize $run no.safetensors --calibrate digits --method minmax --percentile 99
refuses "has no class folders, only 40 images" quantize $run no.safetensors --calibrate pictures
refuses "--images: must be at least 1" quantize $run no.safetensors --calibrate digits --images 0
refuses "--calibrate is required" quantize $run no.safetensors
mkdir -p photos/cat photos/dog && cp pictures/*.png photos/cat && cp pictures/*.png photos/dog
refuses "images must be 8x8x1, as the model expects, but are 8x8x3|classes" quantize $run no.safetensors --calibrate photos
refuses "images must be 8x8x1, as the model expects, but are 8x8x3" quantize $run no.safetensors --calibrate pictures --val digits
"$bin/train_images" photos --model digits_cnn --image-size 8 --device cpu --max-steps 1 --batch-size 8 --run-dir rgb >out 2>err || die "a model of photos"
athanor 0 quantize rgb unlabelled.safetensors --calibrate pictures --val photos --max-drop 100 # labels are needed for the accuracy alone
grep -qE "^calibrated +on 40 of 40 images of pictures" out || die "images without labels"
[ ! -e no.safetensors ] || die "a file that should not be"
refuses "'int8'; .athanor quantize MODEL OUT --calibrate DATA. makes" predict $run pictures --precision int8
refuses "--max-drop: compares a quantized model with its float model, but" evaluate $run --val digits --max-drop 1
refuses "must be a float digits_cnn" evaluate percentile.safetensors --val digits --float minmax.safetensors
code=0
"$bin/train_digits" --device cpu --pretrained percentile.safetensors --run-dir none --max-steps 1 >out 2>err || code=$?
[ $code -eq 2 ] && grep -q "percentile.safetensors must hold weights to train, but is quantized to int8" err ||
  die "--pretrained takes integers"
refuses "OUT must end in .onnx for a quantized model" convert percentile.safetensors torch.safetensors --layout torch
refuses "--image-size: must be left out for a quantized model" convert percentile.safetensors no.onnx --image-size 10
athanor 0 convert percentile.safetensors percentile.onnx
grep -q '^percentile.onnx: digits_cnn, .* images 8x8x1' out || die "what convert says of a quantized model"
cp percentile.safetensors bent.safetensors
printf x | dd of=bent.safetensors bs=1 seek=$(($(stat -c %s bent.safetensors) - 9)) conv=notrunc 2>/dev/null
refuses "bent.safetensors is damaged" predict bent.safetensors pictures
