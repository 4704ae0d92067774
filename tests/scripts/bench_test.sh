#!/usr/bin/env bash
# bench_test.sh BIN: scripts/bench.sh over benchmarks that are made up, with times that they make up, too; the rule on made-up and on
# recorded noise (bench_rule.py); and, where one is built, a real binary.
set -euo pipefail
bin=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
source "$here/../support/python.sh"
export PYTHONDONTWRITEBYTECODE=1
python3 "$here/bench_rule.py" "$root" "$here"/bench_noise.json

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
die() { echo "$*"; cat out err 2>/dev/null; exit 1; }
bench() { # bench CODE ARGUMENTS...
  local want=$1 code=0
  shift
  "$root/scripts/bench.sh" --bin bin "$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "bench.sh $*: expected code $want, but got $code"
}
says() { grep -qE -- "$1" "${2-out}" || die "expected '$1'"; }
json() { python3 -c "import json, sys; d = json.load(open('$1')); sys.exit(not ($2))" || die "$1: not so: $2"; }

# made_up NAME SLOWER: a benchmark of four rows; the second takes SLOWER times as long, the fourth is wrong. Hundreds are started: in bash,
# which begins in 2 ms, and in millionths.
made_up() {
  mkdir -p "$(dirname "$1")"
  cat >"$1" <<END
#!/usr/bin/env bash
slower=$2
END
  cat >>"$1" <<'END'
LC_ALL=C
[ "$1" = --worker ] || exit 1
printf -v slower %.0f "${slower}e6"
printf -v planted %.0f "${2}e6"
declare -A ns=([a/f32]=1000000 [b/f32]=2000000 [c/bf16]=500000)
one() { printf '%s"%s": {"bytes": %s, "flops": 3e6}' "$@"; }
echo "{\"name\": \"bench_one\", \"threads\": 2, \"cases\": {$(one '' a/f32 1e6; one , b/f32 1e6; one , c/bf16 0; one , d/f32 1e6)}}"
noise=$((RANDOM + RANDOM + RANDOM + RANDOM - 65534)) # of a deviation of 18918: here half a per cent
while read -r row variant _; do
  case $variant:$row in
    roof:*) echo '{"bytes_per_s": 2e9, "flops_per_s": 1e11}' ;;
    *:d/f32) echo '{"error": "max error 1, but at most 0.1 is allowed"}' ;;
    *)
      time=$((ns[$row] * (1000000 + noise * 5000 / 18918) / 1000000 * (1000000 + planted) / 1000000))
      [ "$row" != b/f32 ] || time=$((time * slower / 1000000))
      echo "{\"seconds\": [${time}e-9, ${time}e-9, ${time}e-9]}" ;;
  esac
done
END
  chmod +x "$1"
}
made_up bin/bench_one 1

# Times, and the larger part of a roof. A wrong result is a row without a time.
bench 0 one --json one.json --markdown one.md
json one.json '90 < d["benchmarks"]["bench_one"]["a/f32"]["roof_percent"] * 2 < 110 and d["benchmarks"]["bench_one"]["a/f32"]["roof_name"] == "copy"'
json one.json 'd["benchmarks"]["bench_one"]["c/bf16"]["roof_name"] == "FMA" and "gb_per_s" not in d["benchmarks"]["bench_one"]["c/bf16"]'
json one.json '"max error" in d["benchmarks"]["bench_one"]["d/f32"]["error"] and d["machine"]["processor"] and d["command"].startswith("scripts/bench.sh one ")'
says '^\| a/f32 \| [0-9.,]+ \| [0-9.,]+ \.\. [0-9.,]+ \| 1\.0[0-9]+ \| 3\.[0-9]+ \| [0-9]+ copy \|$|^\| a/f32 .* \| 50 copy \|$' one.md

# The same binary: nothing. One that takes 5 % longer in one row: that one, and code 1. The old one is kept, whatever is built meanwhile.
bench 0 one --against one.json
says '^3 rows compared in turns with the old binaries: 0 changed, 0 too noisy$'
made_up bin/bench_one 1.05
bench 1 one --against one.json --json two.json --markdown two.md
says '^- slower b/f32: ' two.md
says '^slower b/f32: 1\.0[45][0-9] of the old time, 1\.0[0-9]+ \.\. 1\.0[0-9]+ \([0-9]+ launches\)$'
[ "$(grep -c '^slower\|^faster' out)" -eq 1 ] || die "other rows are reported"
json two.json 'd["comparison"]["b/f32"]["change"] == "slower" and d["comparison"]["a/f32"]["change"] == "none"'
made_up old/bench_one 1.2
bench 0 one --against old
says '^faster b/f32: 0\.8'
bench 0 one --against old --rows '^a'
says '^1 rows compared'

# Without the old binary: recorded times, and only what is large.
python3 - <<'END'
import json
report = json.load(open("one.json"))
report["binaries"] = {"bench_one": "/nowhere/bench_one"}
json.dump(report, open("gone.json", "w"))
report["machine"]["processor"] = "another"
json.dump(report, open("other.json", "w"))
END
bench 0 one --against gone.json
says 'by recorded times \(the old binaries are gone; 10 % and more are seen\): 0 changed'
made_up bin/bench_one 1.3
bench 1 one --against gone.json
says '^slower b/f32: 1\.[23]'
bench 2 one --against other.json
says 'was measured on another, but this is ' err

# The comparison tried on itself: a planted slowdown of all rows is seen.
made_up bin/bench_one 1
bench 0 one --trial 1 --record noise.json
says '^a build with itself: nothing reported in 1 of 1 comparisons of 4 rows$'
says '^planted 5 % slower: reported in 1 of 1'
json noise.json 'len(d["a/f32"]) >= 5 and all(0.9 < ratio < 1.1 for ratio in d["a/f32"])'

# One line about what is wrong with arguments, and nothing written.
bench 1 nothing --json none.json
says '^bench: .* must have bench_nothing, but has one$' err
echo '{}' >empty.json
for file in missing.json empty.json bin/bench_one; do
  bench 2 one --against "$file" --json none.json
  [ "$(wc -l <err)" -eq 1 ] && says "^bench: --against $file: must be a file of --json or a folder of binaries" err
done
bench 2 --json
[ ! -e none.json ] || die "something is written"

# A real binary answers as the made-up ones do.
if [ -x "$bin/bench_softmax" ]; then
  mkdir real
  ln -s "$bin/bench_softmax" real/bench_softmax
  "$root/scripts/bench.sh" --bin real softmax --rows '^softmax/fwd/f32/cpu/16384x10/' --seconds 0.01 --json real.json >out 2>err || die "bench_softmax"
  json real.json '(row := d["benchmarks"]["bench_softmax"]["softmax/fwd/f32/cpu/16384x10/athanor"])["median_us"] > 0 and row["roof_percent"] > 0'
fi
