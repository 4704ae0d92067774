#!/usr/bin/env bash
# test_minutes_test.sh: what scripts/test.sh --minutes does to presets of a made-up project that do not end in time, and that
# it still finds a failure. The variable SECONDS says how long the script has run: it begins with most of a minute.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/scripts"
cp "$here"/../../scripts/{common,gpu_env,test,test_progress}.sh "$folder/scripts"
printf '#!/bin/sh\n' >"$folder/scripts/install_packages.sh"
chmod +x "$folder/scripts/install_packages.sh"
cat >"$folder/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(athanor NONE)
message(STATUS "athanor: made up")
include(${PROJECT_BINARY_DIR}.cmake)
enable_testing()
add_custom_target(wait ALL COMMAND sleep ${BUILD})
foreach(i RANGE 1 ${COUNT})
  add_test(NAME t${i} COMMAND sleep ${EACH})
endforeach()
EOF
names=(cpu simt cuda cpu-asan cpu-tsan)
presets() { # presets FORMAT: JSON of a preset for each name
  local name rows=()
  for name in "${names[@]}"; do rows+=("$(printf "$1" "$name" "$name")"); done
  local IFS=,
  printf '[%s]' "${rows[*]}"
}
printf '{ "version": 6, "configurePresets": %s, "buildPresets": %s, "testPresets": %s }' \
  "$(presets '{"name": "%s", "generator": "Ninja", "binaryDir": "${sourceDir}/build/%s"}')" \
  "$(presets '{"name": "%s", "configurePreset": "%s"}')" "$(presets '{"name": "%s", "configurePreset": "%s"}')" \
  >"$folder/CMakePresets.json"
mkdir "$folder/build"
preset() { printf 'set(BUILD %s)\nset(COUNT %s)\nset(EACH %s)\n' "$2" "$3" "$4" >"$folder/build/$1.cmake"; }
for name in "${names[@]}"; do preset $name 0 2 0; done

die() { echo "$*"; cat "$folder/out"; exit 1; }
check() { # check CODE SECONDS: --minutes 1 of which so many seconds are over
  local code=0
  SECONDS=$2 "$folder/scripts/test.sh" --all --minutes 1 >"$folder/out" 2>&1 || code=$?
  [ "$code" -eq "$1" ] || die "expected code $1, but got $code"
}
says() { grep -qE -- "$1" "$folder/out" || die "expected '$1'"; }

check 0 0
says '^cpu-tsan .* 2 passed, 0 failed, 0 skipped$'
says '^(8|10) passed, 0 failed' # with cuda only where there is a toolkit

preset simt 100 2 0
check 0 50
says '^simt .* stopped: not built when 1 minutes were over'

preset simt 0 100 1
check 0 50
says '^simt .* [0-9]+ passed, 0 failed, 0 skipped; stopped when 1 minutes were over: [0-9]+ tests did not run'

preset cpu 6 2 0 # so cpu-asan takes about 6.6 seconds
preset simt 0 2 0
check 0 48
says '^cpu-asan .* not run: it takes about 0\.. minutes here, and 0\.. of 1 are left'

preset cpu 0 100 1 # which must be done
check 1 57
says '^cpu .* stopped when 1 minutes were over'
preset cpu 100 2 0
check 1 57
says '^cpu .* stopped: not built'
preset cpu 0 2 0

preset simt 0 2 nothing # fails at once
check 1 0
says '^simt .* 0 passed, 2 failed, 0 skipped$'
