#!/usr/bin/env bash
# tool_report.sh BIN SOURCE: a run leaves its report, also when a signal ends it; athanor report makes pages of folders, and
# says in a line what is wrong with one.
source "$(dirname "${BASH_SOURCE[0]}")/tool.sh"

page() { python3 "$source/tests/programs/report_page.py" "$@" || die "page $*"; }
train() { "$bin/train_digits" --device cpu --threads 1 "$@" >out 2>err; }
refuses() { # refuses PATTERN ARGUMENTS...
  local pattern=$1 code=0
  shift
  "$bin/athanor" report "$@" >out 2>err || code=$?
  [ "$code" -eq 2 ] && [ "$(wc -l <err)" -eq 1 ] && [ ! -s out ] || die "report $*: expected code 2 and a line, got $code"
  grep -qE -- "$pattern" err || die "report $*: expected '$pattern'"
}

train --epochs 3 --run-dir "a <b> & \"c\"" || die "it does not train"
page "a <b> & \"c\"/report.html" "a <b> & \"c\""
train --epochs 2 --lr 0.05 --report off --run-dir b || die "--report off"
[ ! -e b/report.html ] || die "--report off left one"
"$bin/athanor" report b >out || die "of a folder without one"
grep -qx "b/report.html: the report of b" out || die "what it has written"
page b/report.html

# While it trains, a page is there, and a signal leaves it whole.
"$bin/train_digits" --device cpu --threads 1 --epochs 1000000 --run-dir c >out 2>err &
until [ -e c/report.html ]; do kill -0 $! || die "it does not train"; sleep 0.1; done
page c/report.html
grep -q 'class="badge live"' c/report.html || die "it does not run"
kill -TERM $! # bash starts what is in the background with SIGINT ignored
code=0
wait $! || code=$?
[ "$code" -eq 143 ] || die "expected 143, but got $code"
grep -q "stopped by SIGTERM" c/report.html || die "how it ended"
page c/report.html c

"$bin/athanor" report a* b c --out all.html >out || die "a comparison"
grep -qx "all.html: 3 runs compared" out || die "what it has written"
page all.html
grep -q '<tr class="differs"><th scope="row"><code>--lr</code></th><td>0.1</td><td>0.05</td><td>0.1</td></tr>' all.html || die "--lr differs"

refuses "there must|RUN" # none
refuses "report: nowhere must be the folder of a run" b nowhere
refuses "no/where.html" b --out no/where.html
mkdir damaged && head -c 100 b/metrics.jsonl >damaged/metrics.jsonl && head -c 50 b/config.json >damaged/config.json
"$bin/athanor" report damaged b --out damaged.html >out || die "damaged files"
page damaged.html
grep -q "config.json is damaged" damaged.html && grep -q "lines of metrics.jsonl are damaged" damaged.html || die "it says nothing of that"
