#!/usr/bin/env bash
# On a machine with a GPU: is it right, how fast is a step of training, and what limits it? One report in DIR:
# report.md and report.json (raw.tar.gz: what they were made of; cache/: the plans that were measured).
#   scripts/gpu_check.sh [--bundle DIR] [--out DIR] [--minutes N] [--data-dir DIR] [--cache DIR]
#   --bundle DIR    takes the programs in DIR/bin (an unpacked bundle of scripts/gpu_bundle.sh, or a build tree) instead
#                   of building the cuda preset for this GPU; a bundle's own copy of this script does so by itself
#   --out DIR       where the report goes [gpu-report]
#   --minutes N     how long the checks may take, the build not counted; the most important come first [10]
#   --data-dir DIR  holds mnist/ and cifar10/ [$ATHANOR_DATA_DIR, else data-cache]; CIFAR-10 is made up where it is missing
#   --cache DIR     begins with the plans of an earlier report (its cache/); those in --out and in a bundle are found
# Ends with 0 when all is green, 1 when something is not, 2 on wrong arguments, 3 without a GPU.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() { sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

bundle="" out=gpu-report minutes=10 data=${ATHANOR_DATA_DIR:-data-cache} cache=""
[ ! -f "$root/MANIFEST.json" ] || bundle=$root
while [ $# -gt 0 ]; do
  case $1 in
    --bundle | --out | --minutes | --data-dir | --cache)
      [ $# -ge 2 ] || fail 2 "gpu_check.sh: $1 must be followed by a value"
      case $1 in --bundle) bundle=$2 ;; --out) out=$2 ;; --minutes) minutes=$2 ;; --data-dir) data=$2 ;; --cache) cache=$2 ;; esac
      shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) fail 2 "gpu_check.sh: must be --bundle, --out, --minutes, --data-dir or --cache, but got '$1'" ;;
  esac
done
[[ $minutes =~ ^[0-9]+([.][0-9]+)?$ ]] || fail 2 "gpu_check.sh: --minutes must be a number, but got '$minutes'"
[ -z "$bundle" ] || [ -d "$bundle/bin" ] || fail 2 "gpu_check.sh: --bundle must be a folder with bin/, but $bundle is not"
[ -z "$cache" ] || [ -d "$cache" ] || fail 2 "gpu_check.sh: --cache must be a folder, but $cache is not"
command -v python3 >/dev/null || fail 2 "gpu_check.sh: python3 is needed for the report"
gpu=$(gpu_name) || fail 3 "gpu_check.sh: no NVIDIA GPU here, so there is nothing to check"

[ -z "$bundle" ] || bundle=$(realpath "$bundle")
data=$(realpath -m "$data") out=$(realpath -m "$out")
raw=$out/raw
rm -rf "$raw"
mkdir -p "$raw" "$out/cache"
# What was measured in an earlier visit. Plans of another device or driver have other names, and do no harm.
for earlier in "$cache" "${bundle:+$bundle/cache}"; do
  [ -z "$earlier" ] || [ ! -d "$earlier" ] || [ "$(realpath "$earlier")" = "$out/cache" ] || cp -rn "$earlier/." "$out/cache"
done
export XDG_CACHE_HOME=$out/cache
log() { printf '%s\t%s\n' "$1" "$2" >>"$raw/meta.tsv"; }
record() { # record NAME STATUS SECONDS WHAT [BEGAN ENDED]
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "${5-}" "${6-}" >>"$raw/parts.tsv"
}

# The report is written in any case, of what there is by then.
finish() {
  local code=$?
  trap - EXIT
  trap '' INT TERM
  if [ -n "${child-}" ]; then # timeout hands the signal on, and kills what does not heed it
    kill -TERM "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  [ -z "${sampler-}" ] || kill "$sampler" 2>/dev/null || true
  [ -z "${running-}" ] || record "$running" "timed out" "$((SECONDS - part_start))" "the check was ended from outside"
  case $code in
    0) ;;
    130 | 143) record gpu_check.sh "timed out" "$SECONDS" "ended by a signal" ;;
    *) record gpu_check.sh failed "$SECONDS" "code $code" ;;
  esac
  log clocks_after "$(clocks)"
  log plans_after "$(plan_files)"
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
plan_files() { find "$out/cache" -name '*.json' | wc -l; }
log gpu "$gpu"
log sm "$(gpu_sm || echo unknown)"
log driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)"
log memory "$(nvidia-smi --query-gpu=memory.total --format=csv,noheader 2>/dev/null | head -n 1 || true)"
log host "$(uname -sr), $(nproc) cores"
log command "gpu_check.sh --minutes $minutes"
log plans_before "$(plan_files)"
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
  local name=$1 limit=$2 left code=0 status=passed began=$EPOCHREALTIME
  shift 2
  left=$((deadline - SECONDS))
  [ "$limit" -le "$left" ] || limit=$left
  if [ "$limit" -lt 3 ]; then record "$name" "no time left" 0 "$*"; return 0; fi
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
  record "$name" "$status" "$((SECONDS - part_start))" "$*" "$began" "$EPOCHREALTIME"
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

libraries_before=${LD_LIBRARY_PATH-} # PyTorch brings its own
use_bundle "${bundle:-$root/build/cuda}"
export ATHANOR_PLANS_DIR=$raw/plans # where a test writes down the properties of the device
export ATHANOR_RUNS_DIR=none # the report has what counts
python3 "$root/scripts/gpu_report.py" versions >>"$raw/meta.tsv"

total=$(awk -v m="$minutes" 'BEGIN { printf "%d", 60 * m }')
checks_start=$SECONDS
deadline=$((SECONDS + total))
share() { echo $(((total * $1 + 99) / 100)); } # share PERCENT: of the time, in seconds
# seconds_to PERCENT: the seconds until so much of the time is over. What is done early leaves its time to the next.
seconds_to() { echo $((checks_start + (total * $1 + 99) / 100 - SECONDS)); }
log clocks_before "$(clocks)"
say "$gpu: at most $total s"

# Clocks, power, and what limits the clocks, each second until the end: the report gives each part its own.
sample_clocks() {
  local fields="clocks.sm,clocks.mem,temperature.gpu,power.draw" reasons line
  for reasons in clocks_event_reasons.active clocks_throttle_reasons.active; do
    if nvidia-smi --query-gpu="$reasons" --format=csv,noheader >/dev/null 2>&1; then fields=$fields,$reasons && break; fi
  done
  while line=$(nvidia-smi --query-gpu="$fields" --format=csv,noheader,nounits 2>/dev/null | head -n 1); do
    printf '%s\t%s\n' "$EPOCHREALTIME" "$line"
    sleep 1
  done
}
sample_clocks >"$raw/clocks.tsv" 2>/dev/null &
sampler=$!

train() { # train NAME LIMIT PROGRAM ARGUMENTS...
  local name=$1 limit=$2 program=$3
  shift 3
  part "$name" "$limit" "$bin/$program" --device cuda --metrics "$raw/$name.jsonl" --data-dir "$data" "$@"
}
bench() { # bench NAME SECONDS REGEX [OPTION...]
  local name=bench_$1 limit=$2 rows=$3
  shift 3
  part "$name" "$limit" "$bin/bench_cuda" "$@" "--benchmark_filter=$rows" "--benchmark_out=$raw/$name.json" \
    --benchmark_out_format=json
}
step() { # step NAME SECONDS ARGUMENTS...
  local name=$1 limit=$2
  shift 2
  if [ ! -x "$bin/bench_step" ]; then skip "$name" "no bench_step in $bin"; return 0; fi
  part "$name" "$limit" "$bin/bench_step" --json "$raw/$name.json" "$@"
}
# Suites of the tests, and the program that has each. Those of parameters are listed as Name/Suite.
declare -A program_of=()
suites=()
list_suites() {
  local program name line
  for program in "$bin"/{cuda_test,cuda_*_test}; do
    name=$(basename "$program")
    case $name in
      cuda_plans_test) continue ;;      # needs no GPU, and is long
      cuda_no_device_test) continue ;;  # must not see one
      cuda_staged_mpi_test) continue ;; # below: several processes
    esac
    [ -x "$program" ] || continue
    timeout --kill-after=3 60 "$program" --gtest_list_tests >"$raw/$name.list" 2>"$raw/$name.log" ||
      { record "$name" failed 0 "$name does not list its tests"; continue; }
    while read -r line; do
      line=${line%%.*} line=${line##*/}
      [ -z "${program_of[$line]-}" ] || continue
      program_of[$line]=$program
      suites+=("$line")
    done < <(grep -E '^[^ ]+[.]( |$)' "$raw/$name.list")
  done
}
list_suites
declare -A tests_run=()
run_tests() { # run_tests PERCENT-OF-THE-TIME SUITE...: a process per suite. One that hangs or dies takes no other along.
  local end=$1 suite left
  shift
  for suite in "$@"; do
    if [ -z "${program_of[$suite]-}" ] || [ -n "${tests_run[$suite]-}" ]; then continue; fi
    tests_run[$suite]=yes
    left=$(seconds_to "$end")
    if [ "$left" -lt 3 ]; then record "test_$suite" "no time left" 0 "${program_of[$suite]}"; continue; fi
    part "test_$suite" $((left < 90 ? left : 90)) "${program_of[$suite]}" --gtest_brief=1 "--gtest_filter=$suite.*:*/$suite.*" \
      "--gtest_output=json:$raw/test_$suite.json"
  done
}

# 1. Does anything run at all, and by the vendor's kernels?
smoke=$(share 12)
[ "$smoke" -ge 20 ] || smoke=20 # even in a short time
train train_digits_f32 "$smoke" train_digits --precision f32
step step_smoke "$smoke" --require-vendor --graph off --steps 5 resnet20:128:f16

# 2. Tests of what a step of training consists of.
run_tests 15 ConvOnGpu MatmulOnGpu OnGpu ConvOnDevice MatmulOnDevice ColumnSumsOnDevice CpAsyncGemmOnDevice WgmmaGemmOnDevice MatmulImpls \
  BatchNormOnDevice LayerNormOnDevice UpdateOnDevice UpdateStepOnDevice TrainingOnDevice StepGraphsOnDevice PlanChoice LossOnDevice PoolOnDevice

# 3. Steps: the networks one by one, so that one that fails costs no other its time.
step step_resnet50 "$(seconds_to 25)" --require-vendor resnet50:256:f16
step step_resnet18_cifar "$(seconds_to 30)" --require-vendor resnet18_cifar:512:f16
step step_cifarnet "$(seconds_to 35)" --require-vendor cifarnet:2000:f16:muon

# 4. Every plan against the one that is chosen.
step step_plans "$(seconds_to 45)" --plans 100 resnet50:256:f16

# 5. The same networks in PyTorch.
if torch=$(LD_LIBRARY_PATH=$libraries_before python_with_torch); then
  part torch_steps "$(seconds_to 65)" env "LD_LIBRARY_PATH=$libraries_before" "$torch" "$root/bench/peers/pytorch/gpu_step.py" --seconds "$(seconds_to 64)" \
    --json "$raw/torch_steps.jsonl" resnet50:256:f16 resnet18_cifar:512:f16 cifarnet:2000:f16
else
  skip torch_steps "no Python here has PyTorch with CUDA"
fi

# 6. Kernels bound by memory, and a copy of the same size: what most steps use first.
memory_rows='^(batch_norm.*|layer_norm|relu|gelu|add|cross_entropy|softmax|.*_pool_.*|sum_.*|dropout)/[a-z]*/f16/|^(copy|add_into|cast_.*|sgd_nesterov|adamw)/'
bench memory "$(seconds_to 75)" "$memory_rows" --mib=256

# 7. What memory moves, by the counters of the GPU, in the launches that take longest.
if ncu=$(find_cuda_tool ncu nsight-compute); then
  for kernel in $(python3 "$root/scripts/gpu_report.py" heaviest "$raw/step_resnet50.json" 5); do
    step_of=(--json "$raw/ncu_$kernel.json" --graph off --steps 1 --timed-steps 1 --profile-launch "$kernel" resnet50:256:f16)
    part "ncu_$kernel" "$(seconds_to 85)" "$ncu" --profile-from-start off --csv --print-units base --log-file "$raw/ncu_$kernel.csv" \
      --metrics dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum "$bin/bench_step" "${step_of[@]}"
  done
else
  skip ncu "ncu is not installed here"
fi

# 8. compute-sanitizer, which makes kernels 10 to 100 times slower: memcheck of products by tensor cores.
sanitizer=$(find_cuda_tool compute-sanitizer compute-sanitizer) || sanitizer=""
sanitize() { # sanitize TOOL SUITE SECONDS [TEST...]: these tests of the suite; where none is named, its first few
  local tool=$1 suite=$2 limit=$3 program=${program_of[$2]-} filter
  [ -n "$program" ] || return 0
  shift 3
  if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046
    set -- $(awk -v suite="$suite." '/^[^ ]/ { mine = $1 == suite } /^ / && mine && ++count <= 3 { print $1 }' "$raw/$(basename "$program").list")
  fi
  filter=$(printf ":$suite.%s" "$@")
  part "sanitizer_${tool}_$suite" "$limit" "$sanitizer" --tool "$tool" --error-exitcode 99 \
    "$program" --gtest_brief=1 "--gtest_filter=${filter#:}"
}
if [ -n "$sanitizer" ]; then
  sanitize memcheck CpAsyncGemmOnDevice "$(seconds_to 88)" '*LargeTiles*'
  sanitize memcheck WgmmaGemmOnDevice "$(seconds_to 89)" '*TilesOf256*'
  sanitize memcheck MatmulOnDevice "$(seconds_to 91)" '*LargeTiles*' '*HalfFactors*' '*Misaligned*'
  sanitize memcheck ConvOnDevice "$(seconds_to 97)" '*LargeTiles*' '*InF16'
fi

# What follows runs in the time that is left, or in a longer one.

# 9. The other tests.
left=$(seconds_to 100)
run_tests $((100 - 60 * left / total)) "${suites[@]}"
[ ${#suites[@]} -gt 0 ] || record tests failed 0 "no tests in $bin/cuda_test"
# Processes that share the GPU, over pinned memory and MPI. (Threads that do are in StagedCollectives and StagedTraining, and NCCL
# with one rank in cuda_nccl_test.)
if [ -x "$bin/cuda_staged_mpi_test" ]; then
  mpirun=$(command -v mpirun.openmpi || command -v mpirun) || mpirun=""
  mapfile -t settings < <(grep -v '^#' "$root/scripts/open_mpi.env")
  for ranks in 2 4; do
    if [ -z "$mpirun" ]; then skip "staged_mpi_$ranks" "mpirun is not installed here"; continue; fi
    part "staged_mpi_$ranks" "$(share 5)" env "${settings[@]}" \
      "$mpirun" -n "$ranks" "$bin/cuda_staged_mpi_test" --gtest_brief=1
  done
fi

# 10. Trainings.
if [ ! -d "$data/cifar10" ]; then
  python3 "$root/scripts/gpu_report.py" make-cifar "$raw/made-up/cifar10"
  log cifar10 "made up: patterns under noise"
  cifar=(--data-dir "$raw/made-up")
else
  log cifar10 "$data/cifar10"
  cifar=()
fi
for precision in f16 bf16 tf32 f32; do
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

# 11. All rows of bench_cuda, kernels bound by memory first.
bench elementwise "$(share 6)" '^(relu|gelu|add|add_row)/' --mib=256
bench norm "$(share 10)" '^(batch|layer)_norm' --mib=256
bench softmax "$(share 5)" '^(log_)?softmax/' --mib=256
bench loss "$(share 5)" '^cross_entropy/' --mib=256
bench update "$(share 5)" '^(sgd_nesterov|adamw|measure_gradients)/' --mib=256
bench reduce "$(share 5)" '^sum_' --mib=256
bench copy "$(share 6)" '^(copy|cast_.*|transpose|nhwc_to_nchw|nchw_to_nhwc|add_into)/' --mib=256
bench pool "$(share 5)" '_pool_' --mib=256
bench random "$(share 5)" '^(dropout|augment_.*|normalise)/' --mib=256
bench matmul "$(share 12)" '^matmul/'
bench conv "$(share 20)" '^conv2d/'

# 12. The other tools of compute-sanitizer, over the first few tests of suites that run our own kernels alone.
for tool in memcheck racecheck synccheck initcheck; do
  if [ -z "$sanitizer" ]; then skip "sanitizer_$tool" "compute-sanitizer is not installed here"; continue; fi
  for suite in Elementwise Reduce Softmax BatchNorm Loss Update Copy Pool; do
    sanitize "$tool" "${suite}OnDevice" "$(share 5)"
  done
done
