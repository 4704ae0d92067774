#!/usr/bin/env bash
# configure_bare_test.sh BIN: the project configures on a machine that has only what scripts/install_packages.sh requires: no
# Python, which nothing but tests uses, and none of the optional libraries.
set -euo pipefail
build=$(dirname "$1")
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")

off=()
for name in HDF5 LIBZIP LMDB MPI ONEDNN SERVE WEBP; do off+=("-DATHANOR_$name=OFF"); done
CXX=$compiler cmake -S "$project" -B "$folder" -G "$generator" "${off[@]}" -DCMAKE_DISABLE_FIND_PACKAGE_Python3=ON \
  >"$folder/out" 2>&1 || { cat "$folder/out"; exit 1; }
! grep -F Python3_EXECUTABLE "$folder/CMakeCache.txt" || { echo "Python was looked for in some other way"; exit 1; }
