#!/usr/bin/env bash
# goes_red.sh: check.py passes a small clean tree, and finds each kind of fault planted in it.
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/check.py
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p trainer/flags docs bin
run() { PYTHONDONTWRITEBYTECODE=1 python3 "$check" . "$@"; }
die() { printf '%s\n' "$*"; exit 1; }

cat >trainer/flags/all.cpp <<'END'
#include "trainer/behavior.h"
// A comment may say nobody, and "nobody" too. 1'000'000
void all() {
  flags.add("--epochs,--max-epochs N", "passes over the training set [{}]", epochs, whole(1));
  ATH_CHECK(text != ".", "{}: must be one of {}, but got {}; see --max-epochs, --help ...", flag,
            fmt::join(names, ", "), text);
  print("{:<10}  {:>7}\n", a, b);
  print("Two sentences of no error. This ends in the ");
  print("the next.");
}
END
cat >README.md <<'END'
The time goes on a CPU, just after `nobody`.

```bash
nobody   # occured
```

    nobody
END
printf '| use | not |\n|---|---|\n| no rank | nobody |\n' >HACKING.md
touch CHANGELOG.md docs/page.md
for program in train_digits train_mnist train_cifar10 train_images; do
  cat >bin/$program <<'END'
#!/bin/sh
[ -z "${COLUMNS-}" ] || exit 1
printf '%080d%s\n' 0 "$too_wide"
END
done
cat >bin/athanor <<'END'
#!/bin/sh
if [ "$1" = --help ]; then printf 'Subcommands:\n  pack   packs\n'; else echo "$1 $command_wide"; fi
END
chmod +x bin/*
export too_wide="" command_wide="" COLUMNS=200
found=$(run bin) || die "a clean tree must pass: $found"
[ "$(run)" = 'no folder of programs: --help is not checked' ] || die "it must say that no help was checked"

finds() { # finds WRONG...: these lines, and no other
  if found=$(run bin); then die "expected to fail: $*"; fi
  [ "$found" = "$(printf '%s\n' "$@")" ] || die "expected '$*', but got: $found"
}
message() { # message CODE WRONG
  printf 'void f() {\n  %s;\n}\n' "$1" >trainer/fault.cpp
  finds "trainer/fault.cpp:2: $2"
  rm trainer/fault.cpp
}
page() { # page TEXT WRONG
  printf 'A page.\n%b\n' "$1" >docs/page.md
  finds "docs/page.md:2: $2"
  : >docs/page.md
}
ends='an error of one line ends with neither a space nor a full stop'
message 'return "nobody"' "'nobody': no rank, each thread, the caller"
message 'note("the run goes " "on")' "'goes on': resume, continue"
message 'note("an error has Occured")' "'Occured' is spelt 'occurred'"
message 'note(R"(an error has occured)")' "'occured' is spelt 'occurred'"
message 'note("two  spaces")' 'two spaces'
message 'note("the " "the rank")' "'the' twice"
message 'note("use --epoch N")' 'there is no flag --epoch'
message 'ATH_CHECK(a < f(b), "a must be below b.")' "$ends"
message 'detail::fail<IoError>(fmt::format("{}: cannot be " "read ", path))' "$ends"
message 'throw BackendError("no rank is left.")' "$ends"
message 'throw std::runtime_error("no rank is left.")' "$ends"
page 'It simply works.' "'simply': (leave it out)"
page 'One that goes\non.' "'goes on': resume, continue"
page 'It occured.' "'occured' is spelt 'occurred'"
page 'In the the page.' "'the' twice"
command_wide=$(printf '%076d' 0)
finds "athanor pack --help: a line of 81 columns: pack ${command_wide:0:55}..."
command_wide=''
too_wide=0
wide=()
for program in train_digits train_mnist train_cifar10 train_images; do
  wide+=("$program --help: a line of 81 columns: $(printf '%060d' 0)...")
done
finds "${wide[@]}"
too_wide=''
printf '#!/bin/sh\nexit 1\n' >bin/train_mnist
if run bin >/dev/null 2>&1; then die "a program whose --help fails must not pass"; fi
rm bin/train_mnist
if run bin >/dev/null 2>&1; then die "a program that is missing must not pass"; fi
