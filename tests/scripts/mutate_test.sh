#!/usr/bin/env bash
# mutate_test.sh: scripts/mutate.py over a small project that is made up: it kills what a test checks, reports what none does,
# and leaves every file as it was, however it ends.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
for program in python3 git cmake ninja c++; do
  command -v $program >/dev/null || { echo "no $program"; exit 77; }
done
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
die() { printf '%s\n' "$*"; cat "$tree/out"; exit 1; }
export CCACHE_DISABLE=1

mkdir -p scripts nn tests
cp "$root/scripts/mutate.py" scripts/
echo build/ >.gitignore
cat >CMakePresets.json <<'EOF'
{"version": 6, "configurePresets": [{"name": "cpu", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}]}
EOF
cat >CMakeLists.txt <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
include_directories(.)
add_library(small nn/grade.cpp nn/idle.cpp)
foreach(name grade idle broken)
  add_executable(${name}_test tests/${name}_test.cpp)
  target_link_libraries(${name}_test small)
endforeach()
EOF
echo 'int grade(int points);' >nn/grade.h
echo 'int idle(int x);' >nn/idle.h
cat >nn/grade.cpp <<'EOF'
#include "nn/grade.h"  // 1 + 1 is no code
int grade(int points) {
  if (points >= 50) return 3;
  /* 2 * 2 is none either */
  return points == 7 ? 1 : 0;
}
EOF
printf '#include "nn/idle.h"\nint idle(int x) { return x + 1; }\n' >nn/idle.cpp
cat >tests/grade_test.cpp <<'EOF'
#include "nn/grade.h"
int main() {
  const bool good = grade(49) == 0 && grade(50) == 3 && grade(51) == 3 && grade(6) == 0 && grade(7) == 1 && grade(8) == 0;
  return good ? 0 : 1;
}
EOF
printf '#include "nn/idle.h"\nint main() { idle(1); }\n' >tests/idle_test.cpp
printf '#include "nn/grade.h"\nint main() { return 1; }\n' >tests/broken_test.cpp
git init -q && git add . && git -c user.name=a -c user.email=a@b commit -qm all

is_clean() {
  [ -z "$(git status --porcelain)" ] || die "the project was changed"
  [ -z "$(git -C build/mutate/tree status --porcelain)" ] || die "a fault was left in the worktree"
}
mutate() { python3 scripts/mutate.py --report build/report.jsonl "$@" >out 2>&1; }
echo out >>.git/info/exclude

mutate --list --count 30 || die "--list failed"
! grep -E 'grade.cpp:[14]:' out || die "a comment was taken for code"
grep -q ' listed ' out || die "no fault was shown"
is_clean

mutate --rooms nn --count 16 --seed 3 || die "survivors alone are no failure"
[ "$(grep -c ' killed .*nn/grade.cpp' out)" -ge 4 ] || die "more faults of grade.cpp had to be tried"
! grep ' survived .*nn/grade.cpp' out || die "a fault that the test checks for survived"
grep -q ' survived .*nn/idle.cpp:2: .*idle_test' out || die "nothing checks idle.cpp"
! grep ' killed .*nn/idle.cpp' out || die "nothing can see a fault of idle.cpp"
grep -q 'skipped: without any fault, broken_test ends with 1' out || die "a test that fails anyway proves nothing"
[ "$(wc -l <build/report.jsonl)" -eq 16 ] || die "the report wants a line per fault"
is_clean

# The same numbers are the same faults.
grep ' \(killed\|survived\) ' out | sed -n 4p >fourth
mutate --rooms nn --first 3 --count 1 --seed 3 && grep -qxFf fourth out || die "fault 3 is another one now"
rm fourth
if mutate --rooms nn --count 16 --seed 3 --most 1; then die "more than 1 % survived"; fi

# Ended while a fault is in: it is undone.
printf '#include <unistd.h>\nint main() { sleep(60); }\n' >tests/idle_test.cpp
git -c user.name=a -c user.email=a@b commit -qam slow
python3 scripts/mutate.py --rooms nn --count 200 --seconds 2 >out 2>&1 &
for ((i = 0; i < 300; ++i)); do
  # Not while the tree is still being checked out.
  ! grep -q 'faults could be put' out || [ -z "$(git -C build/mutate/tree status --porcelain 2>/dev/null)" ] || break
  sleep 0.05
done
[ $i -lt 300 ] || die "no fault was ever in the tree"
kill %1
wait %1 || true
grep -q 'stopped; the tree is unchanged' out || die "it did not say that it was stopped"
is_clean
