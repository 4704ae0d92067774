#!/usr/bin/env bash
# scripts/api_reference.sh [--check] [DIR]: the API reference of all public headers by Doxygen, as HTML in DIR (build/api); prints where.
# --check writes nothing there, and only looks for warnings. Code 1 on a warning; 2 without Doxygen (apt-get install doxygen).
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
{
  cat docs/api/Doxyfile
  echo "INPUT = docs/api/main.md $(sed -n 's/^  \([a-z].*\.h\)$/\1/p' cmake/headers.cmake | tr '\n' ' ')"
  echo "PROJECT_NUMBER = $(sed -n 's/^project(athanor VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
  echo "OUTPUT_DIRECTORY = $work"
  echo "WARN_LOGFILE = $work/warnings"
  [ $check = no ] || printf 'GENERATE_HTML = NO\nGENERATE_XML = YES\n'
} >"$work/Doxyfile"
doxygen "$work/Doxyfile" >"$work/said" 2>&1 || { cat "$work/said" "$work/warnings" >&2; exit 1; }
if [ -s "$work/warnings" ]; then
  sed "s|^$root/||" "$work/warnings" >&2
  exit 1
fi
if [ $check = no ]; then
  mkdir -p "$out"
  rm -rf "$out/html"
  mv "$work/html" "$out/html"
  echo "$out/html/index.html"
fi
