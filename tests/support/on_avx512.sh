#!/usr/bin/env bash
# on_avx512.sh PROGRAM [ARGUMENT...]: runs it on a CPU with AVX-512, where it would take other code without being told to.
grep -qw avx512f /proc/cpuinfo || {
  echo "on_avx512.sh: Skipped"
  echo "this CPU has no AVX-512: the tests run its code for AVX2 anyway"
  exit 77
}
exec "$@"
