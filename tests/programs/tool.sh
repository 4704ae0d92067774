# Sourced by tests of the tool, tool_NAME.sh BIN SOURCE: BIN has the programs, SOURCE is this project. Each works in a folder of
# its own, which is gone when it ends.
set -Eeuo pipefail
trap 'echo "line $LINENO: $BASH_COMMAND: code $?"' ERR
bin=$1 source=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset ATHANOR_RUNS_DIR
cd "$folder"

die() { echo "$*"; cat out err 2>/dev/null; exit 1; }
athanor() { # athanor CODE ARGUMENTS...
  local want=$1 code=0
  shift
  "$bin/athanor" "$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "athanor $*: expected code $want, but got $code"
}
