#!/usr/bin/env bash
# serve_load_test.sh BIN: bench/serve/load.py over athanor serve, and over onnx_server.py beside it where a python3 has onnxruntime,
# and litserve_server.py where it has litserve.
bin=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
skip() { printf '%s: Skipped\n%s\n' "$0" "$*"; exit 77; }
command -v python3 >/dev/null || skip "python3 is not installed here"
[ -x "$bin/train_digits" ] && "$bin/athanor" serve --help >/dev/null 2>&1 || skip "athanor serve is not built here"
source "$root/tests/programs/tool.sh" "$bin" "$root"
export PYTHONDONTWRITEBYTECODE=1
unset http_proxy

load() { # load CODE MODEL ARGUMENTS...
  local want=$1 model=$2 code=0
  shift 2
  "$root/bench/serve/load.py" "$bin/athanor" "$model" pictures --seconds 0.2 "$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "load.py $model $*: expected code $want, but got $code"
}
says() { grep -q "$@" out || die "no line like $*"; }

"$bin/train_digits" --device cpu --epochs 2 --run-dir one >out 2>err || die "no model"
mkdir pictures
python3 "$root/tests/programs/digit_pictures.py" "$root/data/digits/digits.csv.gz" pictures 30
load 0 one
says '^| 95 % |'
says '^wrong answers: 0;'
"$bin/train_digits" --device cpu --epochs 1 --seed 7 --run-dir two >out 2>err || die "no second model"
load 0 one --dialect v2 --also two
says '^2 models: model0, model1'
says '^wrong answers: 0;'

for python in python3 "${ATHANOR_PEERS_VENV:-$HOME/.cache/athanor/peers}/bin/python3" none; do
  "$python" -c 'import numpy, onnxruntime, PIL' 2>/dev/null && break
done
[ "$python" != none ] || skip "no python3 here has onnxruntime, numpy and Pillow"

load 0 one --onnx "$python" --flags='--threads 1 --max-batch 6'
[ "$(grep -c '^| athanor |' out)" = 7 ] || die "athanor's rows"
[ "$(grep -c '^| ONNX Runtime |' out)" = 7 ] || die "ONNX Runtime's rows"
says '^athanor: 0 wrong answers,.*ONNX Runtime: 0 wrong answers,'
says '^ONNX Runtime: digits_cnn of .*, images 8x8x1, 1 threads, batches of up to 6 '

load 0 one --onnx "$python" --dialect v2 --turns 1
says '^athanor: 0 wrong answers,'
if "$python" -c 'import litserve' 2>/dev/null; then
  load 0 one --litserve "$python" --turns 1
  [ "$(grep -c '^| LitServe |' out)" = 7 ] || die "LitServe's rows"
  says '^athanor: 0 wrong answers,.*LitServe: 0 wrong answers,'
fi

# Answers to other requests are those of athanor serve; a file of another form is refused.
athanor 0 convert one one.onnx --preprocess
athanor 0 convert one plain.onnx
cat >others.py <<'OTHERS'
import sys
sys.path.insert(0, f"{sys.argv[1]}/tests/programs")
from serve_client import Server
ours = Server(sys.argv[2], "one")
theirs = Server(sys.argv[3], "one.onnx", command=f"{sys.argv[1]}/bench/serve/onnx_server.py")
for request in (("POST", "/predict", b"no picture"), ("POST", "/predict?top=x", b""), ("GET", "/predict"), ("GET", "/nowhere")):
    codes = ours.ask(*request)[0], theirs.ask(*request)[0]
    assert codes[0] == codes[1] >= 400, (request, codes)
assert ours.ask("GET", "/healthz")[2] == theirs.ask("GET", "/healthz")[2]
assert (ours.stop(), theirs.stop()) == (0, 0)
OTHERS
python3 others.py "$root" "$bin/athanor" "$python" >out 2>err || die "other requests"
"$python" "$root/bench/serve/onnx_server.py" plain.onnx --port 0 >out 2>err && die "it serves a graph without the normalisation"
grep -q 'must be written by athanor convert --preprocess' err || die "why it does not serve"

# One that serves another model than it is given is found out before anything is timed.
"$bin/train_digits" --device cpu --max-steps 1 --run-dir untrained >out 2>err || die "no second model"
athanor 0 convert untrained untrained.onnx --preprocess
printf '#!/usr/bin/env bash\nexec %q "$1" untrained.onnx "${@:3}"\n' "$python" >liar
chmod +x liar
load 1 one --onnx ./liar
says '^ONNX Runtime: 200 .* instead of '
! grep -q '^|' out || die "wrong classes were timed"
