#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages a build needs, where they are missing. As root or with sudo; without
# either it lists them and stops with code 2. Takes no time, and no network, when nothing is missing.
# Arguments are further packages to install.
set -euo pipefail

packages=(
  ccache
  cmake
  g++
  libbenchmark-dev
  libcli11-dev
  libeigen3-dev
  libfmt-dev
  libgtest-dev
  libisal-dev
  libjpeg-dev
  libpng-dev
  make # cmake's own default, for projects of one's own and the folder of the course
  ninja-build
  nlohmann-json3-dev
  zlib1g-dev
  "$@"
)
# The build does without these; the first is not on every architecture.
optional=(libdnnl-dev libhdf5-dev liblmdb-dev libmicrohttpd-dev libopenmpi-dev libwebp-dev libzip-dev openmpi-bin)

if ! command -v dpkg-query >/dev/null; then
  echo "This is not Debian or Ubuntu: install the contents of these packages, then run cmake --workflow --preset cpu:" >&2
  echo "  ${packages[*]} ${optional[*]}" >&2
  exit 2
fi

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]; }
missing_of() {
  local package
  for package in "$@"; do is_installed "$package" || echo "$package"; done
}
missing=($(missing_of "${packages[@]}"))
[ ${#missing[@]} -gt 0 ] || exit 0
wanted=($(missing_of "${optional[@]}"))

become=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    become=(sudo)
  else
    echo "These packages are missing, and installing them needs root or sudo. Ask an administrator to run:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]} ${wanted[*]}" >&2
    exit 2
  fi
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  "${become[@]}" env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1 ||
    { cat "$log" >&2; echo "failed: $*" >&2; exit 3; }
}

echo "Installing with apt: ${missing[*]} ${wanted[*]}"
quietly apt-get -o DPkg::Lock::Timeout=300 update
for package in "${wanted[@]}"; do
  if [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then
    missing+=("$package")
  else
    echo "No $package for this system: building without it."
  fi
done
quietly apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}"
