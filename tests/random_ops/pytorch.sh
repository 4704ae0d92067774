#!/usr/bin/env bash
# Measures PyTorch's errors on the cases of random_ops. Writes, beside this script, pytorch.csv, the largest ones, and
# pytorch_others.csv: every result that is another number with PyTorch, and whether ours is, too. Prints each.
#
#     pytorch.sh RANDOM_OPS PYTHON [CASES]     PYTHON has torch and safetensors; 100000 cases
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cases=${3:-100000}
"$1" --cases "$cases" --dump "$folder"
"$2" "$here/pytorch.py" "$folder"
"$1" --cases "$cases" --measure "$folder" --csv "$here/pytorch.csv" --others "$here/pytorch_others.csv"
