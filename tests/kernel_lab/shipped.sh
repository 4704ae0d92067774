#!/usr/bin/env bash
# Every exercise that is shipped is right, but for my_kernel, whose body is the student's to fill in.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
names=$(cd "$root/examples/kernel_lab" && ls -- *.cu | sed 's/\.cu$//' | grep -v '^my_kernel$')

said=$("$root/scripts/kernel_lab.sh" $names) || { printf '%s\n' "$said"; exit 1; }
for row in values.*right bounds.*nothing races.*none; do
  [ "$(grep -cE "^  $row" <<<"$said")" = "$(wc -w <<<"$names")" ] || { printf 'expected "%s" for each in:\n%s\n' "$row" "$said"; exit 1; }
done

if said=$("$root/scripts/kernel_lab.sh" my_kernel); then
  echo "an empty body must be wrong"
  exit 1
fi
grep -q 'values .*y\[0\] must be 0.47.*, but no number was written there' <<<"$said" || { printf '%s\n' "$said"; exit 1; }

# What nvcc makes of them is right, too, where there is one.
source "$root/scripts/gpu_env.sh"
if find_nvcc; then
  said=$("$root/scripts/kernel_lab.sh" --ptx $names) || { printf '%s\n' "$said"; exit 1; }
  [ "$(grep -c '^  ptx  *right' <<<"$said")" = "$(wc -w <<<"$names")" ] || { printf 'expected each to be right:\n%s\n' "$said"; exit 1; }
fi
