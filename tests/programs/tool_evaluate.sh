#!/usr/bin/env bash
# tool_evaluate.sh BIN SOURCE: athanor evaluate gives the figures of the run, its tables are whole, and bad input is a line.
source "$(dirname "${BASH_SOURCE[0]}")/tool.sh"

refuses() { # refuses PATTERN ARGUMENTS...: code 2, one line on stderr, nothing on stdout, no file
  local pattern=$1
  shift
  athanor 2 evaluate "$@" --json refused.json --svg refused.svg
  [ "$(wc -l <err)" -eq 1 ] && [ ! -s out ] || die "evaluate $*: expected one line on stderr"
  grep -qE -- "$pattern" err || die "evaluate $*: expected '$pattern'"
  [ ! -e refused.json ] && [ ! -e refused.svg ] || die "evaluate $*: left a file"
}
end() { sed -n "/\"event\":\"end\"/s/.*\"$2\":\([^,}]*\).*/\1/p" "$1/metrics.jsonl"; }

# The best weights and those of the last step: both with their figures, and what to type next.
"$bin/train_digits" --device cpu --epochs 4 --ema 0.9 --monitor val_loss >out 2>err || die "it does not train"
run=runs/train_digits/1
tail -n 4 out >lines
sed -n 1p lines | grep -qE "^saved   $run/model.safetensors +[0-9.]+ %, best val_loss, running average$" || die "what is saved"
sed -n 2p lines | grep -qE "^        $run/last.safetensors +[0-9.]+ %, last step$" || die "the last step's"

# The figures are those of the run, to the last bit; --validate-only says the same.
athanor 0 evaluate runs/train_digits/latest --val digits --threads 1 --device cpu --json all.json --svg all.svg
grep -qx "as its run reported" out || die "expected the figures of the run"
sed 1,3d out >tables
python3 - "$(end $run test_loss)" "$(end $run test_accuracy)" <<'PY' || die "all.json"
import json, sys
all = json.load(open("all.json"))
assert (all["loss"], all["top1"]) == (float(sys.argv[1]), float(sys.argv[2])), (all["loss"], all["top1"], sys.argv)
assert all["images"] == 360 and all["top1"] <= all["top5"] <= 1
assert sum(cell["images"] for cell in all["confusion"]) == 360
assert sum(one["images"] for one in all["classes"]) == 360 and len(all["classes"]) == 10
wrong = sum(cell["images"] for cell in all["confusion"] if cell["actual"] != cell["predicted"])
assert len(all["mistakes"]) == min(wrong, 10)
PY
python3 -c 'import xml.dom.minidom as m; assert len(m.parse("all.svg").getElementsByTagName("title")) >= 10' || die "all.svg"
athanor 0 evaluate $run --threads 1 --device cpu
sed 1,3d out | cmp -s - tables || die "without --val it takes other images"
"$bin/train_digits" --validate-only >out 2>err || die "--validate-only"
sed 1,3d out | cmp -s - tables || die "--validate-only says otherwise"
[ "$(ls runs/train_digits)" = "$(printf '1\nlatest')" ] || die "--validate-only left something: $(ls runs/train_digits)"
athanor 0 evaluate $run/last.safetensors --val digits --threads 1 --json - --top 2 --worst 0
python3 -c 'import json; all = json.load(open("out")); assert "top2" in all and not all["mistakes"], all' || die "--json -"
grep -q '"loss"' out || die "--json - prints no figures"

# In bf16 it says so, and loses at most one of the 360.
athanor 0 evaluate $run --device cpu --precision bf16
sed -n 1p out | grep -q ", measured in bf16$" || die "the precision is not named"
athanor 0 evaluate $run --device cpu --precision bf16 --json -
python3 -c '
import json
half, all = json.load(open("out")), json.load(open("all.json"))
assert half["precision"] == "bf16" and "precision" not in all, half.keys()
assert abs(half["top1"] - all["top1"]) < 1.5 / 360 and half["loss"] != all["loss"], (half["loss"], all["loss"])
' || die "the figures in bf16"

# The run's --data-dir, or its default, is found from any other folder.
mkdir -p asked elsewhere there/{set,data-cache}/mnist && cp $run/model.safetensors asked
for data in set data-cache; do
  { printf '\0\0\10\3\0\0\0\2\0\0\0\10\0\0\0\10' && head -c 128 /dev/zero; } >there/$data/mnist/t10k-images-idx3-ubyte
  printf '\0\0\10\1\0\0\0\2\3\4' >there/$data/mnist/t10k-labels-idx1-ubyte
  cat >asked/config.json <<END
{"program": "train_mnist", "working_directory": "$PWD/there",
 "flags": {"--data-dir": {"value": "$data", "from": "$([ $data = set ] && echo flag || echo default)"}}}
END
  cd elsewhere
  ATHANOR_DATA_DIR='' athanor 0 evaluate ../asked --threads 1 --device cpu --json all.json
  cd ..
  grep -q '"images":2\b\|"images": 2\b' elsewhere/all.json || die "the data in $data"
done

# Bad input.
refuses "there is none" $run --val nowhere
mkdir moved && cp $run/model.safetensors moved
refuses "--val: must name images, because moved/config.json does not record" moved
echo '{"program": 3}' >moved/config.json
refuses "--val: must name images" moved
refuses "--top: must be at least 1" $run --val digits --top 0
refuses 'model: runs must hold model.safetensors' runs --val digits
refuses "must be a model of a run, but is a checkpoint" $run/checkpoints/*176.safetensors --val digits
head -c 5000 $run/model.safetensors >cut.safetensors
refuses "cut.safetensors" cut.safetensors --val digits
cp $run/model.safetensors bent.safetensors
printf x | dd of=bent.safetensors bs=1 seek=60000 conv=notrunc 2>/dev/null
refuses "bent.safetensors is damaged" bent.safetensors --val digits
mkdir -p photos/cat photos/dog
python3 "$source/tests/programs/digit_pictures.py" "$source/data/digits/digits.csv.gz" photos/cat 3
cp photos/cat/*.png photos/dog
refuses "images must be 8x8x1, as the model expects, but are 8x8x3" $run --val photos
athanor 2 evaluate $run --val digits --json absent/all.json
grep -q "absent/all.json" err && grep -q '^loss' out || die "figures are lost with a file that cannot be written"
if [ "$(id -u)" -ne 0 ]; then
  mkdir locked && chmod 500 locked
  athanor 2 evaluate $run --val digits --json locked/all.json
  grep -q "locked/all.json" err || die "a folder that takes no file"
fi
