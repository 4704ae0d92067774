#!/usr/bin/env bash
# gpu_visit_test.sh: scripts/gpu_visit.sh over programs and a GPU that are made up: what it says where there is none, what makes a
# report green, that everything that goes wrong is named in it while the rest goes on, and that it ends in time with its four files.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../support/python.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
source "$here/gpu/project.sh"
for name in digits mnist cifar10; do ln -s "$here/gpu/train" "$folder/programs/train_$name"; done
for name in cuda_test bench_cuda bench_step; do ln -s "$here/gpu/$name" "$folder/programs/$name"; done
bundle=$folder/bundle
mkdir -p "$bundle" "$folder/data/cifar10"
cp -r "$folder/project/scripts" "$folder/programs" "$bundle"
mv "$bundle/programs" "$bundle/bin"
echo '{"commit": "abc1234", "architectures": "90a-real"}' >"$bundle/MANIFEST.json"

die() { echo "$*"; cat "$folder/out" "$folder/err" "$folder/report/report.md" 2>/dev/null; exit 1; }
script=$bundle/scripts/gpu_visit.sh
visit() { # visit CODE ARGUMENTS...
  rm -rf "$folder/report"
  visit_again "$@"
}
visit_again() { # over what is in the report's folder
  local want=$1 code=0
  shift
  "$script" --out "$folder/report" --data-dir "$folder/data" "$@" >"$folder/out" 2>"$folder/err" || code=$?
  [ "$code" -eq "$want" ] || die "expected code $want, but got $code"
  [ "$want" -eq 2 ] || four_files
}
four_files() {
  [ "$(cd "$folder/report" && find . -mindepth 1 | sort | xargs)" = "./cache.tar.gz ./raw.tar.gz ./report.json ./report.md" ] ||
    die "there must be four files, and no folders: $(ls -R "$folder/report")"
}
says() { grep -qF -- "$1" "$folder/report/report.md" || die "the report does not say '$1'"; }
json() { # json EXPRESSION...: they hold for the report r; names: of its parts, in their order
  python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
names = [p["name"] for p in r["parts"]]
status = {p["name"]: p["status"] for p in r["parts"]}
sys.exit("".join("not so: " + one + "\n" for one in sys.argv[2:] if not eval(one)) or 0)' "$folder/report/report.json" "$@" || die "report.json"
}

# The GPU is shared, and its settings are its owner's: nothing here changes them. nvidia-smi is asked, and ncu leaves the clocks alone.
scripts=$here/../../scripts
! grep -rn 'nvidia-smi' "$scripts" | grep -vE 'nvidia-smi (--query-gpu=|-L )|command -v nvidia-smi|:[0-9]+:#' >"$folder/out" || die "nvidia-smi may only be asked"
! grep -rnE 'exec "\$ncu"|[^a-z_"$]ncu -' "$scripts" | grep -v -e '--clock-control none' >"$folder/out" || die "ncu would set clocks"
grep -q 'exec "$ncu" "$@".*--clock-control none' "$scripts/gpu_visit.sh" || die "ncu must be called where its clocks can be looked for"
! grep -rnE 'nvidia-settings|nvidia-persistenced|cudaDeviceReset|gpu-reset|lock-gpu|lock-memory|applications-clocks|-mig\b' "$scripts" >"$folder/out" ||
  die "a setting of the GPU"

FAKE_GPU=none visit 3
[ "$(wc -l <"$folder/err")" -eq 1 ] && grep -q 'no NVIDIA GPU here' "$folder/err" || die "no GPU takes one clear line"
says 'machine: skipped: no NVIDIA GPU here'
says '| products by wgmma (matmul_wgmma.cu) | not measured |'
visit 2 --second 3
visit 2 --seconds soon
visit 2 --bundle "$folder/none"
visit 2 --cache "$folder/none"
visit 2 --cache "$folder/data"
[ "$(wc -l <"$folder/err")" -eq 1 ] && grep -q 'must be what a visit left as cache.tar.gz.*data is neither' "$folder/err" ||
  die "a folder that is no cache takes one clear line"
FAKE_SM=8.6 visit 1
grep -q 'the bundle has code for 90a-real, but this GPU is sm_86: pack one with gpu_bundle.sh --arch 86-real' "$folder/err" ||
  die "a bundle for other GPUs takes one clear line"
says 'gpu_visit.sh failed'
(
  source "$folder/project/scripts/gpu_env.sh"
  for case in 90a-real:90 80-real:86 80:90 80-virtual:120 "75-real;80-real:89" 100f-real:103 native:75; do
    has_code_for "${case%:*}" "${case#*:}" || die "$case must have code"
  done
  for case in 90a-real:80 90a-real:100 86-real:80 80-real:90 80:75 "75-real;90a-real:80" 100f-real:120; do
    ! has_code_for "${case%:*}" "${case#*:}" || die "$case must not have code"
  done
)

# All is well.
visit 0 --seconds 300
says '# A visit to a GPU: GREEN'
says 'NVIDIA H200, sm_90, 143771 MiB; driver 580.159.03'
says 'commit: abc1234'
says 'before 1980, 3201, 41, 118.20; after 1980, 3201, 41, 118.20'
says '| fwd | f32 | 16384x1024 | athanor | 34.1 |'
says '| 92 | copy | 1.0e-07 | pass |'
json 'r["verdict"] == "green" and r["reasons"] == [] and r["commit"] == "abc1234"' \
  '[t["passed"] for t in r["tests"]] == [2] * 5 and [t["skipped"] for t in r["tests"]] == [1] * 5' \
  '[t["suite"] for t in r["tests"]] == ["ConvOnDevice", "MatmulOnDevice", "ElementwiseOnDevice", "ReduceOnDevice", "GoldenOnDevice"]' \
  '[t["verdict"] for t in r["trainings"]] == ["pass"] * 5 + ["skipped"]' \
  'len([s for s in r["sanitizer"] if s["verdict"] == "pass"]) == 10' \
  '[p["what"].split("=")[-1] for p in r["parts"] if p["name"] == "sanitizer_racecheck_ReduceOnDevice"] == ["ReduceOnDevice.EqualsCpu:ReduceOnDevice.Strided:ReduceOnDevice.Empty"]' \
  '[p["what"].split("=")[2] for p in r["parts"] if p["name"] == "test_GoldenOnDevice"] == ["GoldenOnDevice.*:*/GoldenOnDevice.* --gtest_output"]' \
  '[f["of_fastest"] for f in r["figures"] if f["impl"] == "automatic" and f["op"] == "matmul"] == [1.0]' \
  'r["roofs"]["copy_roof_gb_s"] == "4300.0"'

# Steps of training, kernel by kernel, and their clocks.
says '| resnet50 | resnet50:256:f16:sgd | 5,812 | 5,990 |  |  | 44.040 | 42.700 | 2.510 | 0.021 | 0 | 0 | 530 | 1980 MHz, 690 W | pass |'
says '| batch_norm_dx | ours | 53 | 53 | 5,900.0 | 51.7 | 20,000.0 | 3.42 | 80 |'
says '| layer1.0.conv1 | forward | conv2d_forward | 120.0 | 410.0 |'
says 'off the account: matmul of fc forward: 2 launches, 1 accounted'
says '| conv2d forward f16 x[256,56,56,64] | 4 | 40.0 | 39.5 | 1.013 | 200.0 |'
says '| conv2d_forward | layer1.0.conv1 | forward | 410.0 | 410.0 | 20.5 | 1.05 | 120.0 |'
json '[s["workload"] for s in r["steps"]] == ["resnet20:128:f16:sgd", "resnet50:256:f16:sgd", "cifarnet:2000:f16:muon", "resnet18_cifar:512:f16:sgd"] + \
    ["resnet50:256:f16:sgd", "cifarnet:2000:f16:muon", "resnet50:256:bf16:sgd", "resnet50:256:f16:sgd:augment", "cifarnet:2000:f16:muon:augment"]' \
  '[n["kernel"] for n in r["ncu"]] == ["batch_norm_dx", "conv2d_forward"] and r["torch"] == []' \
  'all(p["clocks"]["sm_mhz"] == [1980, 1980] for p in r["parts"] if p["name"].startswith("step_"))' \
  'all(f["clocks"]["watts"] == 690.1 for f in r["figures"])' \
  'names.index("step_smoke") < names.index("train_digits_f32") < names.index("test_ConvOnDevice") < names.index("step_resnet50") < names.index("step_plans")'

# What follows from it.
says '| step_resnet50 | 530 | 0 | 0 | 68 | 0 | 0 | 31.5 |'
says '| products by wgmma (matmul_wgmma.cu) | move to examples/kernel_lab | 1.25 to 1.50 times the vendor'"'"'s time at 2 shapes |'
says '| convolutions of our own, where there is cuDNN | move to examples/kernel_lab | 2.00 to 4.00 times the vendor'"'"'s time at 4 shapes |'
says '| two passes, beside a convolution that sums its channels | remove: always the fused one | 2.00 to 2.00 times'
says '| measuring plans, and how many candidates (VendorOptions) | keep, with 4 candidates |'
says '| steps as CUDA graphs (--graph auto) | keep | 1.03 to 1.03 times'
says '| padding images of 3 channels to 4 or 8, in 16 bits (conv_padded.cu) | remove: no pass is faster padded | f16: in no pass; bf16: in no pass |'
says '| fusion, in resnet50 | keep | 1.292 times the images/s of the step without |'
says '| conv2d forward f16 sums x[cifarnet] | 50.0 | 100.0 | 2.00 |'

# The plans that were measured come home. Another visit begins with them, measures every plan, and does first what this one left out.
there() { grep -q "^$1 plans were there" <(tar -xOf "$folder/report/raw.tar.gz" raw/step_smoke.log) || die "$1 plans must have been there at first"; }
there 0
cp "$folder/report/cache.tar.gz" "$folder/cache.tar.gz"
mkdir "$folder/cache"
tar -xf "$folder/cache.tar.gz" -C "$folder/cache" --strip-components 1
[ -s "$folder/cache/athanor/plans/resnet50.json" ] || die "the plans must be in cache.tar.gz"
sed -i '/train_cifar10_bf16\|test_ReduceOnDevice/d' "$folder/cache/visit/done"

# As an archive, where tar knows none of its kind. A short time gives a report of the first parts, and what had none is named.
mkdir "$folder/packed" "$folder/no_tar"
cp -rL "$bundle" "$folder/packed/athanor-gpu"
tar -C "$folder/packed" -czf "$folder/bundle.tar.gz" athanor-gpu
printf '#!/bin/sh\ncase $1 in -xf) exit 2 ;; esac\nexec %s "$@"\n' "$(type -P tar)" >"$folder/no_tar/tar"
chmod +x "$folder/no_tar/tar"
script=$folder/project/scripts/gpu_visit.sh
PATH=$folder/no_tar:$PATH FAKE_OWN=10.0 visit 0 --bundle "$folder/bundle.tar.gz" --cache "$folder/cache" --seconds 300
script=$bundle/scripts/gpu_visit.sh
there 4
says '| products by wgmma (matmul_wgmma.cu) | keep: faster at 1 shapes |'
json 'names.index("step_smoke") < names.index("step_plans") < names.index("test_ReduceOnDevice") < names.index("train_cifar10_bf16") < names.index("train_digits_f32") < names.index("step_resnet50")'
rm -rf "$folder/report"
mkdir "$folder/report"
cp "$folder/cache.tar.gz" "$folder/report"
FAKE_HANG=ConvOnDevice visit_again 1 --seconds 12 --cache "$folder/report/cache.tar.gz"
tar -tzf "$folder/report/cache.tar.gz" cache/athanor/plans/resnet50.json >/dev/null || die "the plans must be kept"
json 'r["machine"]["plans_before"] == "4"'
says '# A visit to a GPU: INCOMPLETE'
says 'no time was left for'
PYTHONPATH=$scripts python3 -B - <<'END' || die "what is known of padding after one precision"
from gpu_decisions import padding
def step(precision, *kernels):
    rows = [{"kernel": name, "pass": "forward"} for name in kernels]
    return {"part": "step_resnet50" + ("_bf16" if precision == "bf16" else ""), "workload": f"resnet50:256:{precision}:sgd", "timed_step_ms": 45.0,
            "vendor": {"calls": 530}, "off_account": rows}
assert padding([step("f16", "matmul")])["verdict"] == "not measured"
assert padding([step("f16", "pad_channels")])["verdict"] == "keep"
assert padding([step("f16"), dict(step("bf16"), timed_step_ms=0)])["verdict"] == "not measured"
assert padding([step("f16"), dict(step("bf16"), vendor={"calls": 0})])["verdict"] == "not measured"
END
head -c 100 "$folder/cache.tar.gz" >"$folder/report/cache.tar.gz"
visit_again 2 --cache "$folder/report/cache.tar.gz"
grep -q 'must be what a visit left as cache.tar.gz' "$folder/err" || die "a cache that is cut off takes one clear line"
four_files

# Tests that are not listed.
FAKE_UNLISTED=1 visit 1 --seconds 20
says 'list_cuda_test failed'
says 'no test passed'

# From the source: builds for this GPU first, or says why that is not possible. PyTorch is there, too.
script=$folder/project/scripts/gpu_visit.sh
mkdir "$folder/venv" "$folder/venv/bin"
ln -s "$here/gpu/python_with_torch" "$folder/venv/bin/python"
PATH=$folder/toolkit/bin:$PATH visit 0 --seconds 300
json 'status["build"] == "passed" and r["verdict"] == "green"'
grep -q 'Building the cuda preset for NVIDIA H200 first.*--bundle' "$folder/out" || die "what a build takes, and what does without one"
says '| resnet50 | resnet50:256:f16:sgd | 5,812 | 5,990 | 3,200 (graph) | 1.87 |'
says '| cifarnet:2000:f16 | graph |'
says 'RuntimeError: operation not permitted when stream is capturing'
rm -r "$folder/venv"
FAKE_BROKEN=1 PATH=$folder/toolkit/bin:$PATH visit 1
says 'build failed'
rm "$folder/cudnn/include/cudnn_backend.h" "$folder/toolkit/include/cublasLt.h"
PATH=$folder/toolkit/bin:$PATH visit 1
grep -q 'this machine lacks .*cuBLAS beside nvcc.*a bundle' "$folder/err" || die "what is missing for a build must be named"
script=$bundle/scripts/gpu_visit.sh

# Everything that can go wrong, and the rest goes on: tests, kernels, trainings; a step that waits, does without the vendor, or is killed; plans
# that are not the best, or not made for the device's properties; counters that may not be read; what measures nothing.
mkdir -p "$folder/data/mnist"
FAKE_FAIL=ReduceOnDevice FAKE_CRASH=ElementwiseOnDevice FAKE_SLOW=1 FAKE_WRONG=1 FAKE_RACE=ReduceOnDevice FAKE_DIVERGED=train_mnist \
  FAKE_REFUSED=train_digits FAKE_SYNC=resnet50 FAKE_NO_VENDOR=resnet20 FAKE_PLANS=1 FAKE_NO_COUNTERS=1 FAKE_LIMIT=0x0000000000000004 \
  FAKE_EMPTY=dropout FAKE_HANDLE=1 FAKE_PADDED=bf16 FAKE_STEP_CUT=cifarnet visit 1 --seconds 300
says '# A visit to a GPU: RED'
says 'ReduceOnDevice: 1 tests failed'
says '`ReduceOnDevice.EqualsCpu`: reduce_test.cpp:12 Expected: close'
says 'test_ElementwiseOnDevice failed'
says 'an illegal memory access was encountered'
says '62 % of the copy bandwidth, but at least 80 % are required'
says '1.11 times as long as vendor'
says 'max error 0.2, but at most 1e-05 is allowed'
says 'racecheck of ReduceOnDevice: 1 hazard displayed'
says 'train_mnist_f32: the loss is not finite'
says 'train_digits_f32: cuDNN or cuBLASLt refused plans of 1 shapes, and 0 are left to our own kernels: conv2d forward f16'
says 'resnet50:256:f16:sgd: 3 syncs in 30 steady steps (plain)'
says 'the chosen plans take 1.212 times as long as the best ones'
says 'ERR_NVGPUCTRPERM'
says '1980 MHz, 690 W, power cap'
says 'step_smoke failed'
says 'resnet20:128:f16:sgd: no plan of cuDNN or cuBLASLt ran'
says 'bench_random: measured nothing'
says "step_resnet50: cuDNN's plans are made from a handle from now on: EXECUTION_FAILED"
says '| step_resnet50 | 530 | 0 | 0 | 68 | 68 | 0 | 31.5 |'
says '| cifarnet | cifarnet:2000:f16:muon | 5,812 |  |'
says '(conv_padded.cu) | keep | f16: in no pass; bf16: backward |'
json 'any(f["op"] == "conv2d" for f in r["figures"]) and r["verdict"] == "red" and status["step_cifarnet"] in ("failed", "timed out")'
rm -r "$folder/data/mnist"

# A bare machine whose programs see no device: no network, and whatever would install, build or unpack says that it was called. Each program
# says what it lacks, and the report ends as soon as all have.
visit_bare() { FAKE_NO_DEVICE=1 visit 1 --seconds 120 --bundle "$folder/bundle.tar.xz"; }
if command -v xz >/dev/null; then
  tar -C "$folder/packed" -cJf "$folder/bundle.tar.xz" athanor-gpu
else
  cp "$folder/bundle.tar.gz" "$folder/bundle.tar.xz"
fi
printf '#!/bin/sh\necho "$0 $*" >>%s/called\nexit 1\n' "$folder" >"$folder/refuse"
chmod +x "$folder/refuse"
script=$folder/project/scripts/gpu_visit.sh
if unshare -rmn mount --bind "$folder/refuse" "$(type -P tar)" 2>/dev/null; then
  export -f visit visit_again visit_bare four_files die
  export folder script
  unshare -rmn bash -c '
    set -euo pipefail
    for tool in apt apt-get dpkg pip pip3 curl wget git cmake make ninja c++ g++ gcc nvcc xz zstd; do
      file=$(type -P "$tool") && mount --bind "$folder/refuse" "$(realpath "$file")" || true
    done
    ! (exec 3<>/dev/tcp/192.0.2.1/80) 2>/dev/null
    visit_bare' || die "on a bare machine"
  [ ! -s "$folder/called" ] || ! grep -vE '/(git|xz) ' "$folder/called" || die "called on a bare machine"
else
  echo "no namespace of mounts here: a bare machine was not rehearsed"
  visit_bare
fi
script=$bundle/scripts/gpu_visit.sh
says 'CUDA driver version is insufficient'
says 'torch_steps: skipped: no Python here has PyTorch with CUDA'
json 'status["unpack"] == "passed" and status["step_smoke"] == status["train_digits_f32"] == "failed" and r["verdict"] == "red"'

# A suite that had no time of its own gets some before what a first visit may not reach.
FAKE_HANG=ConvOnDevice visit 1 --seconds 70
says 'test_ConvOnDevice: timed out'
json 'names.index("bench_memory") < names.index("test_MatmulOnDevice") < names.index("step_plans")'

# What hangs is ended, with or without its consent, and what a benchmark had measured by then counts. Files are there before the end.
cp -r "$folder/cache" "$bundle/cache"
began=$SECONDS
FAKE_STUBBORN=MatmulOnDevice FAKE_CUT=1 visit 1 --seconds 80
[ $((SECONDS - began)) -le 95 ] || die "80 s took $((SECONDS - began)) s"
there 4
says '# A visit to a GPU: INCOMPLETE'
says 'test_MatmulOnDevice: timed out'
says 'bench_memory: timed out'
json 'len([f for f in r["figures"] if f["op"] == "relu"]) == 1 and r["trainings"][0]["verdict"] == "pass"'

# Ended from outside, it reports at once, and leaves nothing running. What cannot be asked leaves the last report.
hang() { # hang SIGNAL CODE
  local pid code=0 ended
  rm -rf "$folder/report"
  FAKE_HANG=MatmulOnDevice "$script" --out "$folder/report" --data-dir "$folder/data" --seconds 100 >"$folder/out" 2>"$folder/err" &
  pid=$!
  for _ in $(seq 600); do pgrep -f "/raw/hangs" >/dev/null && break; sleep 0.1; done
  kill "-$1" $pid
  ended=$SECONDS
  wait $pid || code=$?
  [ $((SECONDS - ended)) -le 30 ] || die "ended by $1, it took $((SECONDS - ended)) s"
  [ "$code" -eq "$2" ] || die "ended by $1: expected code $2, but got $code"
}
hang TERM 143
! pgrep -f "/raw/hangs" >/dev/null || die "the part that hung still runs"
four_files
says 'test_MatmulOnDevice: timed out'
json '[t["passed"] for t in r["tests"]][0] == 2'
