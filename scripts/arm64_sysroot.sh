#!/usr/bin/env bash
# Fills build/arm64-sysroot with what a build for 64-bit ARM links to and its programs load: Debian's arm64 packages of
# this release, unpacked but not installed. apt keeps its lists and its state of them in that folder, so that neither the
# packages of this machine nor what apt knows of them change, and root is not needed. 90 MB; takes no time, and no network,
# when nothing is missing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
sysroot=$root/build/arm64-sysroot

packages=(
  libc6-dev
  libcli11-dev
  libeigen3-dev
  libfmt-dev
  libgomp1
  libgtest-dev
  libisal-dev
  libjpeg-dev
  libpng-dev
  libstdc++6
  nlohmann-json3-dev
  zlib1g-dev
)

release=$(. /etc/os-release && echo "${PRETTY_NAME-}")
wanted="$release: ${packages[*]}"
[ "$(cat "$sysroot/complete" 2>/dev/null)" != "$wanted" ] || exit 0

echo "Unpacking arm64 packages into build/arm64-sysroot: ${packages[*]}"
rm -rf "$sysroot"
mkdir -p "$sysroot"/usr/{bin,lib,sbin} "$sysroot"/apt/state/lists/partial "$sysroot"/apt/cache/archives/partial
ln -s usr/bin usr/lib usr/sbin "$sysroot" # as in an installed system; some packages of Debian 12 still name /lib
: >"$sysroot/apt/status"
log=$sysroot/apt/log
apt() {
  apt-get -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$sysroot/apt/state" \
    -o Dir::State::status="$sysroot/apt/status" -o Dir::Cache="$sysroot/apt/cache" -o APT::Sandbox::User=root "$@" >>"$log" 2>&1
}
# The first may fail for a source that has nothing for arm64; the second then says what is missing.
apt update || true
apt install -y --no-install-recommends --download-only "${packages[@]}" || { cat "$log" >&2; exit 3; }
for package in "$sysroot"/apt/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$sysroot"
done
# A linker would look for what /lib/... points to on this machine.
find "$sysroot/usr" -type l -lname '/*' | while read -r link; do
  ln -sfrn "$sysroot$(readlink "$link")" "$link"
done
rm -rf "$sysroot/apt"
echo "$wanted" >"$sysroot/complete"
