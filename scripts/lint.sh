#!/usr/bin/env bash
# scripts/lint.sh [--install] [FILE...]: clang-format and clang-tidy (both 14) over FILEs, by default all sources.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ "${1-}" = --install ]; then
  shift
  apt-get install -y --no-install-recommends clang-format-14 clang-tidy-14
fi
files=()
for file in "$@"; do files+=("$(realpath "$file")"); done
set_up
configure cpu -B build/lint -DATHANOR_UNITY=OFF # each source with its flags
command -v clang-format-14 clang-tidy-14 >/dev/null || fail 2 "clang-format-14 and clang-tidy-14 are needed: scripts/lint.sh --install"
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(
  find "$root"/{simt,tensor,kernels,autograd,nn,optim,dist,data,trainer,examples,bench,tests} \
    \( -name '*.h' -o -name '*.cpp' \) -not -path '*/compile_fail/*' 2>/dev/null | sort)

clang-format-14 --dry-run --Werror "${files[@]}"
# Headers are checked through the sources that include them. What the cpu preset does not compile has no flags here.
printf '%s\n' "${files[@]}" | grep '\.cpp$' |
  grep -Fxf <(sed -n 's/^ *"file": "\(.*\)".*/\1/p' build/lint/compile_commands.json) |
  xargs -P "$(nproc)" -n 1 clang-tidy-14 -p build/lint --quiet --extra-arg=-Wno-unknown-warning-option
