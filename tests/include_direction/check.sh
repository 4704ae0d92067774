#!/usr/bin/env bash
# check.sh ROOT: prints `file:line: what is wrong` for every include that breaks a rule, and fails if there is one.
#   1. A folder includes only itself and the folders below it, with quotes or with angle brackets. simt/ is below tensor/cuda/
#      and kernels/cuda/ alone, and has nothing below it.
#      Of simt/ they see what is for both compilers, in simt/include/; nothing there includes simt/emulator/, which simt/ptx/ does.
#      So are the headers that simt/ has stand-ins for, and their vendor's others; NCCL's is dist/'s too.
#   2. Public headers (scripts/public_headers.sh) include public headers, the standard library and fmt.
set -euo pipefail
declare -A public=()
while read -r header; do public[$header]=1; done < <("$(dirname "${BASH_SOURCE[0]}")/../../scripts/public_headers.sh" "$1")
cd "$1"

declare -A below=(
  [simt]=""
  [tensor]="simt"
  [kernels]="tensor simt"
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
folders=()
for folder in "${!below[@]}"; do [ -d "$folder" ] && folders+=("$folder"); done

while IFS=: read -r file line text; do
  folder=${file%%/*}
  allowed="$folder ${below[$folder]}"
  [[ $file =~ ^(simt|tensor/cuda|kernels/cuda)/ ]] || allowed=${allowed/ simt/}
  [[ $text =~ (\"|\<)([^\">]+) ]] || continue
  target=${BASH_REMATCH[2]} of=${BASH_REMATCH[2]%%/*}
  if [[ $target == simt/emulator/* && ! $file =~ ^simt/(emulator|ptx)/ ]]; then
    report "$file:$line: simt/emulator/ is for the emulator alone; but includes $target"
  elif [[ ${BASH_REMATCH[1]} == \" || ($target == */* && -n ${below[$of]+ours}) ]]; then
    if [[ " $allowed " != *" $of "* ]]; then
      report "$file:$line: $folder/ may include only: $allowed; but includes $target"
    elif [[ -n ${public[$file]+is} && -z ${public[$target]+is} ]]; then
      report "$file:$line: a public header may include only public ones; but includes $target"
    fi
  elif [[ $target =~ [./] && $target != fmt/* && -n ${public[$file]+is} ]]; then
    report "$file:$line: a public header may include only the standard library and fmt; but includes <$target>"
  elif [[ $target =~ ^(cuda|cudnn|cublas|nccl) && ! $file =~ ^simt/|^(tensor|kernels)/cuda/|^dist/.*nccl ]]; then
    report "$file:$line: <$target> belongs to tensor/cuda/, kernels/cuda/ and NCCL's files in dist/"
  fi
done < <(grep -rnE --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' \
  '^[[:space:]]*#[[:space:]]*include' "${folders[@]}")

[ "$violations" -eq 0 ] || { echo "$violations violations"; exit 1; }
