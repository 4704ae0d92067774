# shellcheck shell=bash
# Sourced by scripts that train on photos: where the ImageNet sample is, and folders of classes made of it.
photos=$(realpath -m "${ATHANOR_DATA_DIR:-/nowhere}")/imagenet-sample

# A test without them is skipped.
need_photos() {
  [ -d "$photos" ] || { printf '%s: Skipped\nATHANOR_DATA_DIR names no folder with imagenet-sample\n' "$0"; exit 77; }
}

link_photos() { # link_photos TO CLASSES TRAIN VAL: the first photos in TO/train/class0, class1, ..., those after them in TO/val
  local to=$1 classes=$2 train=$3 val=$4 i=0 part photo
  for photo in "$photos"/*.JPEG; do
    part="train"
    [ $i -lt "$train" ] || part="val"
    mkdir -p "$to/$part/class$((i % classes))"
    ln -s "$photo" "$to/$part/class$((i % classes))/"
    i=$((i + 1))
    [ $i -lt $((train + val)) ] || return 0
  done
  echo "$photos must hold $((train + val)) photos, but holds $i" >&2
  return 1
}
