#!/usr/bin/env bash
# Writes the table of parts in docs/reference/components.md (between its two markers) from scripts/components.txt and the
# results of the last test run, build/cpu/ctest.xml. --check only says whether it is up to date. Run scripts/test.sh first:
# where a test has failed there is no table, nor where one belongs to no part or to several.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
results=build/cpu/ctest.xml
[ -f "$results" ] || fail 2 "no test results yet: run scripts/test.sh first"

table() {
  grep -v '^#' scripts/components.txt | awk -v results="$results" '
    function attribute(line, key) {
      return match(line, key "=\"[^\"]*\"") ? substr(line, RSTART + length(key) + 2, RLENGTH - length(key) - 3) : ""
    }
    # Of Suite.Test, Files/Suite.Test/case and drill.kill: Suite, Suite, drill.
    function suite(name) {
      sub(/^[A-Za-z0-9_]+\//, "", name)
      sub(/[.\/].*/, "", name)
      return name
    }
    function complain(what) { print "components_table.sh: " what > "/dev/stderr"; wrong = 1 }
    BEGIN {
      while ((getline line < results) > 0)
        if (line ~ /<testcase /) status[attribute(line, "name")] = attribute(line, "status")
      FS = " +\\| +"
      print "| part | own code or library | proven how | where |"
      print "|---|---|---|---|"
    }
    {
      passed = 0
      for (name in status) if (suite(name) ~ ("^(" $3 ")$")) {
        if (name in part) complain(name " belongs to two parts: " part[name] "; " $1)
        part[name] = $1
        if (status[name] == "run") passed++
      }
      if (passed == 0) complain("no test has passed of: " $1)
      printf "| %s | %s | %s: %d test%s | %s |\n", $1, $2, $4, passed, passed == 1 ? "" : "s", $5
    }
    END {
      for (name in status) {
        if (!(name in part)) complain(name " belongs to no part: add its suite to scripts/components.txt")
        if (status[name] != "run" && status[name] != "notrun" && status[name] != "disabled") complain(name " has failed: mend it first")
      }
      exit wrong
    }'
}

new=$(mktemp)
trap 'rm -f "$new" "$new.table"' EXIT
table > "$new.table"
awk -v table="$new.table" '
  /<!-- parts -->/ { print; while ((getline line < table) > 0) print line; skip = 1; next }
  /<!-- end of parts -->/ { skip = 0 }
  !skip { print }
' docs/reference/components.md > "$new"

if [ "${1-}" = --check ]; then
  cmp -s "$new" docs/reference/components.md || fail 1 "docs/reference/components.md is not up to date: run scripts/components_table.sh"
else
  cat "$new" > docs/reference/components.md
fi
