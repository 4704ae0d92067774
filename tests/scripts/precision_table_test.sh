#!/usr/bin/env bash
# precision_table_test.sh BIN: bench/precision_table.py over trainers that are made up.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/tests/support/python.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null; exit 1; }
table() { # table CODE ARGUMENTS...
  local want=$1 code=0
  shift
  "$root/bench/precision_table.py" --bin bin "$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "$*: expected code $want, but got $code"
}

# Ends with an accuracy of 0.9, 0.91, ... by seed, less what bf16_loss says in bf16.
mkdir bin
cat >bin/train_mnist <<'TRAINER'
#!/usr/bin/env bash
while [ $# -gt 0 ]; do
  case $1 in
    --precision | --seed | --metrics) declare "${1#--}=$2"; shift ;;
  esac
  shift
done
echo "$precision $seed" >>calls
[ "$precision" = bf16 ] || bf16_loss=0
accuracy=$(awk "BEGIN { print 0.9 + 0.01 * $seed - ${bf16_loss:-0} }")
echo "{\"event\":\"epoch\",\"epoch\":1}" >>"$metrics"
echo "{\"event\":\"end\",\"test_accuracy\":$accuracy,\"applied_steps\":99,\"skipped_steps\":1}" >>"$metrics"
# Work, so that the run has taken CPU time.
for ((i = 0; i < 1000 + 10000 * (seed > 0); ++i)); do :; done
TRAINER
chmod +x bin/train_mnist

table 0 --runs equal lenet5
[ "$(wc -l <calls)" = 18 ] || die "expected 15 trainings and 3 of one step, but got $(wc -l <calls)"
grep -q '^| f32 | 92.00 % | 1.58 | 90.00 .. 94.00 | - | - |' out || die "f32's row"
grep -q '^| bf16 | 92.00 % | 1.58 | 90.00 .. 94.00 | +0.00 (at most 2.00) | yes |.* 5 of 500 |$' out || die "bf16's row"

# Again: nothing is trained that has been, and a run that was cut off is.
cp out before
echo '{"event":"epo' >equal/lenet5-f16-3.jsonl
table 0 --runs equal lenet5
[ "$(wc -l <calls)" = 19 ] || die "a run that was there was made again"
cmp -s <(cut -d'|' -f1-7,9 before) <(cut -d'|' -f1-7,9 out) || die "the second table differs"

# 3 % worse is not noise, and is said.
bf16_loss=0.03 table 1 --runs worse lenet5
grep -q '^| bf16 | 89.00 % .*| -3.00 (at most 2.00) | NO |' out || die "a loss of 3 % passes for noise"
grep -q '^| f16 | 92.00 % .*| yes |' out || die "f16's row"

table 2 --runs equal lenet
grep -q "one of lenet5 resnet20, but got 'lenet'" err || die "an unknown name"
table 2 --runs equal resnet20
grep -q "train_cifar10 must be a program" err || die "no program"
[ "$(wc -l <err)" -le 2 ] || die "more than a line"
