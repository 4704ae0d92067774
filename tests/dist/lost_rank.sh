#!/usr/bin/env bash
# lost_rank.sh PATTERN COMMAND...: what the command prints, in whichever order its lines come, must match PATTERN, an extended
# regular expression for its lines joined by spaces in the order of ranks. Rank 2 has 0.6 s to speak before rank 0 ends the job:
# on a busy machine it may miss them, but not five times.
set -uo pipefail
pattern=$1
shift
for _ in $(seq 5); do
  said=$("$@" 2>&1)
  if grep '^mpi: rank' <<<"$said" | sort | tr '\n' ' ' | grep -qE -- "$pattern"; then exit 0; fi
done
printf 'expected %s, but got:\n%s\n' "$pattern" "$said"
exit 1
