#!/usr/bin/env bash
# table.sh CHAPTER: the table between the chapter's markers is what the command above it prints, but for the times. --print
# writes the table instead.
set -euo pipefail
print=0
[ "$1" != --print ] || { print=1; shift; }
chapter=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk '/<!-- counters -->/ { inside = 1; next } /<!-- end of counters -->/ { inside = 0 } inside' "$chapter" >"$folder/part"
command=$(sed -n 's/^    scripts\///p' "$folder/part")
[ -n "$command" ] || { echo "$chapter states no command between its markers"; exit 1; }
"$root/scripts/"$command >"$folder/printed"
[ $print = 0 ] || { cat "$folder/printed"; exit; }
without_times() { grep '^|' "$1" | sed 's/[^|]*|$//'; }
diff <(without_times "$folder/part") <(without_times "$folder/printed") || { echo "the table in $chapter is not what $command prints"; exit 1; }
