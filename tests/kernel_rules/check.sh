#!/usr/bin/env bash
# check.sh ROOT: what kernels must not contain, for neither the emulator nor a test here would notice that it is wrong
# (docs/what_emulation_cannot_see.md). Prints file:line: rule for each place, and their number.
set -euo pipefail
cd "$1"

awk '
  function complain(rule) { printf "%s:%d: %s\n", FILENAME, FNR, rule; ++violations }
  FNR == 1 { unbounded = 0 }
  { code = $0; sub(/\/\/.*/, "", code); gsub(/"[^"]*"/, "\"\"", code) }

  { bare = code; gsub(/asm +volatile/, "asm", bare) }

  # Nothing whose meaning hangs on the order in which memory becomes visible, or on threads that run at once.
  bare ~ /__threadfence|[^_a-z]volatile[^_a-z]|__nanosleep|this_grid|cuda::atomic|cuda::barrier/ { complain("relies on fences or on waiting: use a second kernel") }
  $0 ~ /#include *<(cooperative_groups|cub\/|cuda\/|curand)/ { complain("the emulator has no such header") }
  $0 ~ /#include *<(cuda_fp16|cuda_bf16|mma)/ { complain("sixteen-bit numbers are tensor/half.h") }

  # One way to launch.
  code ~ /<<</ { complain("launch by cuda::launch") }
  code ~ /extern +__shared__/ { complain("dynamic shared memory is cuda::dynamic_shared") }

  # The same numbers everywhere.
  code ~ /__(exp10f|expf|log2f|log10f|logf|sinf|cosf|sincosf|tanf|tanhf|powf|fdividef)[^a-z_]/ || code ~ /[^a-z_]rsqrtf? *\(/ { complain("an approximate intrinsic") }
  code ~ /std::(exp2?|expm1|log2?|log1p|log10|tanh|erfc?|sin|cos|tan|pow) *\(/ { complain("the bits differ from those of the CPU: kernels/math.h") }

  # ptxas must know the block, or registers times threads may be more than there are.
  code ~ /__global__/ { unbounded = FNR }
  unbounded && code ~ /__launch_bounds__/ { unbounded = 0 }
  unbounded && code ~ /[{;]/ { printf "%s:%d: a kernel must state __launch_bounds__\n", FILENAME, unbounded; ++violations; unbounded = 0 }

  END { printf "%d violations\n", violations; exit violations > 0 }
' kernels/cuda/*.cu kernels/cuda/*.h
