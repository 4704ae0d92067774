#!/usr/bin/env bash
# scripts/exercise.sh COMMAND: exercises that a program checks. No GPU and no network are needed.
#   list [N] [--json]              the exercises, with their chapters and points, and the stages of the course; the tests of N
#   start N [--dir DIR]            copies exercise N to DIR/NN_name (default my_exercises/): a text and files to change;
#                                  of a stage, adds to DIR (default my_course/) its page, headers and tests
#   check N [--all] [--dir DIR] [--json] [--results FILE]
#                                  compiles your files with the exercise's own tests, runs each test apart, counts points;
#                                  --all: of all stages up to N
#   build                          compiles what exercises need once: the library, and the emulator of the kernel lab
#   pack students|teachers FILE    a tarball to solve exercises without root, or the answers and wrong answers
# N is the number or the name of an exercise, or stage01 to stage10: the course, examples/course/README.md.
# check needs g++ and GoogleTest; some exercises also need the library (`build`, minutes once).
# Each test runs without network, for 10 s of computing and in 1 GB at most, unless its exercise says otherwise.
# Codes: 0 all points; 1 not all; 2 wrong arguments, a missing file or package.
here=$(dirname "${BASH_SOURCE[0]}")
command -v python3 >/dev/null || "$here/install_packages.sh" python3 || exit
exec python3 "$here/exercise.py" "$@"
