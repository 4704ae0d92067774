#!/usr/bin/env bash
# Installs what is missing, builds the library and the examples, trains a small CNN on the embedded digits and shows
# the result. Arguments go to train_digits: scripts/quickstart.sh --epochs 5
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments=("$@")

set_up
configure cpu
say "Building the library and the examples (build/cpu, shared with scripts/test.sh)"
cmake --build --preset cpu --target examples

say "Training a CNN on handwritten digits"
build/cpu/bin/train_digits "${arguments[@]}"

say "Next: build/cpu/bin/train_digits --help, or scripts/test.sh"
