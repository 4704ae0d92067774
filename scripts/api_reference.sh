#!/usr/bin/env bash
# scripts/api_reference.sh [--check] [DIR]: the API reference of all public headers by Doxygen, as HTML in DIR (build/api); prints where.
# --check writes nothing there, and only looks for warnings. Code 1 on a warning; 2 without Doxygen (apt-get install doxygen).
# A warning's line is that of the header as docs/api/filter.py writes it, which is a little longer than the header.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
set -euo pipefail
check=no out=$root/build/api
for argument; do
  case $argument in
    --check) check=yes ;;
    -*) sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}"; exit 2 ;;
    *) out=$(mkdir -p "$argument" && cd "$argument" && pwd) ;;
  esac
done
command -v doxygen >/dev/null || { echo "scripts/api_reference.sh: needs doxygen, which is not in PATH: apt-get install doxygen" >&2; exit 2; }
cd "$root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mapfile -t headers < <(scripts/public_headers.sh .)
python3 docs/api/filter.py . "$work/source" "${headers[@]}"
cp docs/api/main.md "$work/source/"
{
  cat docs/api/Doxyfile
  printf 'INPUT = %s\nRECURSIVE = YES\nSTRIP_FROM_PATH = %s\nUSE_MDFILE_AS_MAINPAGE = %s\n' "$work/source" "$work/source" "$work/source/main.md"
  echo "PROJECT_NUMBER = $(sed -n 's/^project(athanor VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
  echo "OUTPUT_DIRECTORY = $work"
  echo "WARN_LOGFILE = $work/warnings"
  [ $check = no ] || printf 'GENERATE_HTML = NO\nGENERATE_XML = YES\n'
} >"$work/Doxyfile"
doxygen "$work/Doxyfile" >"$work/said" 2>&1 || { cat "$work/said" "$work/warnings" >&2; exit 1; }
if [ -s "$work/warnings" ]; then
  sed "s|^$work/source/||" "$work/warnings" >&2
  exit 1
fi
if [ $check = no ]; then
  mkdir -p "$out"
  rm -rf "$out/html"
  mv "$work/html" "$out/html"
  echo "$out/html/index.html"
fi
