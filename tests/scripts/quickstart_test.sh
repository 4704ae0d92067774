#!/usr/bin/env bash
# quickstart_test.sh: what scripts/quickstart.sh builds and trains on, by what it finds: a GPU, nvcc, cuDNN. The build is
# made up.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{path,project,toolkit/{bin,include,lib64},cudnn/{include,lib}}
cp -r "$here/../../scripts" "$folder/project/scripts"
printf '#!/bin/sh\n' >"$folder/project/scripts/install_packages.sh"
ln -s "$here/gpu/nvidia-smi" "$folder/path/nvidia-smi"
cat >"$folder/path/cmake" <<'END'
#!/usr/bin/env bash
# Configures and builds by writing a train_digits that says where it is. FAKE_BROKEN: the cuda preset fails.
case "$*" in
  --version) echo "cmake version 3.25.1" ;;
  --build*) mkdir -p "build/$3/bin"
    printf '#!/bin/sh\necho "trained with %s $*"\n' "$3" >"build/$3/bin/train_digits"
    chmod +x "build/$3/bin/train_digits" ;;
  *) [ "$2" != cuda ] || [ -z "${FAKE_BROKEN-}" ] || { echo "no compiler"; exit 1; }
    echo "-- athanor: configured $*" ;;
esac
END
printf '#!/bin/sh\n' >"$folder/toolkit/bin/nvcc"
touch "$folder/toolkit/include/cublasLt.h" "$folder/cudnn/include/cudnn_backend.h" "$folder/cudnn/lib/libcudnn.so.9"
chmod +x "$folder"/{path/cmake,toolkit/bin/nvcc,project/scripts/install_packages.sh}
export PATH=$folder/path:$PATH NVIDIA_PROC=$folder/none

die() { echo "$*"; cat "$folder/out"; exit 1; }
run() { "$folder/project/scripts/quickstart.sh" "$@" >"$folder/out" 2>&1 || die "quickstart.sh failed"; }
says() { grep -qF -- "$1" "$folder/out" || die "expected '$1'"; }

FAKE_GPU=none run --epochs 2
says 'No NVIDIA GPU here: training on the CPU.'
says 'trained with cpu --epochs 2'

export CUDA_HOME=$folder/toolkit CUDNN_ROOT=$folder/cudnn
PATH=$folder/toolkit/bin:$PATH run --epochs 2
says 'GPU: NVIDIA H200; nvcc:'
says "configured --preset cuda -DATHANOR_CUDA_ARCHITECTURES=90a-real -DCUDNN_ROOT=$folder/cudnn"
says 'trained with cuda --epochs 2'

FAKE_BROKEN=1 PATH=$folder/toolkit/bin:$PATH run
says 'The cuda preset does not build here'
says 'trained with cpu'

# What the compiler lacks is named.
rm "$folder/toolkit/include/cublasLt.h"
PATH=$folder/toolkit/bin:$PATH run
says 'A GPU is here (NVIDIA H200), but not cuBLAS beside nvcc'
says 'trained with cpu'
