#!/usr/bin/env bash
# Puts weights of ImageNet where --pretrained NAME finds them: ~/.cache/athanor/weights (or --to DIR), checked.
#   scripts/get_weights.sh NAME... [--from DIR] [--to DIR]
#   scripts/get_weights.sh --list
# NAME is a model, such as resnet50, or one of its weights, such as resnet50.imagenet1k_v1 (--list, nn/models/weights.txt).
# --from DIR takes files from a folder instead of the network; it may be the cache of PyTorch or Hugging Face.
# A download that was interrupted goes on where it stopped.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
table=$root/nn/models/weights.txt

fail() { echo "get_weights.sh: $*" >&2; exit 2; }
cache=${XDG_CACHE_HOME-}
[[ $cache == /* ]] || cache=${HOME-}/.cache
names=() from="" to=$cache/athanor/weights list=no
while [ $# -gt 0 ]; do
  case $1 in
    --from | --to) [ $# -ge 2 ] || fail "$1 must be followed by a folder"; declare "${1#--}=$2"; shift 2 ;;
    --list) list=yes; shift ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) fail "options are --from DIR, --to DIR and --list, but got '$1'" ;;
    *) names+=("$1"); shift ;;
  esac
done
[ -z "$from" ] || [ -d "$from" ] || fail "--from must be a folder, but $from is not"

rows() { grep -v '^#' "$table"; }
# The repository on Hugging Face, for a file that has only a general name there.
repository() { local url=${1%/resolve/*}; echo "${url##*/}"; }
file_of() { # file_of URL: its name in the cache
  case $1 in */model.safetensors) echo "$(repository "$1").safetensors" ;; *) echo "${1##*/}" ;; esac
}

if [ $list = yes ]; then
  printf '%-32s %6s %6s  %-9s %s\n' name pixels top-1 here home
  while read -r name pixels top1 _ url; do
    here=-
    [ ! -f "$to/$(file_of "$url")" ] || here=yes
    printf '%-32s %6s %6s  %-9s %s\n' "$name" "$pixels" "$top1" $here "$url"
  done < <(rows)
  exit 0
fi
[ ${#names[@]} -gt 0 ] || fail "name weights, such as resnet50: --list shows all"
[ -n "$from" ] || command -v curl >/dev/null || fail "curl is missing: install it, or use --from DIR"
mkdir -p "$to" 2>/dev/null || fail "cannot create the folder $to: use --to DIR"

sum_of() { sha256sum <"$1" | cut -d' ' -f1; }
# fits FILE SUM: whether its SHA-256 begins so; with "-" nobody knows.
fits() { [ "$2" = - ] || [[ $(sum_of "$1") == "$2"* ]]; }

# The SHA-256 that Hugging Face states for a file, or "-".
stated_sum() {
  local sum
  sum=$(curl -fsI --connect-timeout 15 "$1" 2>/dev/null | tr -d '\r"' |
    awk 'tolower($1) == "x-linked-etag:" { print tolower($2) }') || sum=""
  if [[ $sum =~ ^[0-9a-f]{64}$ ]]; then echo "$sum"; else echo -; fi
}

# Each prints the one line that says why it failed.
take() { # take FILE URL PART
  local place
  for place in "$from/$1" "$from/${2##*/}" "$from/$(repository "$2")/${2##*/}" \
    "$from/models--timm--$(repository "$2")"/snapshots/*/"${2##*/}"; do
    # Many files are called model.safetensors.
    [ -f "$place" ] && [ "$place" != "$from/model.safetensors" ] || continue
    cp "$place" "$3" 2>/dev/null && return 0
    echo "cannot copy $place to $3"
    return 1
  done
  echo "$from has no $1"
  return 1
}
download() { # download URL PART
  local options=(-fL --retry 3 --connect-timeout 15 -C - -o "$2") code=0 said="" begun=no
  [ ! -s "$2" ] || begun=yes
  if [ -t 2 ]; then curl "${options[@]}" --progress-bar "$1" || code=$?; else said=$(curl "${options[@]}" -sS "$1" 2>&1) || code=$?; fi
  case $code in
    0) return 0 ;;
    22 | 33 | 36) # perhaps the server cannot go on in the middle, or there is nothing left to send
      [ $begun = no ] || { rm -f "$2"; download "$1" "$2"; return; } ;;
  esac
  said=${said##*$'\n'}
  echo "$1: ${said:-curl ended with code $code}; or get it elsewhere and use --from DIR"
  return 1
}

get() { # get NAME
  local name pixels top1 sum url file part said
  read -r name pixels top1 sum url < <(rows | awk -v n="$1" '$1 == n || index($1, n ".") == 1 { print; exit }') || {
    echo "there are no weights of that name: --list shows all"
    return 1
  }
  file=$(file_of "$url") part=$to/$file.part
  if [ -f "$to/$file" ] && fits "$to/$file" "$sum"; then
    echo "$name is in $to/$file"
    return 0
  fi
  if [ -n "$from" ]; then
    take "$file" "$url" "$part" || return 1
  else
    [ "$sum" != - ] || sum=$(stated_sum "$url")
    if [ "$sum" = - ] || [ ! -f "$part" ] || ! fits "$part" "$sum"; then
      echo "fetching $url" >&3
      download "$url" "$part" || return 1
    fi
  fi
  if ! fits "$part" "$sum"; then
    said="$file: its SHA-256 must begin with $sum, but is $(sum_of "$part"): get the file again"
    rm -f "$part"
    echo "$said"
    return 1
  fi
  mv "$part" "$to/$file" || return 1
  if [ "$sum" = - ]; then said="nobody states its SHA-256, which is $(sum_of "$to/$file")"; else said="SHA-256 $sum"; fi
  echo "$name is in $to/$file ($said)"
}

exec 3>&1
failed=0
for one in "${names[@]}"; do
  if said=$(get "$one"); then echo "$said"; else echo "get_weights.sh: $one: $said" >&2; failed=2; fi
done
exit $failed
