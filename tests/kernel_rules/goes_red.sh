#!/usr/bin/env bash
# Plants one violation of each rule and demands that check.sh names exactly those.
set -euo pipefail
check=$(cd "$(dirname "$0")" && pwd)/check.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p kernels/cuda

echo '#include "simt/launch.h"' >kernels/cuda/launch.h
cat >kernels/cuda/good.cu <<'CODE'
#include "kernels/cuda/launch.h"
// No __threadfence here, and no volatile: "rsqrtf(x)" is a comment.
__global__ void __launch_bounds__(256)
    good(float* y, float shift) {
#if defined(__CUDA_ARCH__)
  asm("add.f32 %0, %0, %1;" : "+f"(y[0]) : "f"(shift));
#else
  y[0] += math::exp(shift) + my_rsqrtf(shift);
#endif
}
CODE
bash "$check" "$tree" || { echo "good code must pass"; exit 1; }

cat >kernels/cuda/bad.cu <<'CODE'
#include <cub/cub.cuh>
#include <cuda_fp16.h>
__global__ void bad(float* y) {
  extern __shared__ float sums[];
  y[0] = __expf(y[0]);
  y[1] = rsqrtf(y[0]);
  y[2] = std::tanh(y[1]);
  __threadfence();
  const volatile float seen = y[3];
}
void launch() { bad<<<1, 1>>>(nullptr); }
CODE
if found=$(bash "$check" "$tree"); then
  echo "planted violations were not found"
  exit 1
fi
for line in 1 2 3 4 5 6 7 8 9 11; do
  grep -q "^kernels/cuda/bad.cu:$line: " <<<"$found" || { printf 'expected line %s in:\n%s\n' "$line" "$found"; exit 1; }
done
grep -q '^10 violations$' <<<"$found" || { printf 'expected 10 in:\n%s\n' "$found"; exit 1; }
