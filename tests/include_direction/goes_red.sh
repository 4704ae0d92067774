#!/usr/bin/env bash
# Plants one violation of each rule in a small tree and demands that check.sh names exactly those.
set -euo pipefail
check=$(cd "$(dirname "$0")" && pwd)/check.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p simt/include/simt tensor/cuda kernels/cpu kernels/cuda autograd/detail nn optim

for header in tensor/tensor.h kernels/conv.h nn/module.h; do
  printf 'athanor_headers(\n  %s)\n' "${header#*/}" > "${header%/*}/CMakeLists.txt"
done
printf '#pragma once\n#include <vector>\n#include <fmt/format.h>\n' > tensor/tensor.h
printf '#include "tensor/tensor.h"\n' > kernels/conv.h
printf '#include <oneapi/dnnl/dnnl.hpp>\n' > kernels/cpu/onednn.h
printf '#include "kernels/cpu/onednn.h"\n#include <Eigen/Core>\n' > kernels/cpu/conv.cpp
printf '#include <simt/launch.h>\n#include <cuda_runtime.h>\n' > tensor/cuda/device.h
printf '#include "simt/launch.h"\n#include <sys/mman.h>\n#include <fmt/format.h>\n' > simt/include/simt/launch.h
printf '#include "kernels/conv.h"\n' > autograd/detail/saved.h
printf '#include "kernels/conv.h"\n' > nn/module.h

bash "$check" "$tree" || { echo "a clean tree must pass"; exit 1; }

printf '\n#  include "autograd/engine.h"\n' >> tensor/tensor.h  # looks up
printf '#include "nn/module.h"\n' > optim/sgd.cpp               # a neighbour
printf '#include <Eigen/Core>\n' >> kernels/conv.h              # a vendor in public
printf '#include "autograd/detail/saved.h"\n' >> nn/module.h   # a private header in public
printf '#include <tensor/tensor.h>\n' >> simt/include/simt/launch.h # looks up, in angle brackets
printf '#include <simt/launch.h>\n' > nn/linear.cpp             # the emulator is for device code
printf '#include "simt/launch.h"\n' >> kernels/cpu/conv.cpp
printf '#include <cuda_runtime.h>\n' > autograd/conv.cpp
printf '#include "simt/emulator/runtime.h"\n' > kernels/cuda/launch.h  # for both compilers

if found=$(bash "$check" "$tree"); then
  echo "planted violations were not found"
  exit 1
fi
for expected in tensor/tensor.h:5: optim/sgd.cpp:1: kernels/conv.h:2: nn/module.h:2: simt/include/simt/launch.h:4: nn/linear.cpp:1: kernels/cpu/conv.cpp:3: \
  autograd/conv.cpp:1: kernels/cuda/launch.h:1: "9 violations"; do
  grep -q "^$expected" <<<"$found" || { printf 'expected %s in:\n%s\n' "$expected" "$found"; exit 1; }
done
