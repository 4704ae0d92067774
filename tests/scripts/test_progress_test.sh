#!/usr/bin/env bash
# test_progress_test.sh: what scripts/test_progress.sh shows of a ctest that is made up.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
die() { echo "$*"; cat -v "$folder/out"; exit 1; }
says() { grep -qF -- "$1" "$folder/out" || die "expected '$1'"; }
silent() { ! grep -qF -- "$1" "$folder/out" || die "did not expect '$1'"; }

cat >"$folder/ctest" <<'EOF'
echo '      Start   1: A.b/0'
echo '      Start   2: launch.lost'
sleep 2.2
echo ' 1/10 Test  #1: A.b/0 .............   Passed    0.25 sec'
echo '      Start   3: C.d'
printf ' 2/10 Test  #3: C.d ....'
sleep 1.3
echo '....***Failed    0.10 sec'
echo 'why it failed'
echo ' 3/10 Test  #2: launch.lost ..........***Skipped   0.10 sec'
sleep 1.2
EOF
# All of it at once: each takes as long as the ctest that is made up.
terminal=yes
script -qec true /dev/null </dev/null >/dev/null 2>&1 || terminal=no
[ $terminal = no ] ||
  script -qec "bash '$folder/ctest' | '$here/../../scripts/test_progress.sh'" /dev/null </dev/null >"$folder/live" &
bash "$folder/ctest" | "$here/../../scripts/test_progress.sh" 60 >"$folder/seldom" &
bash "$folder/ctest" | "$here/../../scripts/test_progress.sh" 1 >"$folder/out"
wait
says '0 of ? tests, 0 failed; running: '
says '1 of 10 tests, 0 failed; running: '
says ' 2/10 Test  #3: C.d ........***Failed    0.10 sec' # one line, though it came in two pieces
says 'why it failed'
says '3/10 Test  #2: launch.lost'
says '3 of 10 tests, 1 failed; running: '
silent 'Passed'
silent 'Start'
[ "$(tail -n 1 "$folder/out" | sed 's/.*running: //')" = "" ] || die "nothing runs any more at the end"

# Nobody who reads a file waits for more than a line in SECONDS.
mv "$folder/seldom" "$folder/out"
silent 'running: '

[ $terminal = yes ] || { echo "no script(1), or no pseudo-terminal: the live line was not tried"; exit 0; }
mv "$folder/live" "$folder/out"
says "$(printf '\r\033[K')1 of 10 tests, 0 failed; running: "
says 'why it failed'
