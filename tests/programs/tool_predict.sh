#!/usr/bin/env bash
# tool_predict.sh BIN SOURCE: a run leaves its folder, and athanor predict knows the digits by what is in it.
source "$(dirname "${BASH_SOURCE[0]}")/tool.sh"

refuses() { # refuses PATTERN ARGUMENTS...
  local pattern=$1
  shift
  athanor 2 predict "$@"
  [ "$(wc -l <err)" -eq 1 ] || die "predict $*: expected one line on stderr"
  grep -qE -- "$pattern" err || die "predict $*: expected '$pattern'"
}

"$bin/train_digits" --device cpu --epochs 5 >out 2>err || die "it does not train"
run=runs/train_digits/1
tail -n 3 out | sed -n 1p | grep -qx "saved   $run/model.safetensors" || die "it does not say what is left"
tail -n 1 out | grep -qx "next    $bin/athanor predict $run IMAGE..." || die "the last line does not say what to do next"
[ "$(readlink runs/train_digits/latest)" = 1 ] || die "there is no link to the newest run"
for file in model.safetensors metrics.jsonl config.json checkpoints; do [ -e "$run/$file" ] || die "there is no $file"; done
grep -q '"event":"end"' $run/metrics.jsonl || die "metrics.jsonl has no end"

mkdir -p pictures/below
python3 "$source/tests/programs/digit_pictures.py" "$source/data/digits/digits.csv.gz" pictures/below 200
# A folder, by name of the run: most are known, and most surely.
athanor 0 predict runs/train_digits/latest pictures --top 1
[ "$(wc -l <out)" -eq 200 ] || die "expected a line for each of 200 pictures"
right=$(sed -nE 's|^pictures/below/([0-9])-[0-9]*\.png: ([0-9]) .*|\1 \2|p' out | awk '$1 == $2' | wc -l)
[ "$right" -ge 190 ] || die "$right of 200 digits are known"
sorted=$(cut -d: -f1 out | sort -c 2>&1) || die "they are not in order: $sorted"
# The same of files, of a list, one by one and in batches.
cp out whole
athanor 0 predict $run/model.safetensors pictures/below/*.png --top 1 --batch-size 7
cmp -s out whole || die "a batch's size changes what is said"
"$bin/athanor" predict $run - --top 1 < <(find pictures -name '*.png' | sort) >out 2>err || die "a list"
cmp -s out whole || die "a list is answered otherwise"
athanor 0 predict $run "$(find pictures -name '*.png' -print -quit)" --json
python3 -c '
import json, sys
line = json.loads(open("out").read())
found = line["top"]
assert line["image"].endswith(".png"), line
assert len(found) == 3 and [p["class"] for p in found] == [str(p["index"]) for p in found], line
assert found[0]["probability"] >= found[1]["probability"] >= found[2]["probability"] > 0, line
' || die "what --json says"
# In bf16 nearly all get the same answer, and f32 is the default; on a CPU without bf16 a line says that f32 is faster.
"$bin/athanor" predict $run pictures --top 1 --precision bf16 >out 2>err || die "--precision bf16"
[ "$(paste -d ' ' <(sed 's/ (.*//' out) <(sed 's/ (.*//' whole) | awk '$2 != $4' | wc -l)" -le 2 ] || die "bf16 knows other digits"
if grep -q avx512_bf16 /proc/cpuinfo && [ "${ATHANOR_MAX_CPU_ISA:-}" != AVX2 ]; then
  [ ! -s err ] || die "bf16 on a CPU that multiplies it"
else
  grep -qx -- "--precision: this CPU does not multiply bf16: predictions in f32 are faster" err || die "bf16 on this CPU"
fi
athanor 0 predict $run pictures --top 1 --precision f32
cmp -s out whole || die "--precision f32 is not the default"
refuses "--precision: must be f32, bf16 or f16, but got 'tf32'" $run pictures --precision tf32
# Classes are ten, however many are asked for.
athanor 0 predict $run "$(find pictures -name '*.png' -print -quit)" --top 99
[ "$(grep -o '%' out | wc -l)" -eq 10 ] || die "expected ten classes"

athanor 0 predict $run pictures --csv --top 2
[ "$(head -n 1 out)" = image,class,probability,class_2,probability_2 ] && [ "$(wc -l <out)" -eq 201 ] || die "the table of --csv"
[ "$(tail -n +2 out | cut -d, -f1-2)" = "$(sed -E 's/^(.*): ([0-9]) .*/\1,\2/' whole)" ] || die "the table says something else"
refuses "--csv: .*--json" $run pictures --csv --json

# What is broken is a line each, and the rest is answered.
echo "no picture" >pictures/below/zz.jpg
head -c 60 "$(find pictures -name '*.png' -print -quit)" >pictures/below/cut.png
mkfifo pictures/pipe.png
athanor 2 predict $run pictures pictures/pipe.png absent.png --top 1
[ "$(wc -l <out)" -eq 200 ] || die "the others are not answered"
[ "$(wc -l <err)" -eq 5 ] || die "expected a line for each of four, and one for the pipe in the folder"
grep -qx "not used: 1 pipes, sockets or devices (pictures/pipe.png)" err || die "the pipe is not counted"
for name in zz.jpg cut.png pipe.png absent.png; do grep -q "$name" err || die "$name is not named"; done
rm pictures/pipe.png
athanor 0 predict $run pictures absent.png --top 1 --bad-samples skip
[ "$(wc -l <out)" -eq 200 ] && grep -q '^3 of 203 files' err || die "those left out are not counted"
athanor 2 predict $run pictures --bad-samples skip:1
athanor 2 predict $run absent.png --bad-samples skip
refuses 'cut.png' $run pictures --bad-samples strict
# So is one that needs more memory than there is.
python3 - <<'PY'
import struct, zlib
chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
head = struct.pack(">IIBBBBB", 10000, 10000, 8, 2, 0, 0, 0)
open("huge.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))))
PY
small=$(find pictures -name '[0-9]*.png' -print -quit)
limited() { (ulimit -v 300000 && OMP_NUM_THREADS=1 "$bin/athanor" predict $run "$@" --top 1 >out 2>err); }
if limited "$small"; then  # not under a sanitizer, which reserves more
  code=0
  limited huge.png "$small" || code=$?
  [ $code -eq 2 ] && grep -q "^$small: " out || die "the other is not answered: code $code"
  [ "$(wc -l <err)" -eq 1 ] && grep -q 'huge.png: .*memory' err || die "what is too large is not named"
fi

# The file's weights are a beginning for another training.
"$bin/train_digits" --device cpu --epochs 1 --max-steps 5 --pretrained $run/model.safetensors --run-dir more >out 2>err ||
  die "--pretrained takes no model"
grep -q "^pretrained: 17 tensors from $run/model.safetensors$" out || die "it does not say what it took"
# A model that cannot be written is an error of one line, behind the figures. What was there stays.
mkdir -p taken/model.safetensors/is/taken
code=0
"$bin/train_digits" --device cpu --epochs 1 --max-steps 5 --run-dir taken >out 2>err || code=$?
[ $code -eq 2 ] && [ "$(wc -l <err)" -eq 1 ] && grep -q "taken/model.safetensors" err || die "expected one line and code 2, not $code"
grep -q "^test accuracy" out || die "the figures are lost"
[ -d taken/model.safetensors/is/taken ] || die "what was there is gone"

# A run that is not over has none yet; other files are refused, and damaged ones.
refuses "needs a JPEG, PNG or WebP, but found none in $run" $run $run
refuses "must be a model of a run, but is a checkpoint" $run/checkpoints/*220.safetensors pictures
refuses 'model: runs must hold model.safetensors' runs pictures
refuses "IMAGE" $run
refuses "--top: must be at least 1" $run pictures --top 0
head -c 5000 $run/model.safetensors >cut.safetensors
refuses "cut.safetensors" cut.safetensors pictures
