#!/usr/bin/env bash
# On a machine with a GPU: the cuda tests, kernel benchmarks, short trainings and compute-sanitizer, and one report of
# all in DIR: report.md and report.json (and raw.tar.gz, what they were made of).
#   scripts/gpu_check.sh [--bundle DIR] [--out DIR] [--minutes N] [--data-dir DIR]
#   --bundle DIR    takes the programs in DIR/bin (an unpacked bundle of scripts/gpu_bundle.sh, or a build tree) instead
#                   of building the cuda preset for this GPU; a bundle's own copy of this script does so by itself
#   --out DIR       where the report goes [gpu-report]
#   --minutes N     how long the checks may take, the build not counted; the most important come first [9]
#   --data-dir DIR  holds mnist/ and cifar10/ [$ATHANOR_DATA_DIR, else data-cache]; CIFAR-10 is made up where it is missing
# Ends with 0 when all is green, 1 when something is not, 2 on wrong arguments, 3 without a GPU.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

bundle="" out=gpu-report minutes=9 data=${ATHANOR_DATA_DIR:-data-cache}
[ ! -f "$root/MANIFEST.json" ] || bundle=$root
while [ $# -gt 0 ]; do
  case $1 in
    --bundle | --out | --minutes | --data-dir)
      [ $# -ge 2 ] || fail 2 "gpu_check.sh: $1 must be followed by a value"
      case $1 in --bundle) bundle=$2 ;; --out) out=$2 ;; --minutes) minutes=$2 ;; --data-dir) data=$2 ;; esac
      shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) fail 2 "gpu_check.sh: must be --bundle, --out, --minutes or --data-dir, but got '$1'" ;;
  esac
done
[[ $minutes =~ ^[0-9]+([.][0-9]+)?$ ]] || fail 2 "gpu_check.sh: --minutes must be a number, but got '$minutes'"
[ -z "$bundle" ] || [ -d "$bundle/bin" ] || fail 2 "gpu_check.sh: --bundle must be a folder with bin/, but $bundle is not"
command -v python3 >/dev/null || fail 2 "gpu_check.sh: python3 is needed for the report"
gpu=$(gpu_name) || fail 3 "gpu_check.sh: no NVIDIA GPU here, so there is nothing to check"

[ -z "$bundle" ] || bundle=$(realpath "$bundle")
data=$(realpath -m "$data") out=$(realpath -m "$out")
raw=$out/raw
rm -rf "$raw"
mkdir -p "$raw"
log() { printf '%s\t%s\n' "$1" "$2" >>"$raw/meta.tsv"; }
record() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$raw/parts.tsv"; } # NAME STATUS SECONDS WHAT

# The report is written in any case, of what there is by then.
finish() {
  local code=$?
  trap - EXIT
  trap '' INT TERM
  if [ -n "${child-}" ]; then # timeout hands the signal on, and kills what does not heed it
    kill -TERM "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  [ -z "${running-}" ] || record "$running" "timed out" "$((SECONDS - part_start))" "the check was ended from outside"
  case $code in
    0) ;;
    130 | 143) record gpu_check.sh "timed out" "$SECONDS" "ended by a signal" ;;
    *) record gpu_check.sh failed "$SECONDS" "code $code" ;;
  esac
  log clocks_after "$(clocks)"
  log ended "$(date -u +%FT%TZ)"
  python3 "$root/scripts/gpu_report.py" assemble "$raw" "$out" || [ "$code" -ne 0 ] || code=1
  tar -czf "$out/raw.tar.gz" -C "$out" raw && rm -rf "$raw"
  exit "$code"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

clocks() {
  nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw --format=csv,noheader,nounits 2>/dev/null |
    head -n 1 || true
}
log gpu "$gpu"
log sm "$(gpu_sm || echo unknown)"
log driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)"
log memory "$(nvidia-smi --query-gpu=memory.total --format=csv,noheader 2>/dev/null | head -n 1 || true)"
log host "$(uname -sr), $(nproc) cores"
log command "gpu_check.sh --minutes $minutes"
log started "$(date -u +%FT%TZ)"

if [ -n "$bundle" ]; then
  bin=$bundle/bin
  log programs "$bundle"
  if [ -f "$bundle/MANIFEST.json" ]; then cp "$bundle/MANIFEST.json" "$raw"; fi
else
  set_up
  bin=$root/build/cuda/bin
  log programs "build/cuda, built here"
fi
log commit "$(git -C "$root" describe --always --dirty 2>/dev/null || true)"

# part NAME SECONDS COMMAND...: runs it for at most that long, its output in raw/NAME.log, its outcome in parts.tsv.
running="" child="" part_start=0 deadline=0
part() {
  local name=$1 limit=$2 left code=0 status=passed
  shift 2
  left=$((deadline - SECONDS))
  if [ "$left" -lt 3 ]; then record "$name" "no time left" 0 "$*"; return 0; fi
  [ "$limit" -le "$left" ] || limit=$left
  running=$name part_start=$SECONDS
  # In the background, since a signal must not wait for it: bash handles one as soon as `wait` sees it. The outer
  # redirection is for what this shell says of a program that dies.
  {
    timeout --kill-after=3 "$limit" "$@" >"$raw/$name.log" 2>&1 &
    child=$!
    wait "$child" || code=$?
    child=""
  } 2>>"$raw/$name.log"
  case $code in
    0) ;;
    124 | 137) status="timed out" ;;
    *) status=failed ;;
  esac
  record "$name" "$status" "$((SECONDS - part_start))" "$*"
  running=""
  printf '%-32s %s (%d s)\n' "$name" "$status" $((SECONDS - part_start))
}
skip() { # skip NAME WHY
  record "$1" skipped 0 "$2"
  printf '%-32s skipped: %s\n' "$1" "$2"
}

if [ -z "$bundle" ]; then
  say "Building the cuda preset for $gpu"
  find_nvcc || true
  lacks=$(cuda_build_lacks)
  deadline=$((SECONDS + 7200))
  if [ -n "$lacks" ]; then
    record build failed 0 "this machine lacks $lacks"
    fail 1 "gpu_check.sh: to build, this machine lacks $lacks; a bundle (--bundle) needs none of it"
  fi
  build() {
    configure cuda -DATHANOR_CUDA_ARCHITECTURES="$(gpu_architecture)" -DCUDNN_ROOT="$(cudnn_root)" &&
      cmake --build --preset cuda
  }
  export -f build configure gpu_architecture gpu_sm cudnn_root cuda_folders nvidia_wheels folders_once
  part build 7200 bash -c 'set -euo pipefail; build'
  tail -n 1 "$raw/parts.tsv" | grep -q passed || fail 1 "gpu_check.sh: the cuda preset does not build: $(tail -n 3 "$raw/build.log")"
fi

# A program without code for this GPU would only fail in its first kernel.
architectures=$(sed -n 's/.*"architectures": *"\([^"]*\)".*/\1/p' "$raw/MANIFEST.json" 2>/dev/null || true)
if [ -n "$architectures" ] && sm=$(gpu_sm) && ! has_code_for "$architectures" "$sm"; then
  record architectures failed 0 "the bundle has code for $architectures, but this GPU is sm_$sm"
  fail 1 "gpu_check.sh: the bundle has code for $architectures, but this GPU is sm_$sm: pack one with gpu_bundle.sh --arch $(gpu_architecture)"
fi

use_bundle "${bundle:-$root/build/cuda}"
export ATHANOR_PLANS_DIR=$raw/plans # where a test writes down the properties of the device
export ATHANOR_RUNS_DIR=none # the report has what counts
python3 "$root/scripts/gpu_report.py" versions >>"$raw/meta.tsv"

total=$(awk -v m="$minutes" 'BEGIN { printf "%d", 60 * m }')
deadline=$((SECONDS + total))
share() { echo $(((total * $1 + 99) / 100)); } # share PERCENT: of the time, in seconds
log clocks_before "$(clocks)"
say "$gpu: at most $total s"

train() { # train NAME LIMIT PROGRAM ARGUMENTS...
  local name=$1 limit=$2 program=$3
  shift 3
  part "$name" "$limit" "$bin/$program" --device cuda --metrics "$raw/$name.jsonl" --data-dir "$data" "$@"
}
bench() { # bench NAME LIMIT-IN-PERCENT REGEX
  part "bench_$1" "$(share "$2")" "$bin/bench_cuda" "--benchmark_filter=$3" "--benchmark_out=$raw/bench_$1.json" \
    --benchmark_out_format=json
}

# 1. Does anything run at all?
train train_digits_f32 "$(share 12)" train_digits --precision f32

# 2. The tests, a process per family: to start one costs more than most of its tests. One that hangs or dies takes
# nobody with it.
tests_end=$((SECONDS + $(share 40)))
found=""
for program in "$bin"/cuda_*_test; do
  name=$(basename "$program")
  [ -x "$program" ] || continue
  case $name in
    cuda_plans_test) continue ;;      # needs no GPU, and is long
    cuda_staged_mpi_test) continue ;; # below: several processes
  esac
  found=yes
  left=$((tests_end - SECONDS))
  if [ $left -lt 3 ]; then record "$name" "no time left" 0 "$program"; continue; fi
  part "$name" $((left < 90 ? left : 90)) "$program" --gtest_brief=1 "--gtest_output=json:$raw/$name.json"
done
[ -n "$found" ] || record tests failed 0 "no cuda_*_test in $bin"
# Processes that share the GPU, over pinned memory and MPI. (Threads that do are in cuda_collective_test and
# cuda_data_parallel_test, and NCCL with one rank in cuda_nccl_test and cuda_nccl_training_test.)
if [ -x "$bin/cuda_staged_mpi_test" ]; then
  mpirun=$(command -v mpirun.openmpi || command -v mpirun) || mpirun=""
  mapfile -t settings < <(grep -v '^#' "$root/scripts/open_mpi.env")
  for ranks in 2 4; do
    if [ -z "$mpirun" ]; then skip "staged_mpi_$ranks" "mpirun is not installed here"; continue; fi
    part "staged_mpi_$ranks" "$(share 5)" env "${settings[@]}" \
      "$mpirun" -n "$ranks" "$bin/cuda_staged_mpi_test" --gtest_brief=1
  done
fi

# 3. Kernels bound by memory.
bench elementwise 6 '^(relu|gelu|add|add_row)/'
bench norm 10 '^(batch|layer)_norm'
bench softmax 5 '^(log_)?softmax/'
bench loss 5 '^cross_entropy/'
bench update 5 '^(sgd_nesterov|adamw|measure_gradients)/'
bench reduce 5 '^sum_'
bench copy 6 '^(copy|cast_.*|transpose|nhwc_to_nchw|nchw_to_nhwc|add_into)/'
bench pool 5 '_pool_'
bench random 5 '^(dropout|augment_.*|normalise)/'

# 4. Trainings.
if [ ! -d "$data/cifar10" ]; then
  python3 "$root/scripts/gpu_report.py" make-cifar "$raw/made-up/cifar10"
  log cifar10 "made up: patterns under noise"
  cifar=(--data-dir "$raw/made-up")
else
  log cifar10 "$data/cifar10"
  cifar=()
fi
for precision in bf16 tf32 f32; do
  if [ "$precision" = bf16 ] && [ "$(gpu_sm || echo 0)" -lt 80 ]; then
    skip train_cifar10_bf16 "bf16 needs compute capability 8.0"
    continue
  fi
  train "train_cifar10_$precision" "$(share 10)" train_cifar10 --model resnet20 --max-steps 300 --precision $precision \
    "${cifar[@]}"
done
rm -rf "$raw/made-up"
if [ -d "$data/mnist" ]; then
  train train_mnist_f32 "$(share 8)" train_mnist --epochs 1 --precision f32
else
  skip train_mnist_f32 "no data in $data/mnist"
fi

# 5. Products and convolutions, ours and the vendor's.
bench matmul 12 '^matmul/'
bench conv 20 '^conv2d/'

# 6. compute-sanitizer, which makes kernels 10 to 100 times slower: over the first few tests of families that run our
# own kernels alone.
sanitizer=$(command -v compute-sanitizer) ||
  sanitizer=$(cuda_folders | while read -r folder; do
    for file in "$folder"/bin/compute-sanitizer "$folder"/compute-sanitizer/compute-sanitizer; do
      if [ -x "$file" ]; then echo "$file"; fi
    done
  done | head -n 1)
for tool in memcheck racecheck synccheck initcheck; do
  if [ -z "$sanitizer" ]; then skip "sanitizer_$tool" "compute-sanitizer is not installed here"; continue; fi
  for family in elementwise reduce softmax batch_norm loss update copy pool; do
    program=$bin/cuda_${family}_test
    [ -x "$program" ] || continue
    filter=$(timeout --kill-after=3 30 "$program" --gtest_list_tests 2>/dev/null |
      awk '/^[^ ]/ { suite = $1 } /^ / && ++count <= 3 { printf "%s%s%s", (count > 1 ? ":" : ""), suite, $1 }') ||
      { record "sanitizer_${tool}_$family" failed 0 "cuda_${family}_test does not list its tests"; continue; }
    part "sanitizer_${tool}_$family" "$(share 5)" "$sanitizer" --tool "$tool" --error-exitcode 99 \
      "$program" --gtest_brief=1 "--gtest_filter=$filter"
  done
done
