#!/usr/bin/env bash
# own_tasks.sh BIN PRECISIONS NAME...: each example with a task of its own, on a few made-up pictures: killed (in each of its
# phases), it goes on to the same weights and pictures; ZeRO-1 is DDP to the bit. What is wrong is one line.
set -euo pipefail
bin=$1 precisions=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null || true; exit 1; }
run() { # run CODE COMMAND...
  local want=$1 code=0
  shift
  "$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "$*: expected code $want, but got $code"
}
same_models() { # same_models RUN OTHER: the weights that they leave, of each phase
  local models
  models=$(cd "$1" && find . -name model.safetensors)
  [ -n "$models" ] || return 1
  for model in $models; do cmp "$1/$model" "$2/$model" || return 1; done
}
hash_of() { sed -n '/"event":"end"/s/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p' "$1" | tail -1; }

# Noise in the four files of MNIST, 28x28.
mkdir mnist
for part in train:64 t10k:20; do
  name=${part%:*} count=${part#*:}
  { printf '\0\0\10\3\0\0\0\x'"$(printf %x "$count")"'\0\0\0\34\0\0\0\34'; head -c $((count * 784)) /dev/urandom; } >"mnist/$name-images-idx3-ubyte"
  { printf '\0\0\10\1\0\0\0\x'"$(printf %x "$count")"; for ((i = 0; i < count; i++)); do printf "\\x$(printf %x $((i % 10)))"; done; } \
    >"mnist/$name-labels-idx1-ubyte"
done

# Noise in the batches of CIFAR-10, too: the same ten pictures again and again, in all of them.
mkdir cifar10
for i in {0..9}; do printf "\\x$(printf %x "$i")"; head -c 3072 /dev/urandom; done >ten
for _ in {1..10}; do cat ten; done >hundred
for _ in {1..100}; do cat hundred; done >cifar10/test_batch.bin
for i in {1..5}; do ln cifar10/test_batch.bin "cifar10/data_batch_$i.bin"; done

phases_of() { # phases_of NAME: the folders of phases that it is killed in, below that of the checkpoints
  case $1 in
    contrastive) echo contrast/ random_probe/ ;; # and probe/, the last one: distill has one such
    distill) echo teacher/ student/ ;;
    *) echo ./ ;;
  esac
}

for name in "$@"; do
  case $name in
    distill | keypoints | segment) ;; # which bring their data
    *)
      run 2 "$bin/$name" --data-dir nowhere
      [ "$(wc -l <err)" -eq 1 ] || die "$name: expected one line on stderr"
      ;;
  esac
  # Two short steps an epoch; of the two that need a hundredth of a second for one, more: there must be time to kill them.
  few=(--batch-size 8 --max-steps 6 --limit-train-batches 2 --limit-val-batches 2 --val-batch-size 16)
  [[ $name != @(denoise|distill) ]] || few=(--batch-size 16 --max-steps 9)
  for precision in $precisions; do
    train=("$bin/$name" --data-dir . --epochs 3 "${few[@]}" --deterministic --threads 1 --precision $precision)
    run 0 "${train[@]}" --run-dir straight
    straight=$(hash_of straight/metrics.jsonl)
    [ -n "$straight" ] || die "$name: no hash"

    for phase in $(phases_of "$name"); do # that it is killed in
      rm -rf run
      "${train[@]}" --run-dir run --checkpoint-every 1 >out 2>err &
      pid=$!
      until compgen -G "run/checkpoints/${phase}step-*.safetensors" >/dev/null; do sleep 0.005; done
      kill -9 $pid 2>/dev/null || true
      wait $pid 2>/dev/null || true
      run 0 "${train[@]}" --run-dir run --checkpoint-every 1 --resume auto
      [ "$(hash_of run/metrics.jsonl)" = "$straight" ] || die "$name $precision: killed and resumed, it ends elsewhere"
      same_models straight run || die "$name $precision: resumed, it leaves another model"
      [ ! -d straight/samples ] || diff -r straight/samples run/samples || die "$name $precision: resumed, it draws other pictures"
    done
    [ "$name" != denoise ] || [ "$(ls run/samples)" = "$(printf 'epoch_000%d_samples.png\n' 1 2 3)" ] || die "$name: no pictures"

    for strategy in ddp zero1; do run 0 "${train[@]}" --devices 2 --strategy $strategy --run-dir $strategy; done
    [ "$(hash_of ddp/metrics.jsonl)" = "$(hash_of zero1/metrics.jsonl)" ] || die "$name $precision: ZeRO-1 is not DDP"
    same_models ddp zero1 || die "$name $precision: ZeRO-1 leaves another model"
    rm -rf straight run ddp zero1
  done
done
