#!/usr/bin/env bash
# gpu_check_test.sh: scripts/gpu_check.sh over programs and a GPU that are made up: what it says where there is none,
# what makes a report green, and that everything that goes wrong is named in it while the rest goes on.
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
script=$bundle/scripts/gpu_check.sh
check() { # check CODE ARGUMENTS...
  local want=$1 code=0
  shift
  rm -rf "$folder/report"
  "$script" --out "$folder/report" --data-dir "$folder/data" "$@" >"$folder/out" 2>"$folder/err" || code=$?
  [ "$code" -eq "$want" ] || die "expected code $want, but got $code"
}
says() { grep -qF -- "$1" "$folder/report/report.md" || die "the report does not say '$1'"; }
json() { # json EXPRESSION...: they hold for the report r
  python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
sys.exit("".join("not so: " + one + "\n" for one in sys.argv[2:] if not eval(one)) or 0)' "$folder/report/report.json" "$@" || die "report.json"
}
FAKE_GPU=none check 3
[ "$(wc -l <"$folder/err")" -eq 1 ] && grep -q 'no NVIDIA GPU here' "$folder/err" || die "no GPU takes one clear line"
check 2 --minute 3
check 2 --minutes soon
check 2 --bundle "$folder/none"
FAKE_SM=8.6 check 1 --minutes 3
grep -q 'the bundle has code for 90a-real, but this GPU is sm_86: pack one with gpu_bundle.sh --arch 86-real' "$folder/err" ||
  die "a bundle for other GPUs takes one clear line"
says 'architectures failed'
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
check 0 --minutes 3
says '# GPU check: GREEN'
says 'NVIDIA H200, sm_90, 143771 MiB; driver 580.159.03'
says 'commit: abc1234'
says 'before 1980, 3201, 41, 118.20'
says '| fwd | f32 | 16384x1024 | athanor | 34.1 |'
says '| 92 | copy | 1.0e-07 | pass |'
json 'r["verdict"] == "green" and r["reasons"] == [] and r["commit"] == "abc1234"' \
  '[t["passed"] for t in r["tests"]] == [2] * 5 and [t["skipped"] for t in r["tests"]] == [1] * 5' \
  '[t["suite"] for t in r["tests"]] == ["ConvOnDevice", "MatmulOnDevice", "ElementwiseOnDevice", "ReduceOnDevice", "GoldenOnDevice"]' \
  '[t["verdict"] for t in r["trainings"]] == ["pass"] * 5 + ["skipped"]' \
  'len(r["sanitizer"]) == 10 and all(s["verdict"] == "pass" for s in r["sanitizer"])' \
  '[p["what"].split("=")[-1] for p in r["parts"] if p["name"] == "sanitizer_memcheck_ReduceOnDevice"] == ["ReduceOnDevice.EqualsCpu:ReduceOnDevice.Strided:ReduceOnDevice.Empty"]' \
  '[p["what"].split("=")[2] for p in r["parts"] if p["name"] == "test_GoldenOnDevice"] == ["GoldenOnDevice.*:*/GoldenOnDevice.* --gtest_output"]' \
  '[f["of_fastest"] for f in r["figures"] if f["impl"] == "automatic" and f["op"] == "matmul"] == [1.0]' \
  'r["roofs"]["copy_roof_gb_s"] == "4300.0"'
[ -s "$folder/report/raw.tar.gz" ] && [ ! -e "$folder/report/raw" ] || die "what the report was made of must be one archive"

# Steps of training, kernel by kernel, and their clocks.
says '| resnet50:256:f16:sgd | 5,812 | 5,990 |  |  | 44.040 | 42.700 | 2.510 | 0.021 | 0 | 0 | 530 | 1980 MHz, 690 W | pass |'
says '| batch_norm_dx | ours | 53 | 53 | 5,900.0 | 51.7 | 20,000.0 | 3.42 | 80 |'
says '| layer1.0.conv1 | forward | conv2d_forward | 120.0 | 410.0 |'
says 'off the account: matmul of fc forward: 2 launches, 1 accounted'
says '| conv2d forward f16 x[256,56,56,64] | 4 | 40.0 | 39.5 | 1.013 | 200.0 |'
says '| conv2d_forward | layer1.0.conv1 | forward | 410.0 | 410.0 | 20.5 | 1.05 | 120.0 |'
json '[s["workload"] for s in r["steps"]] == ["resnet20:128:f16:sgd", "resnet50:256:f16:sgd", "resnet18_cifar:512:f16:sgd", "cifarnet:2000:f16:sgd"]' \
  '[n["kernel"] for n in r["ncu"]] == ["batch_norm_dx", "conv2d_forward"] and r["torch"] == []' \
  'all(p["clocks"]["sm_mhz"] == [1980, 1980] for p in r["parts"] if p["seconds"] or p["name"].startswith("step_"))' \
  'all(f["clocks"]["watts"] == 690.1 for f in r["figures"])' \
  '[p["name"] for p in r["parts"]][:4] == ["train_digits_f32", "step_smoke", "test_ConvOnDevice", "test_MatmulOnDevice"]'

# The plans that were measured come home, and serve the next visit (below: from another folder, from a bundle).
[ -s "$folder/report/cache/athanor/plans/resnet50.json" ] || die "the plans must be in the report's folder"
there() { tar -xOf "$folder/report/raw.tar.gz" raw/step_smoke.log | grep -q "^$1 plans were there" || die "$1 plans must have been there at first"; }
there 0
cp -r "$folder/report/cache" "$folder/cache"
check 2 --cache "$folder/none"

# A short time gives a report of the first parts.
check 1 --minutes 0.05
says '# GPU check: INCOMPLETE'
json 'r["parts"][0]["name"] == "train_digits_f32" and any(p["status"] == "no time left" for p in r["parts"])'

# Tests that are not listed.
FAKE_UNLISTED=1 check 1 --minutes 0.05
says 'cuda_test failed'
says 'no test passed'

# From the source: builds for this GPU first, or says why that is not possible. PyTorch is there, too.
script=$folder/project/scripts/gpu_check.sh
mkdir "$folder/venv" "$folder/venv/bin"
ln -s "$here/gpu/python_with_torch" "$folder/venv/bin/python"
PATH=$folder/toolkit/bin:$PATH check 0 --minutes 3 --cache "$folder/cache"
json 'r["parts"][0]["name"] == "build" and r["parts"][0]["status"] == "passed" and r["verdict"] == "green"'
there 4
says '| resnet50:256:f16:sgd | 5,812 | 5,990 | 3,200 (graph) | 1.87 |'
says '| cifarnet:2000:f16 | graph |'
says 'RuntimeError: operation not permitted when stream is capturing'
rm -r "$folder/venv"
FAKE_BROKEN=1 PATH=$folder/toolkit/bin:$PATH check 1
says 'build failed'
rm "$folder/cudnn/include/cudnn_backend.h" "$folder/toolkit/include/cublasLt.h"
PATH=$folder/toolkit/bin:$PATH check 1
grep -q 'this machine lacks .*cuBLAS beside nvcc.*a bundle' "$folder/err" || die "what is missing for a build must be named"
script=$bundle/scripts/gpu_check.sh

# Everything that can go wrong, and the rest goes on: tests, kernels, trainings; a step that waits, or does without the vendor; plans that
# are not the best; counters that may not be read; what measures nothing.
mkdir -p "$folder/data/mnist"
FAKE_FAIL=ReduceOnDevice FAKE_CRASH=ElementwiseOnDevice FAKE_SLOW=1 FAKE_WRONG=1 FAKE_RACE=ReduceOnDevice FAKE_DIVERGED=train_mnist \
  FAKE_REFUSED=train_digits FAKE_SYNC=resnet50 FAKE_NO_VENDOR=resnet20 FAKE_PLANS=1 FAKE_NO_COUNTERS=1 FAKE_LIMIT=0x0000000000000004 \
  FAKE_EMPTY=dropout check 1 --minutes 3
says '# GPU check: RED'
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
json 'any(f["op"] == "conv2d" for f in r["figures"]) and r["verdict"] == "red" and len(r["sanitizer"]) == 10'
rm -r "$folder/data/mnist"

# What hangs is ended, and what a benchmark had measured by then counts.
cp -r "$folder/cache" "$bundle/cache"
FAKE_HANG=MatmulOnDevice FAKE_CUT=1 check 1 --minutes 0.8
there 4
says '# GPU check: INCOMPLETE'
says 'test_MatmulOnDevice: timed out'
says 'bench_elementwise: timed out'
json 'len([f for f in r["figures"] if f["op"] == "relu"]) == 2 and r["trainings"][0]["verdict"] == "pass"'

# Ended from outside, it reports at once, and leaves nothing running.
rm -rf "$folder/report"
FAKE_HANG=MatmulOnDevice "$script" --out "$folder/report" --data-dir "$folder/data" >"$folder/out" 2>"$folder/err" &
pid=$!
for _ in $(seq 600); do [ -e "$folder/report/raw/test_MatmulOnDevice.log" ] && break; sleep 0.1; done
kill -TERM $pid
code=0 ended=$SECONDS
wait $pid || code=$?
[ $((SECONDS - ended)) -le 30 ] || die "ended by SIGTERM, it took $((SECONDS - ended)) s"
! pgrep -f "^$folder/report/raw/hangs" >/dev/null || die "the part that hung still runs"
[ "$code" -eq 143 ] || die "ended by SIGTERM: expected code 143, but got $code"
says 'test_MatmulOnDevice: timed out'
json '[t["passed"] for t in r["tests"]][0] == 2'
