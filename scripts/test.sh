#!/usr/bin/env bash
# Installs what is missing, builds the cpu preset and runs its tests. --all adds simt, cuda, cpu-asan and cpu-tsan; under
# AddressSanitizer and ThreadSanitizer without tests labelled slow. --every runs these, too, and adds simt-asan, simt-race,
# smpi and aarch64, which take as long again, and tries the recipes of HACKING.md. Left out are smpi where there is no SimGrid,
# cuda where there is no toolkit for it, and aarch64 where its cross compiler, emulator and libraries cannot be had. --werror
# makes warnings errors, as CI=true does.
# --minutes N starts no preset that would end after N minutes, going by how long cpu took on this machine, and stops one that
# is not done by then; the table names those. cpu must be done.
# The last line counts passed, failed and skipped tests; above it each skipped one says why.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

presets=(cpu)
lanes=()
took_cpu=0
sanitized=(-LE slow)
minutes=
while [ $# -gt 0 ]; do
  case "$1" in
    --all) presets=(cpu simt cuda cpu-asan cpu-tsan) ;;
    --every)
      presets=(cpu simt cuda cpu-asan cpu-tsan simt-asan simt-race smpi aarch64)
      lanes=(-C recipes) # HACKING's recipes, each of which builds a copy of the library
      sanitized=()
      ;;
    --werror) werror=yes ;;
    --minutes)
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || fail 2 "--minutes takes a whole number, not '${2-}'"
      minutes=$2
      shift
      ;;
    *) fail 2 "usage: scripts/test.sh [--all | --every] [--werror] [--minutes N]" ;;
  esac
  shift
done

set_up python3 libmicrohttpd-dev libwebp-dev # some scripts under test are written in the first; the tool is tested whole
jobs=$(nproc)
status=0
rows=()
passed=0 failed=0 skipped=0
skips=""

in_minutes() { awk -v s="$1" 'BEGIN { printf "%.1f", s / 60 }'; }

# How long a preset takes, in per cent of what cpu has taken: about, on two cores with a cold ccache, from the compiler's times.
declare -A share=([simt]=55 [cuda]=45 [cpu-asan]=110 [cpu-tsan]=50)

seconds_left() { # of --minutes, at least 1
  local left=$((minutes * 60 - SECONDS))
  echo $((left > 1 ? left : 1))
}
time_is_over() { [ -n "$minutes" ] && [ "$(seconds_left)" -eq 1 ]; }

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

# The tests that took longest, of a JUnit file: "a.b 41 s, c.d 30 s".
slowest() {
  sed -n 's/.*<testcase name="\([^"]*\)".* time="\([0-9.]*\)".*/\2 \1/p' "$1" | sort -rn | head -n 5 |
    awk '{ printf "%s%s %.0f s", (NR > 1 ? ", " : ""), $2, $1 } END { print "" }'
}

# The cross compiler, the emulator, and what programs link to. On ARM itself the lane cpu tests all of it.
prepare_aarch64() {
  [ "$(uname -m)" = x86_64 ] && scripts/install_packages.sh g++-aarch64-linux-gnu qemu-user && scripts/arm64_sysroot.sh
}

for preset in "${presets[@]}"; do
  settings=()
  if [ "$preset" = smpi ] && ! command -v smpirun >/dev/null; then
    rows+=("$(printf '%-10s %7s %7s   skipped: no SimGrid here (libsimgrid-dev)' smpi - -)")
    continue
  fi
  if [ "$preset" = aarch64 ] && ! prepare_aarch64; then
    rows+=("$(printf '%-10s %7s %7s   skipped: no cross compiler with its libraries here (Debian on x86-64)' aarch64 - -)")
    continue
  fi
  if [ "$preset" = cuda ]; then
    lacks=$(cuda_build_lacks)
    if [ -n "$lacks" ]; then
      rows+=("$(printf '%-10s %7s %7s   skipped: no %s here' cuda - - "$lacks")")
      continue
    fi
    find_nvcc
    settings=(-DCUDNN_ROOT="$(cudnn_root)")
    # Without a GPU: what nvcc makes of every kernel, and the tests that need none (plans, the kernel report).
    gpu_name >/dev/null || settings+=(-DATHANOR_BUILD_BENCH=OFF -DATHANOR_BUILD_EXAMPLES=OFF)
  fi
  expected=$(((took_cpu * ${share[$preset]-100} + 99) / 100))
  if [ -n "$minutes" ] && [ "$preset" != cpu ] && [ $expected -gt "$(seconds_left)" ]; then
    rows+=("$(printf '%-10s %7s %7s   not run: it takes about %s minutes here, and %s of %d are left' "$preset" - - \
      "$(in_minutes $expected)" "$(in_minutes "$(seconds_left)")" "$minutes")")
    continue
  fi
  # ccache has the loops for the CPU from the first preset, with code for AVX-512.
  [ "$preset" != simt ] || settings=(-DATHANOR_ONE_ISA=OFF)
  say "$preset: building"
  start=$SECONDS
  if ! { configure "$preset" "${settings[@]}" && ${minutes:+timeout "$(seconds_left)"} cmake --build --preset "$preset"; }; then
    why="does not build"
    if time_is_over; then why="stopped: not built when $minutes minutes were over"; fi
    if [ "$preset" = cpu ] || ! time_is_over; then status=1; fi
    rows+=("$(printf '%-10s %7s %7s   %s' "$preset" "$(in_minutes $((SECONDS - start)))" - "$why")")
    continue
  fi
  built=$SECONDS

  say "$preset: testing"
  report=build/$preset/ctest.xml
  rm -f "$report"
  # What each test printed is in build/PRESET/Testing/Temporary/LastTest.log.
  extra=()
  case $preset in
    cpu) extra=("${lanes[@]}") ;;
    cpu-asan | cpu-tsan) extra=("${sanitized[@]}") ;;
  esac
  [ -z "$minutes" ] || extra+=(--stop-time "$(date -d "+$(seconds_left) seconds" +%T)")
  log=build/$preset/ctest.log tests_failed=no
  ctest --preset "$preset" -j "$jobs" "${extra[@]}" --output-junit "$root/$report" | tee "$log" | scripts/test_progress.sh ||
    tests_failed=yes
  [ "$preset" != cpu ] || took_cpu=$((SECONDS - start))
  { read -r p f s; names=$(cat); } < <(summarise "$report")
  note=""
  if time_is_over; then # ctest ends those under way, and calls that a failure; the counts of the others decide
    f=$((f - $(grep -c '\*\*\*Timeout' "$log" || true)))
    total=$(ctest --preset "$preset" "${extra[@]}" -N | sed -n 's/^Total Tests: //p')
    missing=$((total - p - f - s))
    [ $missing -eq 0 ] || note="; stopped when $minutes minutes were over: $missing tests did not run"
    [ "$preset" != cpu ] || [ $missing -eq 0 ] || status=1
  elif [ $tests_failed = yes ]; then
    status=1
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  echo "slowest: $(slowest "$report")"
  [ -z "$names" ] || skips+="$preset"$'\n'"$names"$'\n'
  rows+=("$(printf '%-10s %7s %7s   %d passed, %d failed, %d skipped' "$preset" \
    "$(in_minutes $((built - start)))" "$(in_minutes $((SECONDS - built)))" "$p" "$f" "$s")$note")
done

[ "$failed" -eq 0 ] || status=1
if [ -n "$skips" ]; then
  say "Skipped"
  printf '%s' "$skips"
fi
say "$(printf '%-10s %7s %7s   %s' preset build tests 'result (minutes)')"
printf '%s\n' "${rows[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
