#!/usr/bin/env bash
# api_reference.sh SOURCE: Doxygen reads all public headers without a warning; a mistake in a comment is one.
set -euo pipefail
root=$1
command -v doxygen >/dev/null || { printf '%s: Skipped\ndoxygen is not installed here\n' "$0"; exit 77; }
"$root/scripts/api_reference.sh" --check
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/docs" "$folder/scripts" "$folder/tensor"
cp -r "$root/docs/api" "$folder/docs/" && cp "$root"/scripts/{api_reference,public_headers}.sh "$folder/scripts/"
echo 'athanor_headers(planted.h)' >"$folder/tensor/CMakeLists.txt"
echo 'project(athanor VERSION 1.2.3 LANGUAGES CXX)' >"$folder/CMakeLists.txt"
printf '#pragma once\n/// \\param nobody has that name\nvoid f(int a);\n' >"$folder/tensor/planted.h"
! said=$("$folder/scripts/api_reference.sh" --check 2>&1) || { echo "a planted mistake is not found: $said"; exit 1; }
grep -q 'planted.h.*nobody' <<<"$said" || { echo "$said"; exit 1; }
