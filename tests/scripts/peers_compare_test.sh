#!/usr/bin/env bash
# peers_compare_test.sh BIN: bench/peers/compare.py over workers that are made up, with times that they make up, too.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/tests/support/python.sh"
export PYTHONDONTWRITEBYTECODE=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

die() { echo "$*"; cat out err json 2>/dev/null; exit 1; }
compare() { # compare CODE ARGUMENTS...
  local want=$1 code=0
  shift
  rm -f json
  python3 -SB "$root/bench/peers/compare.py" "$@" --ours ./worker --networks ./worker --athanor /bin/true --python ./worker --json json >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "$*: expected code $want, but got $code"
}
says() { # says EXPRESSION: of the JSON
  python3 -SE -c "import json, sys; d = json.load(open('json')); sys.exit(not ($1))" || die "not so: $1"
}

# Ours takes 1 ms, unpacked 3; PyTorch 4 and compiled 5; ONNX Runtime 2, and half as long in every second turn. OpenVINO is $openvino.
cat >worker <<'WORKER'
#!/usr/bin/env -S python3 -SE
import json, os, sys
names = sys.argv[1:]
if "save" in names:
    sys.exit()
name = names[-1] if "onnx" in names[0] else "pytorch" if "pytorch" in names[0] else "athanor"
if name in os.environ.get("missing", "").split():
    print(json.dumps({"error": f"No module named '{name}'"}))
    sys.exit()
ways = ["eager", "channels_last", "frozen", "frozen_channels_last", "compile"] if name == "pytorch" else [name]
cases = {f"resnet18_cifar/{p}/{kind}-b1": ways for p in ("f32", "bf16") for kind in ("infer", "unpacked")}
cases |= {f"resnet18_cifar/{p}/train-b{batch}": ways for p in ("f32", "bf16") for batch in (16, 64)}
if name != "pytorch":
    cases |= {"resnet18_cifar/int8/infer-b1": ways}
cases |= {"resnet50/f32/infer-b16": ways, "resnet50/f32/unpacked-b16": ways, "mobilenet_v2/f32/train-b16": ways}
if name == "onnxruntime":
    cases = {case: way for case, way in cases.items() if "bf16" not in case}
print(json.dumps({"name": name, "version": "7.1", "threads": int(os.environ["OMP_NUM_THREADS"]), "cases": cases}), flush=True)
turn = 0
for line in sys.stdin:
    case, variant, _ = line.split()
    ms = {"onnxruntime": (2, 1)[turn % 2], "openvino": 9, "compile": 5}.get(variant, 4 if name == "pytorch" else 1)
    if "unpacked" in case and name == "athanor" and "f32" in case:
        ms = 3
    off = float(os.environ.get("off", 0)) if name == "openvino" else 0
    print(json.dumps({"seconds": [ms / 1000] * 3, "check": [1.0, -2.0 + 2 * off], "peak_bytes": 2**20 * (3 if name == "athanor" else 5)}), flush=True)
    turn += 1
WORKER
chmod +x worker

compare 0 resnet18-infer-b1 --threads 1 2 --rounds 11
says 'd["workload"] == "resnet18-infer-b1" and d["precision"] == "f32" and d["threads"] == 2'
says 'd["peer"] == "onnxruntime" and 900 < d["ours_images_per_s"] < 1100 and 600 < d["peer_images_per_s"] < 1100'
says 'd["ratio"] in (1, 2) and d["spread"] == [1, 2]'
says 'len(d["rows"]) == 18 and all(r["pairs"] == 11 and r["processor"] and r["isa"] and r["peer_version"] == "7.1" for r in d["rows"])'
says '[round(r["ratio"]) for r in d["rows"]][:2] == [1, 3] and "A/A" in d["rows"][0]["peer"] and "unpacked" in d["rows"][1]["peer"]'

says 'all(r["ours_peak_bytes"] == 3 * 2**20 for r in d["rows"]) and d["rows"][-1]["peer_peak_bytes"] == 5 * 2**20'

# A peer that is missing is named once, and no error; if none is there, it is one.
missing='openvino pytorch' compare 0 resnet18-infer-b1 --threads 1 2 --rounds 2
[ "$(grep -c '^left out: ' out)" = 2 ] && grep -q "^left out: openvino: No module named 'openvino'" out || die "what is left out"
missing='openvino pytorch onnxruntime' compare 2 resnet18-infer-b1 --threads 1 --rounds 2
[ ! -e json ] && grep -q "none of PyTorch, ONNX Runtime and OpenVINO" err || die "no peer at all"

# In bf16 only who computes in it.
compare 0 resnet18-infer-b1 --threads 1 --rounds 2 --precision bf16
says 'd["peer"] == "pytorch eager" and d["ratio"] == 4 and len(d["rows"]) == 8'

# In int8 beside ours in f32, and PyTorch has none.
compare 0 resnet18-infer-b1 --threads 1 --rounds 2 --precision int8
says '[r["peer"] for r in d["rows"]] == ["athanor again (A/A)", "athanor f32", "onnxruntime", "openvino"]'

# Other logits: 2e-4 of the largest is too much in f32, 5e-5 is not.
off=0.00005 compare 0 resnet18-infer-b1 --threads 1 --rounds 2
off=0.0002 compare 1 resnet18-infer-b1 --threads 1 --rounds 2
grep -q '^resnet18 .* openvino .*WRONG RESULT' out || die "which is wrong"

compare 2 resnet18-infer-b2 --threads 1
grep -q "lenet5-b64 lenet5-b512 resnet20-b128" err || die "an unknown workload"

# Training: two steps of 64 images are a run; there are PyTorch's three ways, and no other peer. Both names of a workload are taken.
for workload in resnet18-b64-train resnet18-train-b64; do
  compare 0 $workload --threads 1 --rounds 10
  says 'd["peer"] == "pytorch eager" and d["ratio"] == 4 and 125e3 < d["ours_images_per_s"] < 130e3 and len(d["rows"]) == 4'
done
compare 0 resnet18-b64-infer-b1 --threads 1 --rounds 2
says 'd["peer"] == "onnxruntime"'
compare 2 resnet18-train --threads 1
compare 2 resnet18-b3-train --threads 1

# Of two networks, by other names: `-224` says only what the network is for.
compare 0 resnet50-b16-224-infer --threads 1 --rounds 2
says 'd["workload"] == "resnet50-b16-224-infer" and d["peer"] == "onnxruntime"'
compare 0 mobilenetv2-b16-224-train --threads 1 --rounds 2

# One of each family: of PyTorch's ways the fastest alone, beside ONNX Runtime and OpenVINO where they compute; a network that fails is named.
zoo() { # zoo CODE ARGUMENTS...
  local want=$1 code=0
  shift
  rm -f json
  python3 -SB "$root/bench/peers/zoo.py" "$@" --train ./worker --networks ./worker --athanor /bin/true --python ./worker --json json --seconds 0.01 >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "zoo $*: expected code $want, but got $code"
}
zoo 0 --minutes 0 --only resnet18_cifar
says '[(r["workload"], r["precision"], r["peer"].split()[0]) for r in d["rows"]] == [("resnet18_cifar-b16-train", p, w) for p in ("f32", "bf16") for w in ("athanor", "pytorch")] + [("resnet18_cifar-infer-b1", p, w) for p, peers in (("f32", ["athanor", "pytorch", "onnxruntime", "openvino"]), ("bf16", ["athanor", "pytorch", "openvino"])) for w in peers]'
says 'all(r["pairs"] == 6 for r in d["rows"])'
grep -q '^| `resnet18_cifar` | 4.00 (4.00 .. 4.00) pytorch eager, A/A 1.00 .. 1.00 | .* | 1.50 (1.00 .. 2.00) onnxruntime, A/A' out || die "the table of the zoo"
zoo 0 --minutes 1 --only resnet18_cifar --precision bf16
says 'len(d["rows"]) == 5 and max(r["pairs"] for r in d["rows"]) == 20'
off=0.0002 zoo 1 --minutes 0 --only resnet18_cifar --precision f32
grep -q 'openvino .*WRONG RESULT' out && ! grep -q '^|.* openvino' out || die "a wrong result is in the table"
zoo 1 --minutes 0 --only densenet121 resnet18_cifar --precision f32
grep -q '^densenet121-b2-train f32: has no densenet121/f32/train-b2' out && says 'len(d["rows"]) == 6' || die "a network that fails"

# Beside busy processes: times that do not change are below what shares of the processors predict.
"$root/bench/peers/busy.py" resnet18-b64-train --neighbours 2 --threads "$(nproc)" --rounds 2 --seconds 0.01 --ours ./worker --networks ./worker \
  --athanor /bin/true --python ./worker --json json >out 2>err || die "busy.py failed"
says '[(r["who"], r["neighbours"]) for r in d["rows"]] == [(w, n) for w in ("athanor", "pytorch channels_last") for n in (0, 1, 2)]'
says 'all(r["times"] == 1 and r["predicted"] == (r["cores"] + r["neighbours"]) / r["cores"] and r["over"] == 1 / r["predicted"] for r in d["rows"])'
says 'd["rows"][3]["images_per_s"] * 4 == d["rows"][0]["images_per_s"]'

# A whole speedrun from three epochs of a fifth of the images: a start of 1 s, epochs of 2 s, and 1 s more for the last epoch's views.
PYTHONPATH=$root/bench/peers python3 -c 'import sys, whole_runs; sys.exit(whole_runs.whole_speedrun([3, 5, 8]) != 1 + (8 * 2 + 1) * 5)' ||
  die "a speedrun is projected wrongly"
cat >speedrun_cifar10 <<'PROGRAM'
#!/bin/sh
case $* in
  *speedrun.py*' 1 1 1000' | *--fast-dev-run*) pause=0 start='epoch ' ;;
  *speedrun.py*eager*) pause=0.2 start='epoch ' ;;
  *speedrun.py*) pause=0.4 start='epoch ' ;;
  *'--precision bf16 --limit-train-batches 5 --limit-val-batches 2 --epochs 3'*) pause=0.1 start='    ' ;;
  *) exit 1 ;;
esac
echo '3 epochs of 5 steps'
for epoch in 1 2 3; do sleep $pause; echo "$start$epoch       2.3168"; done
echo "accuracy ${accuracy:-0.5}"
PROGRAM
chmod +x speedrun_cifar10
speedrun() { python3 "$root/bench/peers/whole_runs.py" speedrun-run --precision bf16 --bin . --data . --python ./speedrun_cifar10 --rounds 1 --json json >out 2>err; }
speedrun || die "speedrun-run failed"
says '[r["peer"] for r in d["rows"]] == ["athanor again (A/A)", "pytorch eager", "pytorch compile"]'
says '3.9 < d["rows"][1]["ours_s"] < 12 and 1.2 < d["rows"][1]["ratio"] < d["rows"][2]["ratio"]'
! accuracy=0.1 speedrun || die "a network that has not trained passes"
