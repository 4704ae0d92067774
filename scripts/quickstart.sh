#!/usr/bin/env bash
# Installs what is missing, builds train_digits and what of the library it needs, trains a small CNN on the embedded
# digits and shows the result: on a GPU where one is found with nvcc and cuDNN, else on the CPU, saying what is missing.
# Arguments go to train_digits: scripts/quickstart.sh --epochs 5
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments=("$@")

set_up

build() { # build PRESET [-DNAME=VALUE...]
  say "Building train_digits (build/$1, shared with scripts/test.sh)"
  configure "$@" && cmake --build --preset "$1" --target train_digits
}

# Builds for the GPU that is here, or says in a line why not and returns 1.
build_for_gpu() {
  local gpu lacks architecture cudnn nccl log=build/cuda.log
  gpu=$(gpu_name) || { echo "No NVIDIA GPU here: training on the CPU."; return 1; }
  lacks=$(cuda_build_lacks)
  if [ -n "$lacks" ]; then
    echo "A GPU is here ($gpu), but not $lacks: training on the CPU."
    return 1
  fi
  find_nvcc
  nccl=$(find_library libnccl.so.2) || nccl="none (needed for several GPUs only)"
  echo "GPU: $gpu; nvcc: $(command -v nvcc); cuDNN: $(cudnn_root); NCCL: $nccl"
  architecture=$(gpu_architecture) || { echo "Its driver does not say what GPU that is: training on the CPU."; return 1; }
  cudnn=$(cudnn_root)
  mkdir -p build
  if ! build cuda -DATHANOR_CUDA_ARCHITECTURES="$architecture" -DCUDNN_ROOT="$cudnn" 2>&1 | tee "$log"; then
    echo "The cuda preset does not build here (see $log): training on the CPU."
    return 1
  fi
}

preset=cuda
build_for_gpu || { preset=cpu; build cpu; }

say "Training a CNN on handwritten digits"
[ $preset = cpu ] || use_libraries build/cuda/bin/train_digits
build/$preset/bin/train_digits "${arguments[@]}"

say "Next: build/$preset/bin/train_digits --help, or scripts/test.sh"
echo "The other programs: cmake --build --preset $preset --target examples"
