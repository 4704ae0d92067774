#!/usr/bin/env bash
# scripts/kernel_report.sh [--build DIR] [--check LIST]: what each kernel of the library costs on the chip, one line
# each, the most registers first: registers, shared bytes (static), stack bytes, bytes spilled, architecture, source,
# name. Read from what ptxas said when DIR (by default build/cuda) was built; no GPU is needed.
#   --check LIST   instead, fails where a kernel on LIST spills, keeps a stack or needs more registers than LIST allows.
#                  A line of LIST: source, regular expression for the whole name, most registers, and perhaps the first
#                  architecture (80 for sm_80) for which that holds, or the first and the last (80-90).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/cuda list=""
while [ $# -gt 0 ]; do
  case $1 in
    --build | --check) [ $# -ge 2 ] || { echo "kernel_report.sh: $1 must be followed by a path" >&2; exit 2; }
      [ "$1" = --build ] && build=$2 || list=$2
      shift 2 ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "kernel_report.sh: must be --build DIR or --check LIST, but got '$1'" >&2; exit 2 ;;
  esac
done
[ -f "$build/cuda_objects.txt" ] ||
  { echo "kernel_report.sh: $build must be a configured build with the cuda preset, but has no cuda_objects.txt" >&2; exit 2; }

# registers, shared, stack, spilled, architecture, source and name, by tabs. Template arguments carry no spaces, and
# no namespaces of ours.
table() {
  local object
  while read -r object; do
    [ -f "$object.ptxas" ] || { echo "kernel_report.sh: $object is not built" >&2; return 2; }
    c++filt <"$object.ptxas" | awk -v source="$(basename "$object" .cu.o)" '
      # The name without parameters, spaces and namespaces of ours.
      function readable(name,  at, depth, c) {
        sub(/^void /, "", name)
        gsub(/\(anonymous namespace\)::/, "", name)
        gsub(/athanor::(cuda::|kernels::)?/, "", name)
        gsub(/\([A-Za-z_:]+\)-?[0-9]/, "#&", name)  # an argument of a type of its own: (Activation)1
        gsub(/#\([A-Za-z_:]+\)/, "", name)
        for (at = 1; at <= length(name); ++at) {
          c = substr(name, at, 1)
          depth += (c == "<") - (c == ">")
          if (c == "(" && depth == 0) break
        }
        name = substr(name, 1, at - 1)
        gsub(/unsigned char/, "u8", name)
        gsub(/unsigned short/, "u16", name)
        gsub(/unsigned int/, "u32", name)
        gsub(/unsigned long( long)?/, "u64", name)
        gsub(/ /, "", name)
        return name
      }
      /Compiling entry function/ { split($0, quoted, "\047"); name = readable(quoted[2]); architecture = quoted[4] }
      / bytes stack frame/ { stack = $1; spilled = $5 + $9 }
      /: Used [0-9]+ registers/ {
        shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART) + 0 : 0
        match($0, /Used [0-9]+/)
        printf "%d\t%d\t%d\t%d\t%s\t%s\t%s\n", substr($0, RSTART + 5, RLENGTH - 5), shared, stack, spilled, architecture, source, name
      }'
  done < <(grep '\.cu\.o$' "$build/cuda_objects.txt") | sort -t$'\t' -k1,1nr -k4,4nr -k6,6 -k7,7
}

if [ -z "$list" ]; then
  table | awk -F'\t' '
    BEGIN { printf "%9s %6s %5s %7s  %-6s %-14s %s\n", "registers", "shared", "stack", "spilled", "arch", "source", "kernel" }
    { printf "%9d %6d %5d %7d  %-6s %-14s %s\n", $1, $2, $3, $4, $5, $6, $7 }'
  exit
fi

table | awk -F'\t' -v list="$list" '
  function complain(text) { print text; bad = 1 }
  BEGIN {
    while ((got = getline line < list) > 0) {
      if (line ~ /^ *(#|$)/) continue
      if ((fields = split(line, field, " ")) < 3 || fields > 4 || field[3] !~ /^[0-9]+$/ ||
          (fields == 4 && field[4] !~ /^[0-9]+(-[0-9]+)?$/)) {
        complain(list ": a line must be source, pattern, registers and perhaps an architecture, but is: " line)
        continue
      }
      ++patterns; source[patterns] = field[1]; pattern[patterns] = "^(" field[2] ")$"; most[patterns] = field[3]
      ends = fields > 3 ? split(field[4], range, "-") : 0
      first[patterns] = ends > 0 ? range[1] + 0 : 0; last[patterns] = ends > 1 ? range[2] + 0 : 1000; found[patterns] = 0
    }
    if (got < 0 || patterns == 0) { print list ": must be a list of kernels, but has none"; failed = 1; exit }
  }
  {
    for (i = 1; i <= patterns; ++i) {
      if ($6 != source[i] || $7 !~ pattern[i]) continue
      ++found[i]
      architecture = substr($5, 4) + 0
      if (architecture < first[i] || architecture > last[i]) continue
      hot[$5 $6 $7] = 1
      where = $6 ".cu: " $7 " (" $5 ")"
      if ($4 > 0) complain(where " must not spill, but moves " $4 " bytes to and from local memory")
      else if ($3 > 0) complain(where " must keep no stack, but has " $3 " bytes: an array indexed at run time?")
      if ($1 > most[i]) complain(where " must need at most " most[i] " registers, but needs " $1)
    }
  }
  END {
    if (failed) exit 1
    for (i = 1; i <= patterns; ++i)
      if (!found[i]) complain(list ": no kernel of " source[i] ".cu is called " pattern[i])
    for (name in hot) ++count
    printf "%d kernels on the hot list, %d in all\n", count, NR
    exit bad
  }'
