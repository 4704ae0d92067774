#!/usr/bin/env bash
# Measures PyTorch's errors on the cases of random_ops. Writes, beside this script, pytorch.csv, the largest ones, and
# pytorch_others.csv: results that are other numbers with PyTorch, in cases where ours are beyond PyTorch's errors, too.
#
#     pytorch.sh RANDOM_OPS PYTHON [CASES]     PYTHON has torch and safetensors; 100000 cases
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cases=${3:-100000}
"$1" --cases "$cases" --dump "$folder"
"$2" "$here/pytorch.py" "$folder"
"$1" --cases "$cases" --measure "$folder" --csv "$here/pytorch.csv" --others "$folder/others.csv"
("$1" --cases "$cases" --limits "$here/pytorch.csv" || true) |
  sed -n 's/^--seed 0 --op \([a-z0-9_]*\) --case \([0-9]*\):.*/\1,\2/p' > "$folder/beyond"
awk -F, 'NR == FNR { beyond[$1 "," $2]; next } FNR == 1 || ($1 "," $2) in beyond' "$folder/beyond" "$folder/others.csv" \
  > "$here/pytorch_others.csv"
