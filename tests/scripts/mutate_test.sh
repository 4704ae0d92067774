#!/usr/bin/env bash
# mutate_test.sh: scripts/mutate.py over a small project that is made up: it kills what a test checks, reports what none does,
# and leaves every file as it was, however it ends.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/tests/support/python.sh"
for program in git cmake ninja c++; do
  command -v $program >/dev/null || { echo "no $program"; exit 77; }
done
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
die() { printf '%s\n' "$*"; cat "$tree/out"; exit 1; }
export CCACHE_DISABLE=1

mkdir -p scripts nn tests/nn tests/autograd gtest
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
add_executable(nn_test tests/nn/grade_test.cpp tests/nn/idle_test.cpp)
add_executable(autograd_test tests/autograd/broken_test.cpp)
foreach(room nn autograd)
  target_link_libraries(${room}_test small)
endforeach()
EOF
# What is used of GoogleTest, which takes seconds to compile. --gtest_filter names suites.
cat >gtest/gtest.h <<'EOF'
#pragma once
#include <cstdio>
#include <cstring>
struct Test {
  Test(const char* suite, const char* name, bool (*body)()) : suite(suite), name(name), body(body), next(first) { first = this; }
  const char *suite, *name;
  bool (*body)();
  Test* next;
  inline static Test* first = nullptr;
};
#define TEST(suite, name)                                               \
  static bool suite##_##name##_body();                                  \
  static Test suite##_##name{#suite ".", #name, suite##_##name##_body}; \
  static bool suite##_##name##_body()
#ifdef MAIN
int main(int count, char** words) {
  int failed = 0;
  for (const Test* test = Test::first; test; test = test->next) {
    for (int i = 1; i < count; ++i) {
      if (std::strstr(words[i], "--gtest_filter=") == words[i] && std::strstr(words[i], test->suite) && !test->body()) {
        failed = 1;
        std::printf("[  FAILED  ] %s%s (1 ms)\n", test->suite, test->name);
      }
    }
  }
  return failed;
}
#endif
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
cat >tests/nn/grade_test.cpp <<'EOF'
#define MAIN
#include <gtest/gtest.h>
#include "nn/grade.h"
TEST(Grade, Steps) {
  return grade(49) == 0 && grade(50) == 3 && grade(51) == 3 && grade(6) == 0 && grade(7) == 1 && grade(8) == 0;
}
EOF
printf '#include <gtest/gtest.h>\n#include "nn/idle.h"\nTEST(Idle, Runs) { return idle(1) != 99; }\n' >tests/nn/idle_test.cpp
printf '#define MAIN\n#include <gtest/gtest.h>\n#include "nn/grade.h"\nTEST(Broken, Fails) { return false; }\n' >tests/autograd/broken_test.cpp
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
grep -q 'skipped: without any fault, autograd/broken_test Broken.Fails' out || die "a test that fails anyway proves nothing"
[ "$(wc -l <build/report.jsonl)" -eq 16 ] || die "the report wants a line per fault"
is_clean

# The same numbers are the same faults.
grep ' \(killed\|survived\) ' out | sed -n 4p >fourth
survivor=$(awk '$2 == "survived" { print $1; exit }' out)
mutate --rooms nn --first 3 --count 1 --seed 3 && grep -qxFf fourth out || die "fault 3 is another one now"
rm fourth
if mutate --rooms nn --first "$survivor" --count 1 --seed 3 --most 1; then die "more than 1 % survived"; fi

# Ended while a fault is in: it is undone.
printf '#include <gtest/gtest.h>\n#include <unistd.h>\nTEST(Idle, Sleeps) { return sleep(60) == 0; }\n' >tests/nn/idle_test.cpp
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
