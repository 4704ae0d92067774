# Sourced by tests of users' projects: what the programs of examples/own_kernels must say, and compiling for a GPU.
fail() { printf '%s\n' "$@"; exit 1; }

check_race() { # check_race PROGRAM EXAMPLE: the correct kernel passes, and the planted race is reported with its line
  local code=0 found line
  "$1" || fail "$1: the correct kernel must pass"
  found=$("$1" racy) || code=$?
  line=$(grep -n 'partial\[threadIdx.x\] +=' "$2/row_sum.cu" | cut -d: -f1)
  [[ $code = 1 && $found == *"kernel row_sum_racy: race in shared memory"*"row_sum.cu:$line,"* ]] ||
    fail "the race at row_sum.cu:$line must be reported with code 1, but code $code says:" "$found"
}

compile_for_gpu() { # compile_for_gpu FILE.cu OPTION...: where there is nvcc
  local nvcc
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
  [ -z "$nvcc" ] || "$nvcc" -std=c++20 "${@:2}" -c "$1" -o "${1%.cu}.o"
}
