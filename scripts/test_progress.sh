#!/usr/bin/env bash
# test_progress.sh [SECONDS]: reads what ctest prints and shows how far it is: on a terminal a line that changes, else
# a line every SECONDS (60). Tests that passed have no line of their own, everything else is printed as it comes.
set -euo pipefail
every=${1:-60}
live=no
[ ! -t 1 ] || live=yes
count=0 total="" failed=0 next_line=$every next_draw=0 text="" piece=""
declare -A running=()

state() { printf '%s of %s tests, %s failed; running: %s' "$count" "${total:-?}" "$failed" "${!running[*]}"; }
erase() { [ $live = no ] || printf '\r\033[K'; }

take() { # take LINE
  if [[ $1 =~ ^\ +Start\ +[0-9]+:\ (.+)$ ]]; then
    running[${BASH_REMATCH[1]}]=1
  elif [[ $1 =~ ^\ *([0-9]+)/([0-9]+)\ Test\ +\#[0-9]+:\ ([^\ ]+)\ (.*)$ ]]; then
    count=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
    unset "running[${BASH_REMATCH[3]}]"
    case ${BASH_REMATCH[4]} in
      *\ Passed\ *) return ;;
      *Skipped* | *Disabled*) ;;
      *) failed=$((failed + 1)) ;;
    esac
    erase
    printf '%s\n' "$1"
  else
    erase
    printf '%s\n' "$1"
  fi
}

show() {
  if [ $live = yes ]; then
    [ "${EPOCHREALTIME/[.,]/}" -ge "$next_draw" ] || return 0
    next_draw=$((${EPOCHREALTIME/[.,]/} + 100000))
    local columns
    columns=$({ stty size </dev/tty | cut -d' ' -f2; } 2>/dev/null) || columns=0
    [ "${columns:-0}" -gt 20 ] || columns=80
    local line
    line=$(state)
    erase
    printf '%s' "${line:0:columns-1}"
  elif [ $SECONDS -ge "$next_line" ]; then
    next_line=$((SECONDS + every))
    printf '  %s min: %s\n' $((SECONDS / 60)) "$(state)"
  fi
}

SECONDS=0
while true; do
  code=0
  IFS= read -r -t 1 piece || code=$?
  text+=$piece
  if [ $code -eq 0 ]; then
    take "$text"
    text=""
  elif [ $code -le 128 ]; then # the end; more than 128: nothing came for a second
    [ -z "$text" ] || take "$text"
    break
  fi
  show
done
erase
