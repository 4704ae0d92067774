#!/usr/bin/env bash
# Installs what is missing, builds the tests of the cpu preset and runs them: the lanes quick and all (cmake/testing.cmake).
#   --quick   the lane quick alone, in process: two minutes
#   --all     what a change must pass: all of cpu, and simt, cuda, cpu-asan and cpu-tsan; of ptx, products by tensor cores
#   --every   the lane every of these, too, and simt-asan, simt-race, smpi and aarch64: hours, once a week
#   PRESET... only these of them
# Left out are smpi where there is no SimGrid, cuda and ptx where there is no toolkit for them, and aarch64 where its cross compiler,
# emulator and libraries cannot be had. --werror makes warnings errors, as CI=true does.
# The last line counts passed, failed and skipped tests; above it a table has the minutes of each preset, each skipped test
# says why, and each failed one shows the end of what it printed.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

presets=(cpu)
packages=(python3 libmicrohttpd-dev libwebp-dev) # some scripts under test are written in the first; the tool is tested whole
target=tests
settings_of_lane=()
tests_of_lane=()
case "${1-}" in
  --quick) target=quick_tests tests_of_lane=(-L quick) ;;
  --all) presets=(cpu simt ptx cuda cpu-asan cpu-tsan) ;;
  --every)
    presets=(cpu simt ptx cuda cpu-asan cpu-tsan simt-asan simt-race smpi aarch64)
    settings_of_lane=(-DATHANOR_EVERY_TEST=ON -DATHANOR_ONE_ISA=OFF)
    ;;
esac
only=()
for argument; do
  case "$argument" in
    --werror) werror=yes ;;
    --quick | --all | --every) [ "$argument" = "$1" ] || fail 2 "give one of --quick, --all and --every, and give it first" ;;
    [a-z]*)
      [[ " ${presets[*]} " = *" $argument "* ]] || fail 2 "$argument must be one of ${presets[*]}"
      only+=("$argument")
      ;;
    *) fail 2 "usage: scripts/test.sh [--quick | --all | --every] [--werror] [PRESET...]" ;;
  esac
done
[ ${#only[@]} -eq 0 ] || presets=("${only[@]}")

[[ " ${presets[*]} " != *san* ]] || packages+=(clang libclang-rt-dev libomp-dev) # it takes half of g++'s time for a sanitizer
set_up "${packages[@]}"
jobs=$(($(nproc) + 1)) # tests: some wait for time to pass
status=0
rows=()
passed=0 failed=0 skipped=0
skips=""
failed_tests=""

in_minutes() { awk -v s="$1" 'BEGIN { printf "%.1f", s / 60 }'; }
row() { rows+=("$(printf '%-10s %7s %7s   %s' "$@")"); } # row PRESET BUILD TESTS RESULT

# Counts and skipped tests of a JUnit file: "passed failed skipped", then "name: why" for each skipped one, or, where
# more than a few say the same, "n tests, such as name: why". Why is the line GoogleTest prints after
# `file:line: Skipped`, else the first line of all.
summarise() {
  awk '
    function attribute(line, key) {
      return match(line, key "=\"[^\"]*\"") ? substr(line, RSTART + length(key) + 2, RLENGTH - length(key) - 3) : ""
    }
    /<testcase / {
      name = attribute($0, "name"); status = attribute($0, "status"); why = ""; first = ""; reason_next = 0
      if (status == "run") passed++
      else if (status == "notrun" || status == "disabled") skipped++
      else failed++
    }
    reason_next { why = $0; reason_next = 0 }
    sub(/.*<system-out>/, "") { sub(/<\/system-out>.*/, ""); first = $0 }
    /: Skipped/ { reason_next = 1 }
    /<\/testcase>/ {
      if (status == "notrun" || status == "disabled") {
        if (why == "") why = first == "" ? "gave no reason" : first
        if (!(why in count)) reasons[++kinds] = why
        names[why, ++count[why]] = name
      }
    }
    END {
      printf "%d %d %d\n", passed, failed, skipped
      for (k = 1; k <= kinds; k++) {
        why = reasons[k]
        if (count[why] > 5) printf "  %d tests, such as %s: %s\n", count[why], names[why, 1], why
        else for (i = 1; i <= count[why]; i++) printf "  %s: %s\n", names[why, i], why
      }
    }
  ' "$1"
}

# The failed tests of a JUnit file, each with the end of what it printed.
failures() {
  awk '
    function show(  i) {
      print "  " name ":"
      for (i = n > 25 ? n - 24 : 1; i <= n; i++) print "    " line[i]
    }
    /<testcase / {
      match($0, /name="[^"]*"/)
      name = substr($0, RSTART + 6, RLENGTH - 7)
      failed = $0 ~ /status="fail"/
      n = 0
    }
    sub(/.*<system-out>/, "") { printing = 1 }
    printing && failed {
      text = $0
      ended = sub(/<\/system-out>.*/, "", text)
      gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&quot;/, "\"", text); gsub(/&amp;/, "\\&", text)
      if (text != "") line[++n] = text
    }
    /<\/system-out>/ { printing = 0 }
    /<\/testcase>/ { if (failed) show() }
  ' "$1"
}

# The tests that took longest, of a JUnit file: "a.b 41 s, c.d 30 s".
slowest() {
  sed -n 's/.*<testcase name="\([^"]*\)".* time="\([0-9.]*\)".*/\2 \1/p' "$1" | sort -rn | sed -n 1,5p |
    awk '{ printf "%s%s %.0f s", (NR > 1 ? ", " : ""), $2, $1 } END { print "" }'
}

# The cross compiler, the emulator, and what programs link to. On ARM itself the lane cpu tests all of it.
prepare_aarch64() {
  [ "$(uname -m)" = x86_64 ] && scripts/install_packages.sh g++-aarch64-linux-gnu qemu-user && scripts/arm64_sysroot.sh
}

for preset in "${presets[@]}"; do
  settings=($(isa_setting "$preset") "${settings_of_lane[@]}")
  programs=$target
  without=() # tests that cannot run here
  case $preset in
    smpi) command -v smpirun >/dev/null || { row smpi - - "skipped: no SimGrid here (libsimgrid-dev)"; continue; } ;;
    ptx)
      find_nvcc || { row ptx - - "skipped: no nvcc here"; continue; }
      if [ "${1-}" = --every ]; then
        settings+=(-DATHANOR_PTX_SOURCES=)
      else
        settings+=(-DATHANOR_PTX_SOURCES='matmul[.]cu') # cp.async, ldmatrix, mma; tests/ptx has mbarrier, TMA and wgmma
      fi
      ;;
    aarch64)
      prepare_aarch64 ||
        { row aarch64 - - "skipped: no cross compiler with its libraries here (Debian on x86-64)"; continue; }
      ;;
    cuda)
      lacks=$(cuda_build_lacks)
      [ -z "$lacks" ] || { row cuda - - "skipped: no $lacks here"; continue; }
      find_nvcc
      settings+=(-DCUDNN_ROOT="$(cudnn_root)")
      # Without a GPU: what nvcc makes of every kernel, and the tests that need none (plans, the kernel report).
      if ! gpu_name >/dev/null; then
        settings+=(-DATHANOR_BUILD_BENCH=OFF -DATHANOR_BUILD_EXAMPLES=OFF) without=(-LE '^gpu$' -E '_NOT_BUILT$')
        [ "${1-}" = --every ] || programs=tests_without_gpu
      fi
      ;;
  esac
  targets=("$programs")
  [ "$preset" != cpu ] || [ "${1-}" != --every ] || targets=(all tests) # benchmarks that no test runs, too

  say "$preset: building"
  start=$SECONDS
  if ! { configure "$preset" "${settings[@]}" && cmake --build --preset "$preset" --target "${targets[@]}"; }; then
    status=1
    row "$preset" "$(in_minutes $((SECONDS - start)))" - "does not build"
    continue
  fi
  built=$SECONDS

  say "$preset: testing"
  report=build/$preset/ctest.xml
  rm -f "$report"
  # What each test printed is in build/PRESET/Testing/Temporary/LastTest.log.
  ctest --preset "$preset" -j "$jobs" "${tests_of_lane[@]}" "${without[@]}" --progress --output-junit "$root/$report" || status=1
  { read -r p f s; names=$(cat); } < <(summarise "$report")
  if [ "$programs" != "$target" ]; then
    names+="${names:+$'\n'}  tests of a device: neither built nor run, for there is no GPU"
  elif [ ${#without[@]} -gt 0 ]; then # each would take a second to say so
    need=$(ctest --preset "$preset" -N "${tests_of_lane[@]}" -L '^gpu$' | sed -n 's/^Total Tests: //p')
    s=$((s + need)) names+="${names:+$'\n'}  $need tests: they need a GPU"
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  echo "slowest: $(slowest "$report")"
  [ "$f" -eq 0 ] || failed_tests+="$preset"$'\n'"$(failures "$report")"$'\n'
  [ -z "$names" ] || skips+="$preset"$'\n'"$names"$'\n'
  row "$preset" "$(in_minutes $((built - start)))" "$(in_minutes $((SECONDS - built)))" "$p passed, $f failed, $s skipped"
done

[ "$failed" -eq 0 ] || status=1
if [ -n "$skips" ]; then
  say "Skipped"
  printf '%s' "$skips"
fi
if [ -n "$failed_tests" ]; then
  say "Failed"
  printf '%s' "$failed_tests"
fi
say "$(printf '%-10s %7s %7s   %s' preset build tests 'result (minutes)')"
printf '%s\n' "${rows[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
