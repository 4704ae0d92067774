#!/usr/bin/env bash
# Puts a data set where the examples look for it: data-cache/ (or --to DIR), in its official files, checked.
#   scripts/get_data.sh mnist|cifar10 [--from DIR] [--to DIR]
# --from DIR takes the files, or the archive, from a folder instead of the network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "get_data.sh: $*" >&2; exit 2; }
name="" from="" to="${ATHANOR_DATA_DIR:-data-cache}"
while [ $# -gt 0 ]; do
  case $1 in
    --from | --to) [ $# -ge 2 ] || fail "$1 must be followed by a folder"; declare "${1#--}=$2"; shift 2 ;;
    -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;;
    mnist | cifar10) name=$1; shift ;;
    *) fail "must be mnist or cifar10, with --from DIR or --to DIR, but got '$1'" ;;
  esac
done
[ -n "$name" ] || fail "name a data set: mnist or cifar10"
[ -z "$from" ] || [ -d "$from" ] || fail "--from must be a folder, but $from is not"
folder=$to/$name
mkdir -p "$folder"

check() { [ "$(md5sum <"$1" | cut -d' ' -f1)" = "$2" ]; }

# fetch FILE MD5 URL...: FILE in the current folder of downloads, from --from or the first URL that answers.
fetch() {
  local file=$1 sum=$2 url; shift 2
  if [ -n "$from" ]; then
    for url in "$from/$file" "$from/$name/$file"; do
      [ -f "$url" ] && { cp "$url" "$folder/$file.part"; break; }
    done
    [ -f "$folder/$file.part" ] || return 1
  else
    command -v curl >/dev/null || fail "curl is missing: install it, or use --from DIR"
    for url in "$@"; do
      echo "fetching $url"
      curl -fL --retry 3 --connect-timeout 15 -o "$folder/$file.part" "$url" && break
    done
    [ -f "$folder/$file.part" ] || fail "$file: no server answered; download it by hand and use --from DIR"
  fi
  check "$folder/$file.part" "$sum" || {
    rm -f "$folder/$file.part"
    fail "$file: the MD5 checksum must be $sum, but is not: download the file again"
  }
  mv "$folder/$file.part" "$folder/$file"
}

get_mnist() {
  local file sum plain_sum
  while read -r file sum plain_sum; do
    [ -f "$folder/$file" ] && check "$folder/$file" "$plain_sum" && continue
    [ -f "$folder/$file.gz" ] && check "$folder/$file.gz" "$sum" && continue
    # With --from, the unpacked file will do, too.
    if [ -n "$from" ] && fetch "$file" "$plain_sum"; then continue; fi
    fetch "$file.gz" "$sum" "https://ossci-datasets.s3.amazonaws.com/mnist/$file.gz" \
      "https://storage.googleapis.com/cvdf-datasets/mnist/$file.gz" ||
      fail "$from holds neither $file nor $file.gz"
  done <<'FILES'
train-images-idx3-ubyte f68b3c2dcbeaaa9fbdd348bbdeb94873 6bbc9ace898e44ae57da46a324031adb
train-labels-idx1-ubyte d53e105ee54ea40749a09fcbcd1e9432 a25bea736e30d166cdddb491f175f624
t10k-images-idx3-ubyte 9fb629c4189551a2d022fa330f9573f3 2646ac647ad5339dbf082846283269ea
t10k-labels-idx1-ubyte ec29112dd5afa0611ce80d1b7f02629c 27ae3e4e09519cfbb04c329615203637
FILES
}

get_cifar10() {
  local archive=cifar-10-binary.tar.gz file all=1
  local files=(data_batch_{1..5}.bin test_batch.bin)
  for file in "${files[@]}"; do
    [ -f "$folder/$file" ] && [ "$(stat -c %s "$folder/$file")" = 30730000 ] || all=0
  done
  [ $all = 0 ] || return 0
  if [ -n "$from" ] && [ ! -f "$from/$archive" ]; then  # unpacked already: the reader checks sizes and labels
    for file in "${files[@]}"; do
      local found=""
      for at in "$from/$file" "$from/cifar10/$file" "$from/cifar-10-batches-bin/$file"; do
        [ -f "$at" ] && found=$at
      done
      [ -n "$found" ] || fail "$from holds neither $archive nor $file"
      [ "$(stat -c %s "$found")" = 30730000 ] || fail "$found: must have 30730000 bytes: download the file again"
      cp "$found" "$folder/$file.part" && mv "$folder/$file.part" "$folder/$file"
    done
    return 0
  fi
  fetch "$archive" c32a1d4ab5d03f1284b67883e8d87530 "https://www.cs.toronto.edu/~kriz/$archive"
  tar -xzf "$folder/$archive" -C "$folder" --strip-components=1
  rm -f "$folder/$archive"
}

"get_$name"
echo "$name is in $folder"
