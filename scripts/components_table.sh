#!/usr/bin/env bash
# Writes the table of parts in docs/reference/components.md (between its two markers) from the results of the last test run,
# build/cpu/ctest.xml. --check only says whether it is up to date. Run scripts/test.sh first.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
results=build/cpu/ctest.xml
[ -f "$results" ] || fail 2 "no test results yet: run scripts/test.sh first"

# part | own code or library | tests that prove it (regular expression) | how | where
parts() {
  sed 's/^ *//' scripts/components.txt | grep -v '^#'
}

table() {
  echo '| part | own code or library | proven how | where |'
  echo '|---|---|---|---|'
  parts | awk -v results="$results" '
    function attribute(line, key) {
      return match(line, key "=\"[^\"]*\"") ? substr(line, RSTART + length(key) + 2, RLENGTH - length(key) - 3) : ""
    }
    function trim(s) { gsub(/^ +| +$/, "", s); return s }
    BEGIN {
      while ((getline line < results) > 0)
        if (line ~ /<testcase /) status[attribute(line, "name")] = attribute(line, "status")
      FS = " *\\| +"
    }
    {
      passed = failed = 0
      # A test over many cases is called Where/Suite.Test/case.
      for (name in status) if (name ~ ("^([A-Za-z]+/)?(" $3 ")")) {
        if (status[name] == "run") passed++
        else if (status[name] != "notrun" && status[name] != "disabled") failed++
      }
      if (passed == 0) { print "no test passed that matches " $3 > "/dev/stderr"; exit 1 }
      printf "| %s | %s | %s: %d test%s%s | %s |\n", $1, $2, trim($4), passed, passed == 1 ? "" : "s",
        failed ? sprintf(", **%d FAIL**", failed) : "", trim($5)
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
