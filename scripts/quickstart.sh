#!/usr/bin/env bash
# Installs what is missing, builds the library, train_digits and the tool `athanor`, trains a small CNN on the embedded
# digits, and asks the model that it leaves for a digit that it has not seen: on a GPU where one is found with nvcc and
# cuDNN, else on the CPU, saying what is missing.
# Arguments go to train_digits: scripts/quickstart.sh --epochs 5
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments=("$@")

set_up

# Shows what the model of a run says of a test image.
ask() { # ask TOOL RUN
  local picture=$2/digit.png
  say "The model's prediction for a digit that it was not trained on"
  echo "$1 picture digits 7 $picture" && "$1" picture digits 7 "$picture"
  echo "$1 predict $2 $picture" && "$1" predict "$2" "$picture"
}

build() { # build PRESET [-DNAME=VALUE...]
  say "Building train_digits and the tool athanor (build/$1, shared with scripts/test.sh)"
  configure "$@" $(isa_setting "$1") && cmake --build --preset "$1" --target train_digits athanor-tool
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
  architecture=$(gpu_architecture) || { echo "The driver does not report the GPU's architecture: training on the CPU."; return 1; }
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
began=$(mktemp)
trap 'rm -f "$began"' EXIT
build/$preset/bin/train_digits "${arguments[@]}"

# Its folder, unless flags say that there is none, or name another.
runs=${ATHANOR_RUNS_DIR:-runs}/train_digits
run=$runs/$(readlink "$runs/latest" || true)
if [ -e "$run/model.safetensors" ] && [ ! "$run/model.safetensors" -ot "$began" ]; then # their times may be equal
  echo
  ask "build/$preset/bin/athanor" "$run"
  echo
fi

say "Next: build/$preset/bin/train_digits --help, or scripts/test.sh"
echo "Your own photos: cmake --build --preset $preset --target train_images"
echo "All other programs: cmake --build --preset $preset --target examples"
