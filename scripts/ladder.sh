#!/usr/bin/env bash
# Builds what the ladder needs and runs it; arguments go to examples/ladder/ladder.py:
#   scripts/ladder.sh --data digits
#   scripts/ladder.sh --make-jpegs photos && scripts/ladder.sh --data imagefolder:photos
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
here=$PWD

case " $* " in
  *" --help "* | *" -h "* | *" --draw "* | *" --show "*) targets=() ;;
  *--make-jpegs*) targets=(ladder_jpegs) ;;
  *imagefolder*) targets=(train_images athanor-tool) ;;
  *cifar10*) targets=(train_cifar10) ;;
  *) targets=(train_digits) ;;
esac
case " ${targets[*]} " in *train*) targets+=(bench_vectorise) ;; esac
if [ ${#targets[@]} -gt 0 ]; then
  set_up
  [ -f build/cpu/build.ninja ] || configure cpu
  say "Building ${targets[*]} (build/cpu)"
  cmake --build --preset cpu --target "${targets[@]}" >build/cpu/ladder.log 2>&1 ||
    { cat build/cpu/ladder.log >&2; fail 1 "ladder: ${targets[*]} did not build"; }
  cd "$here"
fi
exec python3 "$root/examples/ladder/ladder.py" "$@"
