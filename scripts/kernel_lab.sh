#!/usr/bin/env bash
# scripts/kernel_lab.sh NAME...: checks kernels you wrote, without a GPU. Each NAME.cu in examples/kernel_lab/ is built
# with g++ for the emulator and
#   run with its threads in forward, reverse and random order, and compared with the reference of its task;
#   run with every access checked against the bounds of its array, and every two against each other for races;
#   counted, line by line: memory sectors, bank conflicts, divergence (simt/emulator/counters.h says what they are).
# Where there are nvcc and a GPU, it runs there too and is timed.
#   --dir DIR   the exercises are in DIR instead
#   --counters  only counts;  --table: as a Markdown table, one line a kernel
#   --gdb       builds the one NAME for a debugger, and starts gdb on it
#   --ptx       runs what nvcc makes of the kernels (simt/ptx/), in the three orders; with --gdb steps through it
#   --build     only builds: the emulator, and each NAME
#   --emulator  builds the emulator that finds races, and prints in three lines what a program of its own is compiled with,
#               what its kernels are besides, and what it is linked with
# Start with: cp examples/kernel_lab/my_kernel.cu examples/kernel_lab/mine.cu
# Needs g++ and fmt (libfmt-dev); the first run builds the emulator, later ones take seconds.
# Codes: 0 all right; 1 a kernel is wrong; 2 wrong arguments, or it does not compile.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

folder=$root/examples/kernel_lab mode=check form="" names=()
while [ $# -gt 0 ]; do
  case $1 in
    --dir) [ $# -ge 2 ] || fail 2 "--dir must be followed by a folder"; folder=$(cd "$2" && pwd) || exit 2; shift 2 ;;
    --counters | --table | --gdb | --build | --emulator) mode=${1#--}; shift ;;
    --ptx) form=ptx; shift ;;
    -h | --help) sed -n '2,18s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) fail 2 "kernel_lab.sh: no such flag: $1 (--help lists them)" ;;
    *) names+=("$1"); shift ;;
  esac
done
exercises() { cd "$folder" && ls -- *.cu | sed 's/\.cu$//' | tr '\n' ' '; }
[ ${#names[@]} -gt 0 ] || [ "$mode" = build ] || [ "$mode" = emulator ] || fail 2 "name an exercise: $(exercises)"
for name in "${names[@]}"; do
  [ -f "$folder/$name.cu" ] || fail 2 "there is no $folder/$name.cu; exercises: $(exercises)"
done
cd "$root"
lab=${KERNEL_LAB_BUILD:-$root/build/kernel_lab}
if [ -d "$root/lib" ]; then # a tarball, with libraries of its own
  export CPATH=$root/include LIBRARY_PATH=$root/lib LD_RUN_PATH=$root/lib
fi
ccache=$(command -v ccache || true)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Two builds, for no one build finds everything; one to step through; and one of nvcc's PTX, to step through, too.
common=(-std=c++20 -g -I"$root" -I"$root/simt/include" -isystem "$root/simt/emulator/cuda"
  -I"$root/examples/kernel_lab" -DATHANOR_SIMT)
flags_of() { # flags_of bounds|races|gdb|ptx
  case $1 in
    bounds) echo -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer ;;
    races) echo -O1 -DSIMT_RACE -fno-omit-frame-pointer ;;
    gdb | ptx) echo -O0 ;;
  esac
}
kernel_flags_of() {
  echo -Wno-unknown-pragmas -Wno-maybe-uninitialized -fno-strict-aliasing
  [ "$1" != races ] || echo -fsanitize=thread -fsanitize-coverage=trace-pc -fno-optimize-sibling-calls \
    -fno-partial-inlining -fno-crossjumping -fno-tree-tail-merge
}
libraries=(-lfmt -pthread -ldl)
if [ -f "$(g++ -print-file-name=libbacktrace.a)" ]; then  # else the emulator asks the program addr2line for lines
  common+=(-DSIMT_LIBBACKTRACE)
  libraries+=(-lbacktrace)
fi
# The emulator's sources: the first list in simt/simt.cmake, and for races what is appended to it.
sources_of() {
  awk -v root="$root" -v all="$([ "$1" = races ] && echo 1 || echo 0)" '
    /set\(sources$/ || (all && /list\(APPEND sources$/) { inside = 1; next }
    /\)/ { inside = 0 }
    inside && NF { print root "/simt/emulator/" $1 ".cpp" }' simt/simt.cmake
  [ "$1" != ptx ] || ls "$root"/simt/ptx/*.cpp
}

# compile BUILD: the emulator and lab.cpp, where a source or a flag has changed.
compile_emulator() {
  local build=$1 objects=$lab/$1 sum
  sum=$(cat simt/simt.cmake simt/include/simt/* simt/emulator/*.* simt/emulator/cuda/* simt/ptx/* \
    examples/kernel_lab/lab.* "$root/scripts/kernel_lab.sh" | cksum)
  [ "$(cat "$objects/emulator.sum" 2>/dev/null)" != "$sum" ] || return 0
  echo "Building the emulator ($build), once" >&2
  rm -rf "$objects"
  mkdir -p "$objects"
  { sources_of "$build"; echo "$root/examples/kernel_lab/lab.cpp"; } |
    xargs -P "$(nproc)" -I{} bash -c '"$@" -c {} -o '"$objects"'/$(basename "$(dirname {})")_$(basename {} .cpp).o' \
      - $ccache g++ "${common[@]}" $(flags_of "$build") >"$log" 2>&1 || { cat "$log" >&2; return 2; }
  mv "$objects/kernel_lab_lab.o" "$objects/lab.main" # has main, which a program of its own has, too
  (cd "$objects" && ar rcs emulator.a ./*.o)
  echo "$sum" >"$objects/emulator.sum"
}

# translate NAME: its kernels as nvcc makes them for sm_90a, NAME.ptx, and as C++.
translate() {
  local to=$lab/ptx/$1
  nvcc --ptx -arch=sm_90a -std=c++20 --fmad=false -I"$root" -I"$root/simt/include" -I"$root/examples/kernel_lab" -I"$folder" \
    "$folder/$1.cu" -o "$to.ptx" &&
    (cd "$lab/ptx" && python3 "$root/simt/ptx/translate.py" "$1.ptx" "$1.cu" -o "$1.ptx.cpp") &&
    g++ "${common[@]}" -O0 -fwrapv -fno-strict-aliasing -w -c "$to.ptx.cpp" -o "$to.ptx.o"
}

compile() { # compile BUILD NAME
  local build=$1 name=$2 objects=$lab/$1 sum
  compile_emulator "$build" || return
  sum=$(cat "$objects/emulator.sum" "$folder/$name.cu" "$folder"/*.h | cksum)
  [ "$(cat "$objects/$name.sum" 2>/dev/null)" != "$sum" ] || return 0
  { $ccache g++ "${common[@]}" $(flags_of "$build") $(kernel_flags_of "$build") -I"$folder" -Wall -Wno-unused \
    -x c++ -c "$folder/$name.cu" -o "$objects/$name.o" &&
    { [ "$build" != ptx ] || translate "$name"; } &&
    g++ $(flags_of "$build") "$objects/$name".*o "$objects/lab.main" -o "$objects/$name" "$objects/emulator.a" "${libraries[@]}"; } >"$log" 2>&1 ||
    { head -n 20 "$log" >&2; return 2; }
  cat "$log" >&2  # warnings
  rm "$objects/$name".*o
  echo "$sum" >"$objects/$name.sum"
}

say_row() { printf '  %-9s %s\n' "$1" "$2"; }

# What the sanitizers found, in one line: what, where in the kernel, next to which array, by which thread.
found_in() {
  local what place near thread
  what=$(sed -nE 's/^(READ|WRITE) of size ([0-9]+).*/\1 of \2 bytes/p; s/^.*: runtime error: (.*)/\1/p' "$1" | sed -n 1p)
  place=$(grep -oE '[^ (]*\.(cu|h):[0-9]+' "$1" | grep -vE '(^|/)simt/(emulator|include)/|/include/c\+\+/' | sed -n 1p)
  near=$(sed -nE "s/^0x[0-9a-f]+ is located ([0-9]+) bytes to the left of.*/, \\1 bytes before an array/p
    s/^0x[0-9a-f]+ is located ([0-9]+) bytes to the right of.*/, \\1 bytes behind the end of an array/p
    s/^0x[0-9a-f]+ is located ([0-9]+ bytes) (before|after) .*/, \\1 \\2 an array/p" "$1" | sed -n 1p)
  thread=$(sed -nE 's/^kernel [^,]*, block (\([0-9,]*\)): thread (\([0-9,]*\)).*/in thread \2 of block \1/p' "$1" | sed -n 1p)
  echo "$what at ${place#"$root/"}$near, $thread"
}

diagnosis() { tail -n 1 "$log" | sed 's/^the kernel: //'; }

# check NAME: a row for values, bounds and races; 1 where one is bad.
check() {
  local name=$1 order code=0 values="" bounds="nothing outside an array" races="none, and no shared memory was read before it was written"
  for order in forward reverse random:7; do
    ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 SIMT_ORDER=$order \
      "$lab/bounds/$name" >"$log" 2>&1 && code=0 || code=$?
    ! grep -qE 'runtime error:|ERROR: AddressSanitizer' "$log" || code=66
    case $code in
      0) values="$(tail -n 1 "$log"), threads in forward, reverse and random order" ;;
      1) values="WRONG with threads in $order order: $(tail -n 1 "$log")" ;;
      3) values="FAULT with threads in $order order: $(diagnosis)" ;;
      66) values="unknown: the kernel was stopped" bounds="WRONG: $(found_in "$log")" ;;
      *) values="the program ended with code $code: $(tail -n 1 "$log")" ;;
    esac
    [ "$code" = 0 ] || break
  done
  cp "$log" "$lab/$name.txt"
  local bad=$code
  SIMT_ORDER=forward "$lab/races/$name" >"$log" 2>&1 && code=0 || code=$?
  case "$code $values" in
    [01]\ *) ;;
    3*"$(diagnosis)") races="not looked for: the kernel was stopped" ;;
    3*) races="FOUND: $(diagnosis)" bad=1 ;;
    *) races="unknown: the program ended with code $code: $(tail -n 1 "$log")" bad=1 ;;
  esac
  say_row values "$values"
  say_row bounds "$bounds"
  say_row races "$races"
  [ "$bad" = 0 ]
}

# check_ptx NAME: a row for values, as nvcc's code gives them; 1 where one is bad.
check_ptx() {
  local order
  for order in forward reverse random:7; do
    SIMT_ORDER=$order "$lab/ptx/$1" >"$log" 2>&1 ||
      { say_row ptx "WRONG with threads in $order order: $(diagnosis)"; return 1; }
  done
  say_row ptx "$(tail -n 1 "$log"), threads in forward, reverse and random order"
}

# Code for the GPU that is here, with what only its architecture has (wgmma).
arch_flag() {
  local sm
  sm=$(gpu_sm) || { echo native; return; }
  if [ "$sm" = 90 ]; then echo sm_90a; else echo "sm_$sm"; fi
}

# on_gpu NAME: what it takes on a GPU, in words; why that is not known, where there is none. 1 where it is wrong there.
on_gpu() {
  local name=$1 nvcc
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
  [ -n "$nvcc" ] || { echo "not measured: there is no nvcc"; return 0; }
  nvidia-smi -L >/dev/null 2>&1 || { echo "not measured: there is no GPU"; return 0; }
  mkdir -p "$lab/gpu"
  "$nvcc" -std=c++20 -O3 -arch="$(arch_flag)" --fmad=false -lineinfo -I"$root" -I"$root/simt/include" \
    -I"$root/examples/kernel_lab" -I"$folder" -x cu \
    examples/kernel_lab/lab.cpp "$folder/$name.cu" -o "$lab/gpu/$name" >"$log" 2>&1 || { head -n 20 "$log" >&2; return 2; }
  "$lab/gpu/$name" >"$log" 2>&1 || { echo "WRONG on the GPU: $(diagnosis)"; return 1; }
  "$lab/gpu/$name" --time | tail -n 1
}

if [ -n "$form" ]; then
  find_nvcc || fail 2 "--ptx needs nvcc, of the CUDA toolkit"
  case $mode in
    check) mode=ptx ;;
    gdb) ;;
    *) fail 2 "--ptx goes with --gdb or alone" ;;
  esac
fi
status=0
case $mode in
  build)
    compile_emulator bounds && compile_emulator races || exit 2
    for name in "${names[@]}"; do
      compile bounds "$name" && compile races "$name" || exit 2
    done ;;
  emulator)
    compile_emulator races || exit 2
    echo "${common[@]}" $(flags_of races)
    echo $(kernel_flags_of races)
    echo "$lab/races/emulator.a" "${libraries[@]}" ;;
  gdb)
    [ ${#names[@]} = 1 ] || fail 2 "--gdb takes one exercise"
    compile "${form:-gdb}" "${names[0]}" || exit 2
    exec gdb -q ${KERNEL_LAB_GDB-} -d "$lab/ptx" --args "$lab/${form:-gdb}/${names[0]}" --once ;;
  ptx)
    for name in "${names[@]}"; do
      compile ptx "$name" || exit 2
      echo "$name: $("$lab/ptx/$name" --formula)"
      check_ptx "$name" || status=1
    done ;;
  check)
    for name in "${names[@]}"; do
      compile bounds "$name" && compile races "$name" || exit 2
      echo "$name: $("$lab/races/$name" --formula)"
      right=yes
      check "$name" || right="" status=1
      time=$(on_gpu "$name") || right="" status=1
      say_row time "$time"
      [ -z "$right" ] || say_row counted "$("$lab/races/$name" --count)"
    done ;;
  counters)
    for name in "${names[@]}"; do
      compile races "$name" || exit 2
      "$lab/races/$name" --count || status=1
    done ;;
  table)
    echo "| kernel | accesses of warps | sectors read | sectors written | rounds of shared memory | divergent branches | barriers of a block | on a GPU |"
    echo "|---|---|---|---|---|---|---|---|"
    for name in "${names[@]}"; do
      compile races "$name" || exit 2
      time=$(on_gpu "$name") || status=1
      time=${time%%:*} # without the reason
      "$lab/races/$name" --row | sed "s|$| ${time%% at *} \||" || status=1
    done ;;
esac
exit "$status"
