#!/usr/bin/env bash
# ladder_test.sh BIN [ranks]: examples/ladder/ladder.py over a train program that makes its times up, and on the digits; with ranks, the
# tricks that need several, too.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/tests/support/python.sh"
bin=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export PYTHONDONTWRITEBYTECODE=1

die() { echo "$*"; tail -n 30 out err 2>/dev/null; exit 1; }
ladder() { # ladder CODE ARGUMENTS...
  local want=$1 code=0
  shift
  "$root/examples/ladder/ladder.py" "$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "$*: expected code $want, but got $code"
}
json=runs/ladder/imagefolder/ladder.json
says() { # says EXPRESSION: of the JSON, whose rows are r by their keys
  python3 -c "
import json, sys
d = json.load(open('$json'))
r = {row['key']: row for row in d['rows']}
here = {claim['key']: claim['here'] for claim in d['claims']}
near = lambda a, b: abs(a / b - 1) < 0.01
sys.exit(not ($1))" || die "not so: $1"
}
refuses() { # refuses TEXT: in the one line of the error
  grep -qF -- "$1" err && [ "$(grep -vc '^usage:\|^  ' err)" = 1 ] || die "the error must say in one line: $1"
}

# Reading takes 8 s an epoch, from prepared images 0.5 s, and half with workers; the network takes 1 s. bf16 is slower, DDP faster.
# The target takes 6 epochs, with adamw 2, with large batches 6 and as many seconds.
mkdir mock photos photos/train photos/val
# (In awk, which begins in 2 ms: it is started two hundred times.)
cat >mock/train_images <<'MOCK'
#!/bin/sh
[ "$*" != --help ] || {
  echo "--workers N --persistent-workers on|off --empty-cache --sync-each-step --val-batch-size --inference-mode --fused" \
    "--precision --devices --strategy --batch-size --scale-lr --early-stop --pin-memory --data-on-device "
  exit
}
case " $* " in *" ${broken:-nothing} "*) echo "train_images: no such thing" >&2; exit 1 ;; esac
exec awk -f "$0.awk" -- "$@"
MOCK
cat >mock/train_images.awk <<'MOCK'
BEGIN {
  for (i = 1; i < ARGC; i++) if (ARGV[i] ~ /^--/) { flag[ARGV[i]] = ARGV[i + 1]; i++ } else images = ARGV[i]
  read = ("--train" in flag ? flag["--train"] : images) ~ /prepared/ ? 0.5 : 8
  if (flag["--workers"] != 0) read /= 2
  net = (flag["--fused"] == "off" ? 1.25 : 1) * (flag["--precision"] == "bf16" ? 1.5 : 1)
  if ("--devices" in flag) net *= flag["--strategy"] == "ddp" ? 0.8 : 0.9
  steps = int(960 / flag["--batch-size"])
  batches = int((320 + flag["--val-batch-size"] - 1) / flag["--val-batch-size"])
  share = ("--limit-train-batches" in flag ? flag["--limit-train-batches"] : steps) / steps
  val_share = ("--limit-val-batches" in flag ? flag["--limit-val-batches"] : batches) / batches
  seconds = (read + net) * share + 0.5 * (flag["--inference-mode"] == "off" ? 2 : 1) * val_share
  if (flag["--progress"] != "off") {
    print "train_images: device " ("device" in ENVIRON ? ENVIRON["device"] : "cpu") ", f32"
    print "mock with 3 parameters; 960 images to train on, 320 to test, 32x32x3, 10 classes"
  }
  need = flag["--optimizer"] == "adamw" ? 2 : "need" in ENVIRON ? ENVIRON["need"] + 0 : 6
  epochs = flag["--epochs"] + 0
  if ("--early-stop" in flag && epochs > need + 3) epochs = need + 3
  out = flag["--metrics"]
  for (epoch = 1; epoch <= epochs; epoch++) {
    accuracy = epoch >= need ? 0.9 : 0.5
    printf "{\"event\":\"epoch\",\"epoch\":%d,\"val_accuracy\":%g,\"images_per_s\":%.17g,\"wall_s\":%.17g}\n", epoch, accuracy, \
      960 / (read + net), 3 + epoch * seconds >out
  }
  printf "{\"event\":\"end\",\"test_accuracy\":%g,\"epochs\":%d,\"wall_s\":%.17g,\"weights_hash\":\"%s\"}\n", accuracy, epochs, \
    epochs * seconds, flag["--precision"] flag["--strategy"] flag["--optimizer"] flag["--batch-size"] >out
}
MOCK
printf '#!/bin/sh\n[ "$1" = pack ] && echo packed >"$3"\n' >mock/athanor
chmod +x mock/train_images mock/athanor

ladder 0 --data imagefolder:photos --bin mock --repeats 3 --seeds 2 --epochs 12 --leave-one-out --peer none
says 'near(r["naive"]["epoch_s"], 8 + 1.25 + 1) and r["naive"]["projected"] and len(r["naive"]["epoch_s_of"]) == 3'
says 'near(r["workers"]["factor"]["factor"], 10.25 / 6.25) and near(r["workers"]["alone"]["factor"], 10.25 / 6.25)'
says 'near(r["prepared"]["factor"]["factor"], 6.25 / 2.5) and near(r["prepared"]["alone"]["factor"], 10.25 / 2.75)'
says 'near(r["inference"]["factor"]["factor"], 2.5 / 2) and near(r["fused"]["factor"]["factor"], 2 / 1.75)'
says 'not r["bf16"]["kept"] and r["ddp"]["kept"] and not r["zero1"]["kept"] and not r["batch"]["kept"] and r["optimizer"]["kept"]'
says 'near(r["ddp"]["factor"]["factor"], 1.75 / 1.55) and near(r["zero1"]["factor"]["factor"], 1.55 / 1.65)'
says 'near(d["total"]["factor"]["factor"], 10.25 / 1.55) and d["total"]["factor"]["interval"][0] <= d["total"]["factor"]["factor"]'
says 'r["workers"]["same_weights"] and not r["ddp"]["same_weights"] and r["bf16"]["weights"] != r["fused"]["weights"]'
says 'near(r["optimizer"]["target_factor"]["factor"], 3) and r["optimizer"]["epochs_to_target"] == [2, 2]'
says 'near(r["early-stop"]["target_factor"]["factor"], 12 / 5) and near(r["early-stop"]["alone"]["factor"], 12 / 9)'
says 'near(r["naive"]["to_target_s"], 6 * 10.25) and near(r["naive"]["run_s"], 12 * 10.25)'
says '"packed" not in [w["key"] for w in d["without"]] and len(d["without"]) == 9'
says '{w["key"]: round(w["loses"]["factor"], 2) for w in d["without"]}["prepared"] == round((4 + 0.8 + 0.5) / 1.55, 2)'
says 'here["bf16"].startswith("not worth it here, because") and "needs a GPU" in here["pinned"] and here["workers"].startswith("1.64")'
says 'len(here) == 20 and len(d["packing"]) == 4 and all(row["command"].startswith("mock/train_images --model ") for row in d["rows"])'
grep -q '^| + parallel loading *| ~6.25 ' out && grep -q '^| (+) mixed precision' out || die "the table"
python3 -c 'import sys, xml.dom.minidom as xml
dots = xml.parse("runs/ladder/imagefolder/ladder.svg").getElementsByTagName("circle")
sys.exit(len(dots) != 13 or sum(dot.getAttribute("class") == "hollow" for dot in dots) != 2)' || die "the picture must have 13 rungs, 2 of them hollow"
ladder 0 --draw $json again.svg
cmp again.svg runs/ladder/imagefolder/ladder.svg || die "the picture, drawn again"

# A target that no run reaches, a folder that is not split, a GPU; and a program that fails: its words, and no result of half a ladder.
mkdir flat
need=99 device=cuda:0 ladder 0 --data imagefolder:flat --bin mock --repeats 1 --seeds 1 --epochs 4 --peer none
says 'r["naive"]["epochs_to_target"] is None and d["total"]["to_target"] is None and d["total"]["factor"]["interval"] is None'
says 'r["pinned"]["kept"] and "flag" in here["graph"] and "anyway" in here["resident"] and len(d["rows"]) == 17'
says 'len(d["packing"]) == 2 and " flat --batch-size" in r["naive"]["command"] and "all.prepared.athp --batch" in r["fused"]["command"]'
grep -q 'never' out || die "expected: never"
rm -r runs
broken=bf16 ladder 1 --data imagefolder:photos --bin mock --repeats 1 --peer none
refuses 'ended with code 1: train_images: no such thing'
[ ! -e $json ] || die "a result of a ladder that failed"
ladder 2 --data imagefolder:nowhere --bin mock
refuses '--make-jpegs nowhere makes one'
ladder 2 --data pets
refuses 'must be digits, cifar10 or imagefolder:DIR, but is pets'
ladder 2 --data digits --bin nowhere
refuses 'nowhere/train_digits must be built: scripts/ladder.sh builds it'

# What --publish has written belongs together.
if [ -f "$root/bench/results/ladder.json" ]; then
  ladder 0 --draw "$root/bench/results/ladder.json" again.svg
  cmp again.svg "$root/docs/img/ladder.svg" || die "run examples/ladder/ladder.py --draw bench/results/ladder.json docs/img/ladder.svg"
  ladder 0 --show "$root/bench/results/ladder.json"
  cmp out "$root/bench/results/ladder.md" || die "run examples/ladder/ladder.py --show bench/results/ladder.json >bench/results/ladder.md"
  python3 -c '
import json, sys
sys.path.insert(0, sys.argv[1] + "/examples/ladder")
import report
result = json.load(open(sys.argv[1] + "/bench/results/ladder.json"))
sys.exit(report.quoted(result) not in open(sys.argv[1] + "/docs/the_ladder.md").read())' "$root" || die "docs/the_ladder.md must quote bench/results/ladder.json"
fi

# On the digits, with next to no time: what counts is that every command runs, and which weights are the same. A program that has no
# --devices leaves out ranks, which take longer than all else.
[ -x "$bin/train_digits" ] || exit 0
if [ "${2-}" != ranks ]; then
  mkdir alone
  printf '#!/bin/sh\n[ "$*" = --help ] || exec %q "$@"\n%q --help | sed s/--devices/--/\n' "$bin"/train_digits{,} >alone/train_digits
  chmod +x alone/train_digits
  bin=alone
fi
ladder 0 --data digits --bin "$bin" --repeats 1 --seeds 1 --epochs 1 --seconds 0.01 --peer none
json=runs/ladder/digits/ladder.json
says 'all(r[key]["same_weights"] for key in ("cache", "item", "val-batch", "inference", "fused"))'
says 'not r["bf16"]["same_weights"] and not r["optimizer"]["same_weights"] and r["naive"]["accuracy"] > 0.5'
says '"in memory already" in here["workers"] and "in memory already" in here["prepared"] and all(row["epoch_s"] > 0 for row in d["rows"])'
[ "$bin" = alone ] || says 'not r["ddp"]["same_weights"] and "zero1" in r'
