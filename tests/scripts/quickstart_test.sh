#!/usr/bin/env bash
# quickstart_test.sh: what scripts/quickstart.sh builds and trains on, by what it finds: a GPU, nvcc, cuDNN. The build is
# made up.
set -euo pipefail
unset ATHANOR_RUNS_DIR
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
source "$here/gpu/project.sh"
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "trained by $0 $*"\n' >"$folder/programs/train_digits"
chmod +x "$folder/programs/train_digits"

die() { echo "$*"; cat "$folder/out"; exit 1; }
run() { "$folder/project/scripts/quickstart.sh" "$@" >"$folder/out" 2>&1 || die "quickstart.sh failed"; }
says() { grep -qF -- "$1" "$folder/out" || die "expected '$1'"; }

FAKE_GPU=none run --epochs 2
says 'No NVIDIA GPU here: training on the CPU.'
says 'trained by build/cpu/bin/train_digits --epochs 2'

PATH=$folder/toolkit/bin:$PATH run --epochs 2
says 'GPU: NVIDIA H200; nvcc:'
says "configured --preset cuda -DATHANOR_CUDA_ARCHITECTURES=90a-real -DCUDNN_ROOT=$folder/cudnn"
says 'trained by build/cuda/bin/train_digits --epochs 2'

FAKE_BROKEN=1 PATH=$folder/toolkit/bin:$PATH run
says 'The cuda preset does not build here'
says 'trained by build/cpu/bin/train_digits'

# What is missing is named.
rm "$folder/toolkit/include/cublasLt.h"
PATH=$folder/toolkit/bin:$PATH run
says 'A GPU is here (NVIDIA H200), but not cuBLAS beside nvcc'
says 'trained by build/cpu/bin/train_digits'

# The model of the run is asked for a digit.
cat >"$folder/programs/train_digits" <<'END'
#!/bin/sh
mkdir -p runs/train_digits/3 && ln -sfn 3 runs/train_digits/latest && echo model >runs/train_digits/3/model.safetensors
END
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "told by $0 $*"\n' >"$folder/programs/athanor"
chmod +x "$folder/programs/athanor"
FAKE_GPU=none run
says 'told by build/cpu/bin/athanor picture digits 7 runs/train_digits/3/digit.png'
says 'told by build/cpu/bin/athanor predict runs/train_digits/3 runs/train_digits/3/digit.png'
printf '#!/bin/sh\necho nothing left\n' >"$folder/programs/train_digits"
FAKE_GPU=none run --run-dir none
! grep -q 'told by' "$folder/out" || die "an earlier model is asked"

# Warnings are errors in CI alone.
CI=true FAKE_GPU=none run
says 'ATHANOR_WERROR=ON'
CI='' run
! grep -F WERROR "$folder/out" "$here/../../CMakePresets.json" || die "a warning of some new compiler would keep people out"
