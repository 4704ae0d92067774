#!/usr/bin/env bash
# tool_tasks.sh BIN SOURCE: models of several labels and of numbers are measured as their runs measured them, and say the same in
# every form.
source "$(dirname "${BASH_SOURCE[0]}")/tool.sh"

refuses() { # refuses PATTERN ARGUMENTS...
  local pattern=$1
  shift
  athanor 2 "$@"
  [ "$(wc -l <err)" -eq 1 ] || die "$*: expected one line on stderr"
  grep -qE -- "$pattern" err || die "$*: expected '$pattern'"
}

# Of each digit: whether it is even, round or large; and the digit itself, and ten times as much.
mkdir pictures
python3 "$source/tests/programs/digit_pictures.py" "$source/data/digits/digits.csv.gz" pictures 1000
python3 - <<'PYTHON'
import pathlib
names = sorted((path.name for path in pathlib.Path("pictures").glob("*.png")), key=lambda name: name[2:])
for part, chosen in ("train", [i % 4 != 0 for i in range(len(names))]), ("val", [i % 4 == 0 for i in range(len(names))]):
    labels, numbers = ["image,even,round,large"], ["image,digit,tens"]
    for name in (name for name, is_in in zip(names, chosen) if is_in):
        digit = int(name[0])
        labels.append(f"pictures/{name},{int(digit % 2 == 0)},{int(digit in (0, 6, 8, 9))},{int(digit >= 5)}")
        numbers.append(f"pictures/{name},{digit},{10 * digit}")
    pathlib.Path(f"labels_{part}.csv").write_text("\n".join(labels) + "\n")
    pathlib.Path(f"numbers_{part}.csv").write_text("\n".join(numbers) + "\n")
PYTHON
train() { # train RUN TABLES FLAGS...
  "$bin/train_images" --device cpu --model digits_cnn --image-size 8 --augment none --epochs "${epochs:-12}" --batch-size 32 --lr "${lr:-0.05}" \
    --run-dir "$1" --train "$2_train.csv" --val "$2_val.csv" "${@:3}" >out 2>err || die "$1: it does not train"
}
train several labels --task multilabel
mv out several.out
lr=0.003 train number numbers --task regression --fields image=image,label=digit,tens

for run in several number; do
  athanor 0 evaluate $run --json $run.json
  mv out $run.txt
  athanor 0 predict $run pictures
  mv out $run.said
done
python3 - <<'PYTHON' || die "what evaluate finds"
import json

def last(run):
    events = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    return [event for event in events if event["event"] == "epoch"][-1]

found, reported = json.load(open("several.json")), last("several")
assert found["task"] == "multilabel" and found["images"] == 250, found
assert found["mAP"] > 0.95, found["mAP"]
assert abs(found["mAP"] - reported["val_mAP"]) < 1e-9, (found["mAP"], reported)
assert [one["class"] for one in found["classes"]] == ["even", "round", "large"], found["classes"]
assert any(one["threshold"] != 0.5 for one in found["classes"]), "thresholds of the validation"
assert abs(found["f1_micro"] - reported["val_tuned_f1_micro"]) < 1e-9, (found["f1_micro"], reported)
found, reported = json.load(open("number.json")), last("number")
digit, tens = found["values"]
assert (digit["name"], tens["name"]) == ("digit", "tens"), found["values"]
assert digit["r2"] > 0.8 and tens["mae"] > 3 * digit["mae"], found["values"]
for name in "mae", "rmse", "r2":
    assert abs(found[name] - reported["val_" + name]) < 1e-9 * abs(reported["val_" + name]), (name, found, reported)
PYTHON
grep -q "binary cross entropy 0[.].* mAP [01][.]" several.txt && grep -q "^even .* %" several.txt || die "the text of several labels"
grep -q "^digit " number.txt && grep -q "the 10 images with the largest errors" number.txt || die "the text of numbers"

# Each form of an answer.
first=$(find pictures -name '*.png' | sort | sed -n 1p)
athanor 0 predict several "$first" --json
mv out one.json
athanor 0 predict several pictures --csv
mv out several.csv
athanor 0 predict number "$first" --json
mv out two.json
athanor 0 predict number pictures --csv
python3 - <<'PYTHON' || die "what predict says"
import csv, json
one, two = json.load(open("one.json")), json.load(open("two.json"))
found = {entry["class"]: entry for entry in json.load(open("several.json"))["classes"]}
assert len(one["top"]) == 3, one
for entry in one["top"]:
    assert entry["present"] == (entry["probability"] >= found[entry["class"]]["threshold"]), entry
assert set(one["labels"]) == {entry["class"] for entry in one["top"] if entry["present"]}, one
said = dict(line.rstrip("\n").split(": ", 1) for line in open("several.said"))
rows = list(csv.DictReader(open("several.csv")))
assert list(rows[0]) == ["image", "labels", "even", "round", "large"] and len(rows) == 1000, rows[0]
for row in rows:
    present = [name for name in row["labels"].split(";") if name]
    text = said[row["image"]]
    assert all(name + " (" in text for name in present) and (present or text.startswith("none; ")), (row, text)
assert list(two["values"]) == ["digit", "tens"], two
rows = list(csv.DictReader(open("out")))
assert abs(float(rows[0]["tens"]) - two["values"]["tens"]) < 1e-3 and rows[0]["image"] == two["image"], rows[0]
PYTHON

# Copies of the number's model have its unit, whoever reads their weights.
athanor 0 convert number same.safetensors
athanor 0 convert number torch.safetensors --layout torch
athanor 0 convert torch.safetensors back.safetensors
for file in same.safetensors back.safetensors; do
  athanor 0 predict $file pictures
  cmp -s out number.said || die "$file says something else"
done
athanor 0 convert several several.onnx
grep -aq multilabel several.onnx && grep -aq thresholds several.onnx || die "what the graph tells of its results"
athanor 0 convert number number.onnx
grep -aq regression number.onnx || die "what the graph tells of its results"
if grep -aq output_scale number.onnx; then die "the graph has the unit already"; fi

if grep -q val_threshold several.out || ! grep -q 'val_threshold/0' several/metrics.jsonl; then die "where thresholds are"; fi
athanor 0 convert number again.safetensors
grep -q ", 2 values" out || die "values are no classes"
refuses "label|column" evaluate several --val numbers_val.csv
refuses "--svg: .* multilabel" evaluate several --svg out.svg
code=0
"$bin/train_images" --device cpu --model digits_cnn --image-size 8 --train labels_train.csv --val labels_val.csv --run-dir none >out 2>err || code=$?
[ $code -eq 2 ] && grep -q "labels_train.csv: samples must have a field 'label' for --task classify" err || die "several labels without --task: code $code"

# Weights of the training table alone: drawn by them, the same whatever reads them, or multiplied by them.
sed '1s/$/,weight/; 2,$s/$/,1/; 2,99s/1$/5/' labels_train.csv >weighted_train.csv
cp labels_val.csv weighted_val.csv
end() { sed -n "/\"event\":\"end\"/s/.*\"weights_hash\":\"\([^\"]*\).*/\1/p" "$1/metrics.jsonl"; }
epochs=1
for workers in 0 3; do train "drawn$workers" weighted --task multilabel --sampler weights --workers "$workers"; done
train plain weighted --task multilabel
grep -q "^not used: 1 column that neither --sampler weights nor --sample-weights uses, nor --fields as a label (weight)" out || die "an idle weight"
train multiplied weighted --task multilabel --sample-weights
if grep -q "^not used" out; then die "a weight that is used"; fi
[ -n "$(end plain)" ] && [ "$(end drawn0)" = "$(end drawn3)" ] || die "--sampler weights depends on workers"
[ "$(end drawn0)" != "$(end plain)" ] && [ "$(end multiplied)" != "$(end plain)" ] || die "weights change nothing"
