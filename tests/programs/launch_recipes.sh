#!/usr/bin/env bash
# launch_recipes.sh BIN MPIRUN PAGE: the blocks of commands of docs/reference/several_devices.md, with two ranks on the CPU of this machine. Stand-ins for
# what is not here: hosts, Slurm, torchrun. srun and torchrun check the arguments that they are given, and set the variables of the real ones.
set -euo pipefail
bin=$1 mpirun=$2 page=$3
mapfile -t settings < <(grep -v '^#' "$(dirname "${BASH_SOURCE[0]}")/../../scripts/open_mpi.env")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
die() { echo "$*"; cat "$folder/said" 2>/dev/null || true; exit 1; }
mkdir "$folder/tools" "$folder/shared"
export FOLDER=$folder ATHANOR_RUNS_DIR=none

stand_in() { cat >"$folder/tools/$1" && chmod +x "$folder/tools/$1"; }
# The program: on the CPU, briefly. Without MPI's variables (torchrun, the loop by hand) it must find out who started it.
stand_in train_cifar10 <<END
#!/usr/bin/env bash
PATH=\${PATH#*:}
for word; do [ "\$word" != --device ] && [ "\$word" != cuda ] && words+=("\$word"); done
exec '$bin/train_digits' "\${words[@]}" --device cpu --epochs 2 --batch-size 64 --deterministic --threads 1
END
stand_in mpirun <<END
#!/usr/bin/env bash
[ "\$1 \$2 \$3 \$4" = "-n 16 -H node1:8,node2:8" ] || { echo "mpirun: \$*"; exit 99; }
exec env $(printf "'%s' " "${settings[@]}") '$mpirun' -n 2 -H localhost:2 "\${@:5}"
END
# Slurm's steps, whose ranks PMIx would connect: here mpirun does. A second step finds the checkpoint of the first.
stand_in srun <<END
#!/usr/bin/env bash
while [ "\${1#-}" != "\$1" ]; do
  case \$1 in --mpi=pmix | --kill-on-bad-exit=1) shift ;; -N | --ntasks-per-node) shift 2 ;; *) echo "srun: \$1"; exit 99 ;; esac
done
echo "secret '\${ATHANOR_SECRET-}' interface '\${NCCL_SOCKET_IFNAME-}'" >>"\$FOLDER/steps"
[ "\${LOSE-}" != yes ] || exit 137
exec env $(printf "'%s' " "${settings[@]}") '$mpirun' -n 2 -H localhost:2 "\$@"
END
stand_in scontrol <<'END'
#!/usr/bin/env bash
echo "$*" >>"$FOLDER/requeued"
END
stand_in torchrun <<'END'
#!/usr/bin/env bash
while [ "${1#-}" != "$1" ]; do
  case $1 in
    --no-python) shift ;;
    --nnodes | --node-rank | --nproc-per-node | --master-addr | --master-port | --max-restarts) shift 2 ;;
    *) echo "torchrun: $1"; exit 99 ;;
  esac
done
RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none exec "$@"
END
export PATH=$folder/tools:$PATH

# Each block of commands in a file of its own.
cd "$folder"
sed "s|/shared/|$folder/shared/|g" "$page" | awk '/^```bash$/ { inside = 1; file = sprintf("block%02d", ++n); next } /^```$/ { inside = 0 } inside { print > file }'
[ "$(ls block* | wc -l)" -eq 6 ] || die "expected six blocks of commands, but there are $(ls block* | wc -l)"
block() { # block PATTERN CODE: runs the one that matches
  local file code=0
  file=$(grep -lE -- "$1" block*) && [ "$(wc -w <<<"$file")" -eq 1 ] || die "no one block has $1"
  rm -rf shared && mkdir shared
  bash "$file" >said 2>&1 || code=$?
  [ "$code" -eq "$2" ] || die "$1: expected code $2, but got $code"
}
trained() { grep -q "strategy ddp on 2 ranks" said && grep -q "^test accuracy" said || die "$1: it has not trained on two ranks"; }

block '^mpirun ' 0 && trained mpirun
block 'srun --mpi=pmix' 0 && trained srun
# The batch script: a secret of 32 hex digits; the same script again after a lost rank goes on, and asks Slurm for that.
rm -f steps requeued
block '^#SBATCH' 0 && trained sbatch
grep -qE "^secret '[0-9a-f]{32}' interface 'eth0'$" steps || die "what srun gets: $(cat steps)"
[ ! -e requeued ] || die "a job that is done is requeued"
SLURM_JOB_ID=4711 LOSE=yes block '^#SBATCH' 137
grep -qx 'requeue 4711' requeued || die "no requeue"
# Ranks of torchrun need NCCL. On the CPU the program says so, and who it thinks has started it.
block '^torchrun ' 3
grep -q "communicate through MPI, which torchrun has not started" said || die "torchrun is not recognised"
block '^for local' 0
[ "$(grep -c "communicate through MPI, which torchrun has not started" said)" -eq 8 ] || die "eight ranks by hand are not recognised"
# --max-restarts is tested by launch.restarts; here only that the command is one.
block '--max-restarts 3$' 0 && trained --devices
