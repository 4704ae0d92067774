#!/usr/bin/env bash
# tool_exit_codes.sh ATHANOR GOLDEN: 0 and a file where all is well; else 2 and one line that says what is wrong.
set -euo pipefail
athanor=$1 golden=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$athanor" --help >/dev/null
"$athanor" run-op "$golden/relu.safetensors" --out "$folder/out.safetensors"
[ -s "$folder/out.safetensors" ] || { echo "run-op wrote nothing"; exit 1; }

head -c 100 "$golden/relu.safetensors" > "$folder/cut.safetensors"

refuses() { # refuses PATTERN ARGUMENTS...: exit code 2, one line on stderr that matches, nothing on stdout
  local pattern=$1 code=0
  shift
  "$athanor" "$@" > "$folder/stdout" 2> "$folder/stderr" || code=$?
  if [ "$code" -ne 2 ] || [ -s "$folder/stdout" ] || [ "$(wc -l < "$folder/stderr")" -ne 1 ] ||
    ! grep -qE -- "$pattern" "$folder/stderr"; then
    printf 'athanor %s: expected code 2 and one line like "%s", but got code %s and:\n' "$*" "$pattern" "$code"
    cat "$folder/stdout" "$folder/stderr"
    exit 1
  fi
}
out=(--out "$folder/out.safetensors")
refuses 'subcommand'
refuses "mean 'run-op'" run-up
[[ $("$athanor" --version) =~ ^athanor\ \(Athanor\)\ [0-9]+\. ]] || { echo "--version prints no version"; exit 1; }
refuses "predict: .*'--topk'.*'--top'.*predict --help" predict a b --topk 5
refuses 'all 2 shards .*: a, b' pack a b c
refuses 'predict: .*--top = abc.*number.*predict --help' predict a b --top abc
refuses 'predict: MODEL .*predict --help' predict
refuses '--batch-size: must be in .*but got 0' predict a b --batch_size 0
refuses '--out' run-op "$golden/relu.safetensors"
refuses 'absent' run-op "$folder/absent.safetensors" "${out[@]}"
refuses 'cut.safetensors' run-op "$folder/cut.safetensors" "${out[@]}"
refuses '--impl' run-op "$golden/relu.safetensors" "${out[@]}" --impl eigen
refuses 'abacus' run-op "$golden/relu.safetensors" "${out[@]}" --device abacus
refuses 'absent' run-op "$golden/relu.safetensors" --out "$folder/absent/out.safetensors"
refuses 'libmicrohttpd-dev|absent' serve "$folder/absent"
refuses 'there is none' pack "$folder/absent" "$folder/a.athp"
refuses 'absent' convert "$folder/absent" "$folder/a.onnx"
refuses 'relu.safetensors' convert "$golden/relu.safetensors" "$folder/a.onnx"
refuses 'DST' pack "$folder"
refuses "--image-size: must be PIXELS or HEIGHTxWIDTH, as in 224 or 192x320, but got '-3'" plan lenet5 --image-size -3
refuses '--classes: must be at least 1, but got -1' plan lenet5 --classes -1
refuses "--gpu: must be one of .*h100, .*h200, .*but got 'h300'; did you mean" plan lenet5 --gpu h300
refuses '--batch-size: must be in' plan lenet5 --gpu h200 --batch-size 0
refuses '--precision: T4, 16 GB has no tensor cores for bf16' plan lenet5 --gpu t4 --precision bf16
refuses '--json: needs --gpu' plan lenet5 --json
refuses 'threads' pack "$folder" "$folder/a.athp" --threads -1
refuses 'must be one of' inspect "$golden/relu.safetensors"
echo text > "$folder/text"
refuses 'must be one of: .*but is text' inspect "$folder/text"
mkdir -p "$folder/runs/latest" && touch "$folder/runs/latest/model.safetensors"
refuses 'absent .*there is none' predict "$folder/absent" x
refuses "is no run's folder" predict "$folder" x
refuses "mean '.*runs/latest'" predict "$folder/runs" x
refuses '--limit: .* 0 to [0-9]{13};' pack a b --limit -1
refuses '--image-size: must be at least 1' convert a b --image-size 0
refuses 'there is none' verify "$folder/absent"
printf 'p' > "$folder/large.bin"
printf '\376\377\377\177' > "$folder/labels.bin"
echo '{"height": 1, "width": 1, "labels": "labels.bin", "label_dtype": "u32"}' > "$folder/large.json"
refuses 'at most 1000000 classes' inspect "$folder/large.bin"
# The account of a step, for programs and for people.
"$athanor" plan lenet5 --batch-size 8 --precision f16 --gpu h200 --json > "$folder/account.json"
python3 - "$folder/account.json" <<'END'
import json, sys
account = json.load(open(sys.argv[1]))
assert account["prediction"] is True, account
for sum_of in ("launches", "bytes", "flops"):
    assert account["total"][sum_of] == sum(row[sum_of] for row in account["layers"]) > 0, sum_of
assert account["total"]["seconds"] > 0
assert any(row["assumed"] for row in account["layers"]) and not all(row["assumed"] for row in account["layers"])
END
"$athanor" plan lenet5 --gpu a100 > "$folder/account.txt"
grep -q 'A prediction: nothing here is measured' "$folder/account.txt" && grep -q '^total' "$folder/account.txt"

# What a terminal would obey is shown as text.
for command in inspect verify flight; do
  refuses '\\x1b\[31mred' $command "$folder/"$'\e[31mred'
  if grep -q $'\e' "$folder/stderr"; then echo "athanor $command: an escape in a name was printed raw"; exit 1; fi
done
"$athanor" plan --help >"$folder/stdout"
if grep -v '^Usage:' "$folder/stdout" | grep -E '.{81}' || grep -E '^  --[a-z-]+ [A-Z]+ +\[' "$folder/stdout"; then
  echo "athanor plan --help: expected lines of 80 columns, and a word on each flag"
  exit 1
fi
