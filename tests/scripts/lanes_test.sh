#!/usr/bin/env bash
# lanes_test.sh: scripts/test.sh on a made-up project: which presets and tests each lane runs, and that it finds what fails.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/scripts"
cp "$here"/../../scripts/{common,gpu_env,test}.sh "$folder/scripts"
printf '#!/bin/sh\n' >"$folder/scripts/install_packages.sh"
chmod +x "$folder/scripts/install_packages.sh"
cat >"$folder/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(athanor NONE)
message(STATUS "athanor: made up")
get_filename_component(preset ${PROJECT_BINARY_DIR} NAME)
string(PREPEND preset "not ")
enable_testing()
add_custom_target(quick_tests)
add_custom_target(tests COMMAND test "${preset}" != "not $ENV{DOES_NOT_BUILD}" VERBATIM)
foreach(lane quick all every)
  if(NOT lane STREQUAL "every" OR ATHANOR_EVERY_TEST)
    add_test(NAME ${lane}.passes COMMAND true)
    add_test(NAME ${lane}.fails COMMAND sh -c "echo '1 < 2 & 3 > 2'; test '${preset}' != 'not $ENV{FAILS}'")
    add_test(NAME ${lane}.skips COMMAND sh -c "echo no teapot here; exit 77")
    set_tests_properties(${lane}.passes ${lane}.fails ${lane}.skips PROPERTIES LABELS ${lane} SKIP_RETURN_CODE 77)
  endif()
endforeach()
EOF
presets() { # presets FORMAT: JSON of a preset for each name
  local name rows=()
  for name in cpu simt cpu-asan cpu-tsan; do rows+=("$(printf "$1" "$name" "$name")"); done
  local IFS=,
  printf '[%s]' "${rows[*]}"
}
printf '{ "version": 6, "configurePresets": %s, "buildPresets": %s, "testPresets": %s }' \
  "$(presets '{"name": "%s", "generator": "Ninja", "binaryDir": "${sourceDir}/build/%s"}')" \
  "$(presets '{"name": "%s", "configurePreset": "%s"}')" "$(presets '{"name": "%s", "configurePreset": "%s"}')" \
  >"$folder/CMakePresets.json"
sed -i 's/^\( *--all) presets=\).*/\1(cpu simt cpu-asan cpu-tsan) ;;/' "$folder/scripts/test.sh" # no preset of a toolkit

die() { printf '%s\n' "$*" "$output"; exit 1; }
run() { # run CODE ARGUMENT...
  local want=$1 code=0
  shift
  rm -rf "$folder/build"
  output=$(CI='' bash "$folder/scripts/test.sh" "$@" 2>&1 </dev/null) || code=$?
  [ $code -eq "$want" ] || die "test.sh $*: code $code, not $want"
}
says() { grep -qxE "$1" <<<"$output" || die "no line is: $1"; }
last() { [ "$(tail -n 1 <<<"$output")" = "$1" ] || die "the last line must be: $1"; }

run 0
last "4 passed, 0 failed, 2 skipped"
says "  quick.skips: no teapot here"
says "cpu +[0-9.]+ +[0-9.]+   4 passed, 0 failed, 2 skipped"
run 0 --quick
last "2 passed, 0 failed, 1 skipped"
FAILS=simt run 1 --all
last "14 passed, 2 failed, 8 skipped"
says "simt +[0-9.]+ +[0-9.]+   2 passed, 2 failed, 2 skipped"
says "  quick.fails:"
says '    1 < 2 & 3 > 2'
says "cpu-tsan +[0-9.]+ +[0-9.]+   4 passed, 0 failed, 2 skipped"
DOES_NOT_BUILD=cpu-asan run 1 --all
says "cpu-asan +[0-9.]+ +-   does not build"
last "12 passed, 0 failed, 6 skipped"
FAILS=simt run 0 --all cpu cpu-tsan
last "8 passed, 0 failed, 4 skipped"
run 2 --all cuda
says "cuda must be one of cpu simt cpu-asan cpu-tsan"
run 2 --minutes
run 2 --all --quick
