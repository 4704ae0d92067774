#!/usr/bin/env bash
# check.sh ROOT: prints `file:line: what is wrong` for every include that breaks a rule, and fails if there is one.
#   1. A folder includes only itself and the folders below it.
#   2. Public headers include our own headers, the standard library and fmt.
#   3. A header is listed in cmake/headers.cmake, or private: kernels/{cpu,cuda,simt}/, tensor/cuda/ or a folder detail/.
set -euo pipefail
cd "$1"

declare -A below=(
  [tensor]=""
  [kernels]="tensor"
  [autograd]="kernels tensor"
  [nn]="autograd kernels tensor"
  [optim]="autograd kernels tensor"
  [dist]="optim nn autograd kernels tensor"
  [data]="kernels tensor"
  [trainer]="dist data optim nn autograd kernels tensor"
)

violations=0
report() {
  printf '%s\n' "$*"
  violations=$((violations + 1))
}
is_public() { [[ ! $1 =~ (^kernels/(cpu|cuda|simt)/|^tensor/cuda/|(^|/)detail/) ]]; }

folders=()
for folder in "${!below[@]}"; do [ -d "$folder" ] && folders+=("$folder"); done

while IFS=: read -r file line text; do
  folder=${file%%/*}
  if [[ $text =~ \"([^\"]+)\" ]]; then
    target=${BASH_REMATCH[1]}
    case " $folder ${below[$folder]} " in
      *" ${target%%/*} "*) ;;
      *) report "$file:$line: $folder/ may include only: $folder ${below[$folder]}; but includes \"$target\"" ;;
    esac
  elif [[ $text =~ \<([^>]+)\> ]]; then
    target=${BASH_REMATCH[1]}
    if [[ $file == *.h && $target =~ [./] && $target != fmt/* ]] && is_public "$file"; then
      report "$file:$line: a public header may include only the standard library and fmt; but includes <$target>"
    fi
  fi
done < <(grep -rnE --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' \
  '^[[:space:]]*#[[:space:]]*include' "${folders[@]}")

while read -r file; do
  if is_public "$file" && ! grep -qxF "  $file" cmake/headers.cmake; then
    report "$file:1: is not listed in cmake/headers.cmake"
  fi
done < <(find "${folders[@]}" -name '*.h')

[ "$violations" -eq 0 ] || { echo "$violations violations"; exit 1; }
