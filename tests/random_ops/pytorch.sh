#!/usr/bin/env bash
# Measures PyTorch's errors on the cases of random_ops, and writes them to pytorch.csv beside this script.
#
#     pytorch.sh RANDOM_OPS PYTHON [CASES]     PYTHON has torch and safetensors; 20000 cases
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" --cases "${3:-20000}" --dump "$folder"
"$2" "$here/pytorch.py" "$folder"
"$1" --cases "${3:-20000}" --measure "$folder" --csv "$here/pytorch.csv"
