#!/usr/bin/env bash
# tool_serve.sh BIN SOURCE [PART]: short runs on the digits, and athanor serve behind them: tests/programs/tool_serve.py, or
# PART of v2 (serve_v2.py), tritonclient (serve_tritonclient.py), nginx (serve_nginx.py) and soak (serve_soak.py).
source "$(dirname "${BASH_SOURCE[0]}")/tool.sh"

part=${3-} python=python3
skip() { printf 'tool_serve.sh %s: Skipped\n%s\n' "$part" "$*"; exit 77; }
if [ "$part" = tritonclient ]; then
  for python in python3 "${ATHANOR_PEERS_VENV:-$HOME/.cache/athanor/peers}/bin/python3" none; do
    "$python" -c 'import tritonclient.http' 2>/dev/null && break
  done
  [ "$python" != none ] || skip "no python3 here has tritonclient: pip install 'tritonclient[http]'"
elif [ "$part" = nginx ]; then
  for program in nginx openssl; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || skip "$program is not installed here"
  done
fi

"$bin/train_digits" --device cpu --epochs 3 --run-dir one >out 2>err || { cat out err; exit 1; }
"$bin/train_digits" --device cpu --epochs 1 --seed 7 --run-dir two >out 2>err || { cat out err; exit 1; }
mkdir pictures
python3 "$source/tests/programs/digit_pictures.py" "$source/data/digits/digits.csv.gz" pictures 100
run() { env -u http_proxy PYTHONDONTWRITEBYTECODE=1 "$python" "$@"; }
case $part in
  '') run "$source/tests/programs/tool_serve.py" "$bin/athanor" one two pictures ;;
  soak) run "$source/tests/programs/serve_soak.py" "$bin/athanor" one two pictures --requests 2000 ;;
  nginx) run "$source/tests/programs/serve_nginx.py" "$bin/athanor" one pictures "$source/examples/serve/nginx.conf" ;;
  *) run "$source/tests/programs/serve_$part.py" "$bin/athanor" one two pictures ;;
esac
