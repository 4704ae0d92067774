# Sourced by the other scripts: where the project is, how they speak, and the set-up they share.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/gpu_env.sh"

say() { # bold on a terminal
  if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then printf '\033[1m%s\033[0m\n' "$*"; else printf '%s\n' "$*"; fi
}
fail() { # fail CODE MESSAGE
  printf '%s\n' "$2" >&2
  exit "$1"
}

# Installs what is missing and enters the project's root.
set_up() { # set_up [PACKAGE...]: with packages that this script needs beyond a build's
  "$root/scripts/install_packages.sh" "$@"
  cd "$root"
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  [ "$(printf '%s\n' 3.25 "$version" | sort -V | sed -n 1p)" = 3.25 ] ||
    fail 2 "CMake 3.25 or newer is needed, but $(command -v cmake) is $version: upgrade it (Debian 12, Ubuntu 24.04 and later ship one)."
}

# Warnings are errors in CI (CI=true) and where asked for; never for somebody who only wants to use this.
case ${CI-} in
  true | 1) werror=yes ;;
  *) werror=no ;;
esac

# A setting for CMake. Loops for AVX-512 take nearly half of the time in which kernels compile: a new build folder on x86-64 has
# them only if this CPU can run them. Presets share what is compiled through ccache.
isa_setting() { # isa_setting PRESET
  [ "$(uname -m)" = x86_64 ] && [ ! -e "build/$1/CMakeCache.txt" ] || return 0
  if grep -qsw avx512vl /proc/cpuinfo; then echo -DATHANOR_ONE_ISA=OFF; else echo -DATHANOR_ONE_ISA=ON; fi
}

configure() { # configure PRESET [OPTION OF CMAKE...]
  mkdir -p "build/$1"
  local log=build/$1/configure.log settings=()
  [ "${werror-no}" = no ] || settings=(-DATHANOR_WERROR=ON)
  cmake --preset "$@" "${settings[@]}" >"$log" 2>&1 || { cat "$log" >&2; return 1; }
  grep '^-- athanor:' "$log"
}
