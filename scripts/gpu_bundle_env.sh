# source athanor-gpu/env.sh: afterwards the programs in athanor-gpu/bin find CUDA, cuDNN and NCCL, in their usual places
# or in Python's nvidia-* wheels.
source "$(dirname "${BASH_SOURCE[0]}")/scripts/gpu_env.sh"
use_bundle "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
