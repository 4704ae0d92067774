#!/usr/bin/env bash
# Checks and measures a machine with a GPU: are the results right, how fast is a step of training, what limits it, and which
# choices follow? Writes four files to DIR: report.md and report.json, raw.tar.gz (what they were made of) and cache.tar.gz
# (the plans that were measured, and what was done: where a second visit begins). With 15 minutes, --bundle and --seconds 780.
#   scripts/gpu_visit.sh [--bundle FILE|DIR] [--out DIR] [--seconds N] [--data-dir DIR] [--cache FILE|DIR]
#   --bundle FILE|DIR  takes the programs of a bundle of scripts/gpu_bundle.sh, packed or not, or of a build folder. Without it
#                      the cuda preset is built for this GPU, which may take longer than the visit; a bundle's own copy of this
#                      script needs no flag
#   --out DIR          where the report goes; an earlier one there is replaced [gpu-report]
#   --seconds N        how long all of it may take after a build; the most important parts come first [480]
#   --data-dir DIR     holds mnist/ and cifar10/ [$ATHANOR_DATA_DIR, else data-cache]; CIFAR-10 is made up where it is missing
#   --cache FILE|DIR   a second visit: begins with the plans of an earlier one (its gpu-report/cache.tar.gz, which may be in
#                      --out), measures every plan, and then does what the earlier one left out
# Nothing is installed, downloaded or set on the GPU. Ends with 0 if all checks pass, 1 if one does not, 2 on wrong arguments,
# 3 without a GPU. Except on wrong arguments there is a report, also after a signal.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
SECONDS=0

# What is done, in this order: a row is a part. It takes at most `cap` seconds, and ends by `by`, in seconds of 480 and in
# proportion of another time; what ends early leaves its time to the next. At `again`, what had no time gets what is left,
# and after it comes what a first visit may not reach. To measure one thing more, add a row: a name that begins as its kind
# wants it (step_, train_, bench_ ...), and the words of its kind, which is a function below.
table() {
  cat <<'END'
step_smoke                   60  60 step --require-vendor --graph off --steps 5 resnet20:128:f16
train_digits_f32             40  75 train train_digits --precision f32
versions                     20  90 versions
test                         25 115 suites WgmmaGemmOnDevice ConvOnGpu CpAsyncGemmOnDevice ConvOnDevice BatchNormOnDevice TrainingOnDevice StepGraphsOnDevice MatmulOnGpu MatmulOnDevice LossOnDevice PoolOnDevice UpdateOnDevice UpdateStepOnDevice LayerNormOnDevice OnGpu
step_resnet50               110 220 step --require-vendor resnet50:256:f16
step_cifarnet                45 248 step --require-vendor cifarnet:2000:f16:muon
step_resnet18_cifar          45 270 step --require-vendor resnet18_cifar:512:f16
torch_steps                  60 320 torch eager,graph,half
torch_compile                60 350 torch compile,reduced
bench_memory                 60 410 bench --mib=256 ^(batch_norm.*|layer_norm|relu|gelu|add|cross_entropy|softmax|.*_pool_.*|sum_.*|dropout|augment_.*)/[a-z]*/f16/|^(copy|add_into|cast_.*|sgd_nesterov|adamw)/
sanitizer_memcheck_WgmmaGemmOnDevice 40 450 sanitize *TilesOf256* *NeedNotBeMultiples*
ncu_1                        15 465 counters 1
ncu_2                        15 480 counters 2
again
step_plans                  120 480 step --plans 100 resnet50:256:f16
step_resnet50_without_fusion 60 480 step --fused off --graph off resnet50:256:f16
step_cifarnet_without_fusion 30 480 step --fused off --graph off cifarnet:2000:f16:muon
step_resnet50_bf16           90 480 step --require-vendor --graph off resnet50:256:bf16
step_resnet50_augment        30 480 step --graph off resnet50:256:f16:sgd:augment
step_cifarnet_augment        30 480 step --graph off cifarnet:2000:f16:muon:augment
bench_matmul                 60 480 bench ^matmul/.*/f16/
bench_conv                   90 480 bench ^conv2d/.*/f16/
rest                         25 480 suites
staged_mpi_2                 30 480 staged_mpi 2
staged_mpi_4                 30 480 staged_mpi 4
train_cifar10_f16            48 480 train train_cifar10 --model resnet20 --max-steps 300 --precision f16
train_cifar10_bf16           48 480 train train_cifar10 --model resnet20 --max-steps 300 --precision bf16
train_cifar10_tf32           48 480 train train_cifar10 --model resnet20 --max-steps 300 --precision tf32
train_cifar10_f32            48 480 train train_cifar10 --model resnet20 --max-steps 300 --precision f32
train_mnist_f32              40 480 train train_mnist --epochs 1 --precision f32
sanitizer_memcheck_CpAsyncGemmOnDevice 25 480 sanitize *LargeTiles*
sanitizer_memcheck_MatmulOnDevice 25 480 sanitize *LargeTiles* *HalfFactors* *Misaligned*
sanitizer_memcheck_ConvOnDevice 30 480 sanitize *LargeTiles* *InF16
bench_elementwise            30 480 bench --mib=256 ^(relu|gelu|add|add_row)/
bench_norm                   45 480 bench --mib=256 ^(batch|layer)_norm
bench_softmax                25 480 bench --mib=256 ^(log_)?softmax/
bench_loss                   25 480 bench --mib=256 ^cross_entropy/
bench_update                 25 480 bench --mib=256 ^(sgd_nesterov|adamw|measure_gradients)/
bench_reduce                 25 480 bench --mib=256 ^sum_
bench_copy                   30 480 bench --mib=256 ^(copy|cast_.*|transpose|nhwc_to_nchw|nchw_to_nhwc|add_into)/
bench_pool                   25 480 bench --mib=256 _pool_
bench_random                 25 480 bench --mib=256 ^(dropout|augment_.*|normalise)/
bench_products               60 480 bench ^matmul/
bench_convolutions           95 480 bench ^conv2d/
sanitizer                    25 480 sanitizers memcheck racecheck synccheck initcheck
END
}
always="step_smoke versions" # also in a second visit, which then has
second="step_plans"          # first of all

usage() { sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

bundle="" out=gpu-report seconds=480 data=${ATHANOR_DATA_DIR:-data-cache} cache=""
[ ! -f "$root/MANIFEST.json" ] || bundle=$root
while [ $# -gt 0 ]; do
  case $1 in
    --bundle | --out | --seconds | --data-dir | --cache)
      [ $# -ge 2 ] || fail 2 "gpu_visit.sh: $1 must be followed by a value"
      case $1 in --bundle) bundle=$2 ;; --out) out=$2 ;; --seconds) seconds=$2 ;; --data-dir) data=$2 ;; --cache) cache=$2 ;; esac
      shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) fail 2 "gpu_visit.sh: must be --bundle, --out, --seconds, --data-dir or --cache, but got '$1'" ;;
  esac
done
[[ $seconds =~ ^[1-9][0-9]*$ ]] || fail 2 "gpu_visit.sh: --seconds must be a number of seconds, but got '$seconds'"
[ -z "$bundle" ] || [ -f "$bundle" ] || [ -d "$bundle/bin" ] ||
  fail 2 "gpu_visit.sh: --bundle must be an archive, or a folder with bin/, but $bundle is not"
[ -z "$cache" ] || [ -e "$cache" ] || fail 2 "gpu_visit.sh: --cache must be a cache.tar.gz or a folder, but there is no $cache"
command -v python3 >/dev/null || fail 2 "gpu_visit.sh: python3 is needed for the report"

[ ! -d "$bundle" ] || bundle=$(realpath "$bundle")
data=$(realpath -m "$data") out=$(realpath -m "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
raw=$work/raw plans=$work/cache
mkdir -p "$raw" "$plans/visit" # visit/: by which a cache is known, even one without plans

unpack() { tar -xf "$1" -C "$2" 2>/dev/null || python3 -m tarfile -e "$1" "$2"; }
export -f unpack
# Before an earlier report goes: its cache may be this one.
if [ -n "$cache" ]; then
  earlier=$cache
  if [ -f "$cache" ]; then
    earlier=$work/earlier/cache
    mkdir "$work/earlier"
    timeout --kill-after=1 20 bash -c 'unpack "$1" "$2"' - "$cache" "$work/earlier" >/dev/null 2>&1 || rm -rf "$earlier"
  fi
  [ -d "$earlier/athanor/plans" ] || [ -d "$earlier/visit" ] ||
    fail 2 "gpu_visit.sh: --cache must be what a visit left as cache.tar.gz, or its folder cache/, but $cache is neither"
  timeout --kill-after=1 20 cp -r "$earlier/." "$plans" || fail 2 "gpu_visit.sh: --cache: $cache cannot be copied to $work"
fi
mkdir -p "$out"
rm -f "$out"/{report.md,report.json,raw.tar.gz,cache.tar.gz}
reserve=$((seconds < 60 ? 3 : 12)) # for the report at the end, and a part that does not die
end=$((seconds - reserve))
log() { printf '%s\t%s\n' "$1" "$2" >>"$raw/meta.tsv"; }
record() { # record NAME STATUS SECONDS WHAT [BEGAN ENDED]
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4//[$'\t\n']/ }" "${5-}" "${6-}" >>"$raw/parts.tsv"
}

# ---- the four files ---------------------------------------------------------------------------------------------------

# Of what there is by then: at the end, and now and then before it, since a machine may be taken away without a signal.
saved=0
save() {
  local code=0
  saved=$SECONDS
  timeout --kill-after=1 20 python3 "$root/scripts/gpu_report.py" assemble "$raw" "$out" "$plans" || code=$?
  for folder in raw cache; do
    timeout --kill-after=1 20 tar -czf "$out/$folder.tar.gz.part" -C "$work" "$folder" &&
      mv "$out/$folder.tar.gz.part" "$out/$folder.tar.gz" || code=1
  done
  return $code
}
# ended PID SECONDS: whether a child ends by itself within that time. One that waits for a GPU may survive any signal.
ended() {
  local until=$((SECONDS + $2))
  while kill -0 "$1" 2>/dev/null; do
    [ "$SECONDS" -lt "$until" ] || return 1
    sleep 0.1
  done
}
finish() {
  local code=$?
  trap - EXIT
  trap '' INT TERM HUP
  if [ -n "${child-}" ]; then # timeout hands the signal on, and kills what does not heed it
    kill -TERM "$child" 2>/dev/null || true
    ended "$child" 5 || true
  fi
  for background in "${sampler-}" "${reader-}"; do
    [ -z "$background" ] || kill "$background" 2>/dev/null || true
  done
  [ -z "${running-}" ] || record "$running" "timed out" "$((SECONDS - part_start))" "the part was ended from outside"
  case $code in
    0) ;;
    130 | 143) record gpu_visit.sh "timed out" "$SECONDS" "ended by a signal" ;;
    *) record gpu_visit.sh failed "$SECONDS" "${why_not:-code $code}" ;;
  esac
  log plans_after "$(plan_files)"
  [ -z "${gpu-}" ] || log clocks_after "$(timeout 5 bash -c "source '$root/scripts/gpu_env.sh'; gpu_clocks" || true)"
  log seconds_taken "$SECONDS"
  log ended "$(date -u +%FT%TZ)"
  save || [ "$code" -ne 0 ] || code=1
  rm -rf "$work"
  exit "$code"
}
trap finish EXIT
trap 'exit 143' TERM HUP
trap 'exit 130' INT
give_up() { # give_up CODE WHY
  why_not=$2
  printf 'gpu_visit.sh: %s\n' "$2" >&2
  exit "$1"
}
plan_files() { find "$plans" -name '*.json' 2>/dev/null | wc -l; }

# ---- parts ------------------------------------------------------------------------------------------------------------

# part NAME SECONDS COMMAND...: runs it for at most that long, its output in raw/NAME.log, its outcome in parts.tsv. One that
# ends with 77 could not run here: the last line of its output says why.
running="" child="" part_start=0 code=0 status=""
part() {
  local name=$1 limit=$2 began=$EPOCHREALTIME what
  shift 2
  what="$*" status=passed
  code=0 running=$name part_start=$SECONDS
  # In the background, since a signal must not wait for it: bash handles one between its own commands. The outer
  # redirection is for what this shell says of a program that dies.
  {
    timeout --kill-after=3 "$limit" "$@" >"$raw/$name.log" 2>&1 </dev/null &
    child=$!
    if ended "$child" $((limit + 5)); then wait "$child" || code=$?; else code=124 what="it cannot be killed: $what"; fi
    child=""
  } 2>>"$raw/$name.log"
  case $code in
    0) ;;
    77) status=skipped what=$(awk 'NF { last = $0 } END { print last }' "$raw/$name.log") ;;
    124 | 137) status="timed out" ;;
    *) status=failed ;;
  esac
  record "$name" "$status" "$((SECONDS - part_start))" "$what" "$began" "$EPOCHREALTIME"
  running=""
  printf '%4d s  %-38s %s (%d s)\n' "$SECONDS" "$name" "$status" $((SECONDS - part_start))
}
skip() { # skip NAME WHY
  status=skipped
  record "$1" skipped 0 "$2"
  printf '%4d s  %-38s skipped: %s\n' "$SECONDS" "$1" "$2"
}
# In a shell of its own, so that all of it is within a part's time.
with_environment() { part "$1" "$2" bash -c "set -euo pipefail; source '$root/scripts/gpu_env.sh'; $3" gpu_visit.sh "${@:4}"; }

# Kinds of parts. $key, $limit: the name and the seconds of the row.
step() {
  if [ ! -x "$bin/bench_step" ]; then skip "$key" "no bench_step in $bin"; return 0; fi
  part "$key" "$limit" "$bin/bench_step" --json "$raw/$key.json" "$@"
}
train() { # train PROGRAM ARGUMENTS...
  local program=$1 folder=$data
  shift
  if [ "$program" = train_cifar10 ] && [ ! -d "$data/cifar10" ]; then
    folder=$work/made-up
    if [ ! -d "$folder" ]; then
      part made_up_cifar10 "$limit" python3 "$root/scripts/gpu_report.py" make-cifar "$folder/cifar10"
      limit=$((limit - (SECONDS - part_start)))
      log cifar10 "made up: patterns under noise"
      if [ "$limit" -lt 3 ]; then skip "$key" "no time was left after the images"; return 0; fi
    fi
  fi
  if [ "$program" = train_mnist ] && [ ! -d "$data/mnist" ]; then skip "$key" "no data in $data/mnist"; return 0; fi
  part "$key" "$limit" "$bin/$program" --device cuda --metrics "$raw/$key.jsonl" --data-dir "$folder" "$@"
}
bench() { # bench [OPTION...] REGEX
  part "$key" "$limit" "$bin/bench_cuda" "${@:1:$#-1}" "--benchmark_filter=${*: -1}" "--benchmark_out=$raw/$key.json" \
    --benchmark_out_format=json
}
torch() { # torch WAYS
  with_environment "$key" "$limit" '
    export LD_LIBRARY_PATH=$1
    python=$(python_with_torch) || { echo "no Python here has PyTorch with CUDA"; exit 77; }
    exec "$python" "${@:2}"' "${libraries_before-}" "$root/bench/peers/pytorch/gpu_step.py" --ways "$1" --seconds "$limit" \
    --json "$raw/$key.jsonl" resnet50:256:f16 resnet18_cifar:512:f16 cifarnet:2000:f16
}
versions() {
  part "$key" "$limit" python3 "$root/scripts/gpu_report.py" versions
  [ "$code" -ne 0 ] || cat "$raw/versions.log" >>"$raw/meta.tsv"
}
one_suite() {
  part "$key" "$limit" "${program_of[$1]}" --gtest_brief=1 "--gtest_filter=$1.*:*/$1.*" "--gtest_output=json:$raw/$key.json"
}
sanitize() { # sanitize PATTERN...: these tests of the suite; where none is named, its first few
  local tool suite filter
  IFS=_ read -r _ tool suite <<<"$key"
  if [ -z "${program_of[$suite]-}" ]; then skip "$key" "no tests of $suite in $bin"; return 0; fi
  if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046
    set -- $(awk -v suite="$suite." '/^[^ ]/ { mine = $1 == suite } /^ / && mine && ++count <= 3 { print $1 }' "$raw/list_$(basename "${program_of[$suite]}").log")
  fi
  filter=$(printf ":$suite.%s" "$@")
  with_environment "$key" "$limit" '
    sanitizer=$(find_cuda_tool compute-sanitizer compute-sanitizer) || { echo "compute-sanitizer is not installed here"; exit 77; }
    exec "$sanitizer" "$@"' --tool "$tool" --error-exitcode 99 "${program_of[$suite]}" --gtest_brief=1 "--gtest_filter=${filter#:}"
}
# What memory moves in the launch with the most bytes of the Nth longest kernel, by the counters of the GPU. ncu would set its
# clocks, which belong to the machine.
counters() { # counters N
  local kernel
  kernel=$(timeout 10 python3 "$root/scripts/gpu_report.py" heaviest "$raw/step_resnet50.json" "$1" | sed -n "$1p") || kernel=""
  if [ -z "$kernel" ]; then skip "$key" "no step of resnet50 has its kernels"; return 0; fi
  with_environment "ncu_$kernel" "$limit" '
    ncu=$(find_cuda_tool ncu nsight-compute) || { echo "ncu is not installed here"; exit 77; }
    exec "$ncu" "$@"' --clock-control none --profile-from-start off --csv --print-units base --log-file "$raw/ncu_$kernel.csv" \
    --metrics dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum \
    "$bin/bench_step" --json "$raw/ncu_$kernel.json" --graph off --steps 1 --timed-steps 1 --profile-launch "$kernel" resnet50:256:f16
}
# Processes that share the GPU, over pinned memory and MPI. (Threads that do are in StagedCollectives and StagedTraining, and NCCL
# with one rank in cuda_nccl_test.)
staged_mpi() { # staged_mpi RANKS
  local mpirun settings
  if [ ! -x "$bin/cuda_staged_mpi_test" ]; then skip "$key" "no cuda_staged_mpi_test in $bin"; return 0; fi
  mpirun=$(command -v mpirun.openmpi || command -v mpirun) || { skip "$key" "mpirun is not installed here"; return 0; }
  mapfile -t settings < <(grep -v '^#' "$root/scripts/open_mpi.env")
  part "$key" "$limit" env "${settings[@]}" "$mpirun" -n "$1" "$bin/cuda_staged_mpi_test" --gtest_brief=1
}

# ---- the machine ------------------------------------------------------------------------------------------------------

log command "gpu_visit.sh --seconds $seconds${cache:+ --cache}"
log host "$(uname -sr), $(nproc) cores"
log started "$(date -u +%FT%TZ)"
log commit "$(timeout 10 git -C "$root" describe --always --dirty 2>/dev/null || true)"
log plans_before "$(plan_files)"
if [ -f "$bundle" ]; then
  mkdir "$work/bundle"
  part unpack 120 bash -c 'unpack "$1" "$2"' - "$bundle" "$work/bundle"
  [ "$code" -eq 0 ] && [ -d "$work/bundle/athanor-gpu/bin" ] || give_up 1 "$bundle is no bundle of gpu_bundle.sh, or no room to unpack it"
  bundle=$work/bundle/athanor-gpu
fi
# An earlier visit's plans may be packed with it. Those of another device or driver have other names, and do no harm.
[ ! -d "$bundle/cache" ] || [ -n "$cache" ] || cp -r "$bundle/cache/." "$plans"
[ -z "$bundle" ] || [ ! -f "$bundle/MANIFEST.json" ] || cp "$bundle/MANIFEST.json" "$raw"

with_environment machine 20 gpu_facts
gpu=$(sed -n 's/^gpu\t//p' "$raw/machine.log") sm=$(sed -n 's/^sm\t//p' "$raw/machine.log")
grep $'\t' "$raw/machine.log" >>"$raw/meta.tsv" || true
[ -n "$gpu" ] || give_up 3 "no NVIDIA GPU here, so there is nothing to check"

if [ -n "$bundle" ]; then
  bin=$bundle/bin
  log programs "$bundle"
else
  say "Building the cuda preset for $gpu first, in up to 7200 s besides --seconds; if the machine is lent for minutes, pack a bundle elsewhere (gpu_bundle.sh) and give --bundle"
  set_up
  find_nvcc || true
  lacks=$(cuda_build_lacks)
  [ -z "$lacks" ] || give_up 1 "to build, this machine lacks $lacks; a bundle (--bundle) needs none of it"
  build() {
    configure cuda -DATHANOR_CUDA_ARCHITECTURES="$(gpu_architecture)" -DCUDNN_ROOT="$(cudnn_root)" &&
      cmake --build --preset cuda
  }
  export -f build configure gpu_architecture gpu_sm cudnn_root cuda_folders nvidia_wheels folders_once
  part build 7200 bash -c 'set -euo pipefail; build'
  [ "$code" -eq 0 ] || give_up 1 "the cuda preset does not build: $(tail -n 3 "$raw/build.log")"
  bin=$root/build/cuda/bin
  log programs "build/cuda, built here"
  SECONDS=0
fi

# A program without code for this GPU would only fail in its first kernel.
architectures=$(sed -n 's/.*"architectures": *"\([^"]*\)".*/\1/p' "$raw/MANIFEST.json" 2>/dev/null || true)
if [ -n "$architectures" ] && [ -n "$sm" ] && ! has_code_for "$architectures" "$sm"; then
  give_up 1 "the bundle has code for $architectures, but this GPU is sm_$sm: pack one with gpu_bundle.sh --arch $(timeout 10 bash -c "source '$root/scripts/gpu_env.sh'; gpu_architecture")"
fi

libraries_before=${LD_LIBRARY_PATH-} # PyTorch brings its own
with_environment libraries 30 'use_bundle "$1"; { declare -px LD_LIBRARY_PATH ATHANOR_GOLDEN_DIR || true; } 2>/dev/null >"$2"' \
  "${bundle:-$root/build/cuda}" "$raw/environment.sh"
# shellcheck disable=SC1091
[ ! -f "$raw/environment.sh" ] || source "$raw/environment.sh"
export XDG_CACHE_HOME=$plans
export ATHANOR_PLANS_DIR=$raw/device # where a test writes down the properties of the device
export ATHANOR_RUNS_DIR=none         # the report has what counts
# From a fresh disk, the libraries take as long to read as the first parts may: read ahead of them.
timeout 150 nice bash -c "source '$root/scripts/gpu_env.sh'; read_ahead \"\$@\"" - "$bin" >/dev/null 2>&1 &
reader=$!

# Clocks, power, and what limits the clocks, each second until the end: the report gives each part its own.
sample_clocks() {
  local fields="clocks.sm,clocks.mem,temperature.gpu,power.draw" reasons line
  for reasons in clocks_event_reasons.active clocks_throttle_reasons.active; do
    if timeout 5 nvidia-smi --query-gpu="$reasons" --format=csv,noheader >/dev/null 2>&1; then fields=$fields,$reasons && break; fi
  done
  while line=$(timeout 5 nvidia-smi --query-gpu="$fields" --format=csv,noheader,nounits 2>/dev/null | sed -n 1p); do
    printf '%s\t%s\n' "$EPOCHREALTIME" "$line"
    sleep 1
  done
}
sample_clocks >"$raw/clocks.tsv" 2>/dev/null &
sampler=$!

# Suites of the tests, and the program that has each. Those of parameters are listed as Name/Suite.
declare -A program_of=()
suites=()
for program in "$bin"/{cuda_test,cuda_*_test}; do
  name=$(basename "$program")
  case $name in
    cuda_plans_test) continue ;;      # needs no GPU, and is long
    cuda_no_device_test) continue ;;  # must not see one
    cuda_staged_mpi_test) continue ;; # a kind of its own: several processes
  esac
  [ -x "$program" ] || continue
  part "list_$name" 40 "$program" --gtest_list_tests
  while read -r line; do
    line=${line%%.*} line=${line##*/}
    [ -z "${program_of[$line]-}" ] || continue
    program_of[$line]=$program
    suites+=("$line")
  done < <(grep -E '^[^ ]+[.]( |$)' "$raw/list_$name.log")
done
[ ${#suites[@]} -gt 0 ] || record tests failed 0 "no tests in $bin"

# ---- the visit --------------------------------------------------------------------------------------------------------

say "$gpu: at most $seconds s, $SECONDS s of them gone"
# The rows, one suite and one tool's suite each.
declare -A listed=()
rows() {
  local key cap by kind words
  while read -r key cap by kind words; do
    case $kind in
      suites)
        for suite in ${words:-"${suites[@]}"}; do
          if [ -z "${program_of[$suite]-}" ] || [ -n "${listed[$suite]-}" ]; then continue; fi
          listed[$suite]=yes
          echo "test_$suite $cap $by one_suite $suite"
        done ;;
      sanitizers)
        for tool in $words; do
          for suite in Elementwise Reduce Softmax BatchNorm Loss Update Copy Pool; do
            [ -z "${program_of[${suite}OnDevice]-}" ] || echo "sanitizer_${tool}_${suite}OnDevice $cap $by sanitize"
          done
        done ;;
      *) echo "$key $cap $by $kind $words" ;;
    esac
  done
}
set -f # words of the table are no patterns of files
table | rows >"$work/all"
sed '/^again/,$d' "$work/all" >"$work/rows"
sed '1,/^again/d' "$work/all" >"$work/more"
# A second visit: what the first has not done comes before what it has.
done_before=$plans/visit/done
if [ -s "$done_before" ]; then
  log done_before "$(xargs <"$done_before")"
  awk -v always="$always" -v second="$second" '
    NR == FNR { done[$1] = 1; next }
    $1 != "again" { rank = index(" " always " ", " " $1 " ") ? 0 : $1 == second ? 1 : done[$1] ? 3 : 2; $3 = 480; print rank, FNR, $0 }' \
    "$done_before" "$work/all" | sort -s -n -k1,1 -k2,2 | cut -d' ' -f3- >"$work/rows"
  : >"$work/more"
fi

declare -A begun=()
go_through() { # go_through FILE [BY]: the rows that are left, while there is time
  local key cap by kind words limit left
  while read -r key cap by kind words <&3; do
    [ -z "${begun[$key]-}" ] || continue
    left=$((${2-$by} * end / 480 - SECONDS))
    limit=$((left < cap ? left : cap))
    [ "$limit" -ge 3 ] || continue
    begun[$key]=yes
    # shellcheck disable=SC2086
    "$kind" $words
    [ "$status" != passed ] || echo "$key" >>"$done_before"
    [ "$key" != step_smoke ] || grep -E 'refused|are made from' "$raw/step_smoke.log" || true
    [ $((8 * (SECONDS - saved))) -lt "$seconds" ] || save >/dev/null || true
  done 3<"$1"
}
go_through "$work/rows"
go_through "$work/rows" 480
go_through "$work/more"
while read -r key _; do
  [ -n "${begun[$key]-}" ] || record "$key" "no time left" 0 "it was not begun"
done < <(cat "$work/rows" "$work/more")
