#!/usr/bin/env bash
# tool_serve.sh BIN SOURCE: two short runs on the digits, and athanor serve behind them: tests/programs/tool_serve.py.
source "$(dirname "${BASH_SOURCE[0]}")/tool.sh"

"$bin/train_digits" --device cpu --epochs 3 --run-dir one >out 2>err || { cat out err; exit 1; }
"$bin/train_digits" --device cpu --epochs 1 --seed 7 --run-dir two >out 2>err || { cat out err; exit 1; }
mkdir pictures
python3 "$source/tests/programs/digit_pictures.py" "$source/data/digits/digits.csv.gz" pictures 100
env -u http_proxy PYTHONDONTWRITEBYTECODE=1 python3 "$source/tests/programs/tool_serve.py" "$bin/athanor" one two pictures
