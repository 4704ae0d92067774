#!/usr/bin/env bash
# data_drills.sh BIN SOURCE FAILING_READS CASE [COUNT [FORMAT...]]: what may happen to a data set during, or between, trainings on
# it, in each format that train_images reads, or in those named. FAILING_READS is the module of tests/support/failing_reads.cpp.
#   replaced    data is exchanged before a run is resumed: it is refused. COUNT of all drills (0: all), spread over them
#   truncated   a file is cut while it is trained on, or read: one line names it, code 2. COUNT trainings for each format (1)
#   failing     one read in a hundred, or in five, fails once: the run tells of it, and is the undisturbed run bit for bit. COUNT epochs (10)
set -euo pipefail
bin=$1 source=$2 failing_reads=$3 case=$4 count=${5:-0}
folder=$(mktemp -d)
trap 'kill -KILL ${pid:-} 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
unset ATHANOR_RUNS_DIR ATHANOR_DATA_DIR
export XDG_CACHE_HOME=$folder/cache OMP_WAIT_POLICY=passive
train=("$bin/train_images" --device cpu --model resnet20 --image-size 16 --batch-size 8 --threads 1 --deterministic)
formats=(folder split csv jsonl athp athp.json tar tfrecord npy npz h5 idx bin cifar)
[ $# -le 5 ] || formats=("${@:6}")

die() { printf '%s\n' "$*"; cat out err 2>/dev/null; exit 1; }
run() { # run CODE COMMAND...
  local want=$1 code=0
  shift
  "$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "$*: expected code $want, but got $code"
}
names_it() { # names_it PATTERN: one error, beside what is said of an import, which says so
  [ "$(grep -cE '^(error|athanor): ' err)" -eq 1 ] && tail -n 1 err | grep -qE -- "^(error|athanor): .*$1" || die "expected one line like '$1'"
}

# Data
# ------------------------------------------------------------------------------------------------------------------------------
make_photos() { # make_photos: 30 pictures in photos/, and 15 in held_out/, of three classes
  local label class file
  mkdir pictures
  python3 "$source/tests/programs/digit_pictures.py" "$source/data/digits/digits.csv.gz" pictures 200
  for label in 0 1 2; do
    class=$(sed -n $((label + 1))p <<<$'ant\nbee\ncat')
    mkdir -p "photos/$class" "held_out/$class"
    mapfile -t all < <(printf '%s\n' pictures/$label-*.png)
    for file in "${all[@]:0:10}"; do cp "$file" "photos/$class/"; done
    for file in "${all[@]:10:5}"; do cp "$file" "held_out/$class/"; done
  done
}
make_table() { # make_table PHOTOS TABLE: a row for each picture, which lie beside it
  local file label
  cp -r "$1" "${2%/*}/photos"
  [[ $2 != *.csv ]] || echo image,label >"$2"
  find "$1" -name '*.png' | sort | while read -r file; do
    file=photos${file#"$1"} label=$(basename "$(dirname "$file")")
    if [[ $2 = *.csv ]]; then echo "$file,$label"; else echo "{\"image\": \"$file\", \"label\": \"$label\"}"; fi
  done >>"$2"
}
make_cifar() { # make_cifar PHOTOS FOLDER: the five files of CIFAR-10, each with a few records
  "$bin/athanor" pack "$1" "$2/raw.bin" --raw 32x32 >out
  python3 - "$2" <<'PY'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
about = json.loads((folder / "raw.json").read_text())
images, labels = (folder / "raw.bin").read_bytes(), (folder / about["labels"]).read_bytes()
size = 32 * 32 * about["channels"]
records = []
for i in range(len(images) // size):
    pixels = images[i * size : (i + 1) * size]
    planes = b"".join(pixels[c::3] for c in range(3)) if about["channels"] == 3 else 3 * pixels
    records.append(labels[i : i + 1] + planes)
for file in list(folder.iterdir()):
    file.unlink()
for part in range(5):
    (folder / f"data_batch_{part + 1}.bin").write_bytes(b"".join(records[part::5]))
(folder / "test_batch.bin").write_bytes(b"".join(records[::7]))
PY
}
make() { # make FORMAT PHOTOS TO [PACK'S FLAGS]: the data set in the folder TO
  mkdir -p "$3"
  case $1 in
    folder | split) cp -r "$2" "$3/photos" ;;
    csv | jsonl) make_table "$2" "$3/a.$1" ;;
    cifar) make_cifar "$2" "$3" ;;
    athp.json) "$bin/athanor" pack "$2" "$3/a.$1" --file-mb 1 "${@:4}" >out ;;
    npy) "$bin/athanor" pack "$2" "$3/images.npy" --raw 8x8 "${@:4}" >out ;;
    idx) "$bin/athanor" pack "$2" "$3/a-images-idx3-ubyte" --raw 8x8 "${@:4}" >out ;;
    npz | h5 | bin) "$bin/athanor" pack "$2" "$3/a.$1" --raw 8x8 "${@:4}" >out ;;
    *) "$bin/athanor" pack "$2" "$3/a.$1" "${@:4}" >out ;;
  esac
}
path_of() { # path_of FORMAT FOLDER: what --train names
  case $1 in
    folder | split) echo "$2/photos" ;;
    cifar) echo "$2" ;;
    npy) echo "$2/images.npy" ;;
    idx) echo "$2/a-images-idx3-ubyte" ;;
    *) echo "$2/a.$1" ;;
  esac
}
use() { # use FORMAT TRAIN VAL: sets `data`, the flags that name them
  data=(--train "$(path_of "$1" "$2")" --val "$(path_of "$1" "$3")")
  [ "$1" != split ] || data=("$(path_of "$1" "$2")")
}
can() { # can FORMAT: whether this build reads it
  rm -rf probe
  make "$1" photos probe 2>err || { grep -qE 'built without|lib[a-z0-9]*-dev' err && echo "$1 is left out: $(cat err)" && return 1; die "$1"; }
}

# Replaced
# ------------------------------------------------------------------------------------------------------------------------------
first() { find "$1" -name '*.png' | sort | sed -n 1p; }
change() { # change HOW PHOTOS
  local one
  one=$(first "$2/ant")
  case $1 in
    renamed_class) mv "$2/ant" "$2/ape" ;;
    swapped_classes) mv "$2/ant" "$2/x"; mv "$2/bee" "$2/ant"; mv "$2/x" "$2/bee" ;;
    renamed) mv "$one" "$2/ant/z.png" ;;
    moved) mv "$one" "$2/bee/" ;;
    replaced) cp "$(first held_out/ant)" "$one" ;;
    swapped) cp "$one" x; cp "$(first "$2/bee")" "$one"; mv x "$(first "$2/bee")" ;;
    byte) one=$(find "$2" -name '*.png' | sort | tail -n 1); printf X | dd of="$one" bs=1 seek=$(($(stat -c %s "$one") - 1)) conv=notrunc status=none ;;
    added) cp "$(first held_out/ant)" "$2/ant/new.png" ;;
    removed) rm "$one" ;;
  esac
}
changes_of() { # changes_of FORMAT: those it can see
  local all=(swapped_classes renamed moved replaced swapped added removed)
  case $1 in
    folder | split) all+=(renamed_class byte) ;;
    csv | jsonl) all+=(renamed_class byte rows label) ;;
    athp | tar) all+=(renamed_class order) ;;
    athp.json) all+=(renamed_class order) ;;
    cifar) all=(moved replaced swapped pixel label) ;;
    idx | npy | bin) all+=(order pixel label) ;;
    *) all+=(order) ;;
  esac
  [ "$1" = split ] || all+=(held_out)
  printf "$1 %s\n" "${all[@]}"
}
make_changed() { # make_changed FORMAT HOW TO
  local how=$2 labels bytes
  rm -rf changed "$3"
  cp -r photos changed
  change "$how" changed
  case $how in
    order) make "$1" photos "$3" --shuffle-seed 7 ;;
    rows) make "$1" photos "$3"; { sed -n 1,2p "$3/a.$1"; sed 1,2d "$3/a.$1" | tac; } >x; mv x "$3/a.$1" ;;
    label) # of one image; the names of classes stay
      make "$1" photos "$3"
      case $1 in
        csv | jsonl) sed -i '3s/\bant\b\("}\)\?$/bee\1/' "$3/a.$1" ;;
        cifar) printf '\1' | dd of="$3/data_batch_1.bin" bs=1 conv=notrunc status=none ;;
        *) # its lowest byte
          labels=$(find "$3" -name '*labels*') bytes=1
          [ "$1" != npy ] || bytes=8
          printf '\1' | dd of="$labels" bs=1 seek=$(($(stat -c %s "$labels") - bytes)) conv=notrunc status=none ;;
      esac ;;
    pixel) # the last one
      make "$1" photos "$3"
      local file; file=$(path_of "$1" "$3"); [ "$1" != cifar ] || file=$3/data_batch_5.bin
      printf '\377' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 1)) conv=notrunc status=none ;;
    held_out) make "$1" photos "$3" ;;
    *) make "$1" changed "$3" ;;
  esac
}
begin_run() { # begin_run FORMAT: in run.FORMAT, on FORMAT.train and FORMAT.val
  [ ! -d "run.$1" ] || return 0
  make "$1" photos "$1.train"
  make "$1" held_out "$1.val"
  use "$1" "$1.train" "$1.val"
  run 0 "${train[@]}" "${data[@]}" --workers 0 --epochs 1 --run-dir "run.$1"
}
replaced_drill() { # replaced_drill FORMAT HOW
  local val=$1.val how=$2
  begin_run "$1"
  make_changed "$1" "$2" "$1.new"
  if [[ $how = @(held_out|renamed_class) ]]; then # classes have the same names in both
    [ "$how" != held_out ] || how=moved
    rm -rf changed && cp -r held_out changed && change "$how" changed
    val=$1.new_val
    rm -rf "$val" && make "$1" changed "$val"
  fi
  use "$1" "$1.new" "$val"
  run 2 "${train[@]}" "${data[@]}" --workers 0 --epochs 2 --run-dir "run.$1" --resume auto
  names_it "settings must match .*((training|validation) data|list of classes|number of (training|validation) images)"
}
accepted_drill() { # accepted_drill FORMAT: the same data at another place, written at another time
  begin_run "$1"
  mkdir -p elsewhere
  cp -r "$1.train" "$1.val" elsewhere/
  find elsewhere -exec touch -d '2001-02-03' {} +
  use "$1" "elsewhere/$1.train" "elsewhere/$1.val"
  run 0 "${train[@]}" "${data[@]}" --workers 0 --epochs 2 --run-dir "run.$1" --resume auto
  grep -q '^resumed from' out || die "$1: it does not go on"
}

# Truncated, and failing
# ------------------------------------------------------------------------------------------------------------------------------
largest() { find "$1" -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-; }
truncated_drill() { # truncated_drill FORMAT WORKERS: cut while it is trained on
  local file code=0 before
  rm -rf data run cache && make "$1" photos data/train && make "$1" held_out data/val
  use "$1" data/train data/val
  "${train[@]}" "${data[@]}" --workers "$2" --epochs 100000 --run-dir run >out 2>err &
  pid=$!
  until [ -s run/metrics.jsonl ]; do kill -0 $pid 2>/dev/null || die "$1: it does not train"; sleep 0.05; done
  case $1 in
    folder | split | csv | jsonl) file=$(find data/train -name '*.png' | shuf -n 1) ;;
    h5) file=$(largest cache) ;; # the packed file that it was made
    *) file=$(largest data/train) ;;
  esac
  truncate -s $(($(stat -c %s "$file") / 2)) "$file"
  if [ "$1" = npz ]; then # in memory
    before=$(wc -l <run/metrics.jsonl)
    until [ "$(wc -l <run/metrics.jsonl)" -gt $((before + 20)) ]; do kill -0 $pid 2>/dev/null || die "npz: it has ended"; sleep 0.05; done
    kill -TERM $pid
    wait $pid || code=$?
    [ $code -eq 143 ] || die "npz: expected code 143, but got $code"
    return
  fi
  wait $pid || code=$?
  [ $code -eq 2 ] || die "$1 with $2 workers: expected code 2, but got $code"
  names_it "$(basename "$file")"
}
cut_at_read() { # cut_at_read N COMMAND...: the Nth read below given/ finds its file cut in half
  local n=$1 code=0
  shift
  env LD_PRELOAD="$failing_reads" FAILING_READS="$folder/given" FAILING_READS_CUT="$n" "$@" >out 2>err || code=$?
  [ $code -eq 2 ] || die "$*, cut at read $n: expected code 2, but got $code"
  names_it "given/"
}
results_of() { grep '"event":"epoch"' "$1/metrics.jsonl" | grep -oE '"(epoch|(train|val)_(loss|accuracy)|weights_hash)":[^,}]*'; }
failing_drill() { # failing_drill FORMAT WORKERS
  local every=100
  case $1 in athp | athp.json | npz) every=5 ;; esac # read once, or mapped: few reads
  rm -rf data whole failing cache && make "$1" photos data/train && make "$1" held_out data/val
  use "$1" data/train data/val
  run 0 "${train[@]}" "${data[@]}" --workers "$2" --epochs "$count" --run-dir whole
  rm -rf cache
  run 0 env LD_PRELOAD="$failing_reads" FAILING_READS="$folder/data" FAILING_READS_EVERY=$every \
    "${train[@]}" "${data[@]}" --workers "$2" --epochs "$count" --run-dir failing
  cmp whole/model.safetensors failing/model.safetensors || die "$1 with $2 workers: other weights"
  results_of whole >x
  results_of failing | cmp x - || die "$1 with $2 workers: other metrics"
  ! grep -q '^error: ' err || die "$1 with $2 workers: an error"
  [ "$1" != h5 ] || return 0 # libhdf5 reads it once, and does not try again
  grep -qE '[0-9]+ reads? (was|were) tried again after an error' out || die "$1 with $2 workers: nothing is said of reads that failed"
}

# ------------------------------------------------------------------------------------------------------------------------------
make_photos
able=()
for format in "${formats[@]}"; do ! can "$format" || able+=("$format"); done
case $case in
replaced)
  mapfile -t drills < <(for format in "${able[@]}"; do changes_of "$format"; done)
  all=${#drills[@]}
  [ "$count" -gt 0 ] || count=$all
  for ((i = 0; i < count; ++i)); do replaced_drill ${drills[i * all / count]}; done
  for format in "${able[@]}"; do [ ! -d "run.$format" ] || accepted_drill "$format"; done
  echo "replaced: $count of $count refused, of $all; the same data elsewhere is accepted in each format"
  ;;
truncated)
  for format in "${able[@]}"; do
    for ((i = 0; i < (count > 0 ? count : 1); ++i)); do truncated_drill "$format" $((i % 2 * 2)); done
  done
  # What is read once, while it is read.
  for format in "${able[@]}"; do
    [[ $format != @(athp|athp.json|npz|folder|split|csv|jsonl) ]] || continue
    for read in 1 2 5; do
      rm -rf given val cache && make "$format" photos given/train && make "$format" held_out val
      use "$format" given/train val
      cut_at_read $read "${train[@]}" "${data[@]}" --epochs 1 --run-dir none
    done
  done
  rm -rf run && run 0 "${train[@]}" photos --epochs 1 --run-dir run
  for reader in "1 $bin/athanor predict given/model.safetensors $(first held_out)" \
    "1 ${train[*]} photos --epochs 1 --run-dir none --pretrained given/model.safetensors" \
    "2 ${train[*]} photos --epochs 1 --run-dir none --pretrained given/model.safetensors"; do
    rm -rf given && mkdir given && cp run/model.safetensors given/
    cut_at_read $reader
  done
  echo "truncated: every format names the file that was cut"
  ;;
failing)
  [ "$count" -gt 0 ] || count=10
  for format in "${able[@]}"; do
    for workers in 0 2; do failing_drill "$format" $workers; done
  done
  echo "failing: with one read in a hundred failing, each format trains the same, bit for bit"
  ;;
*) die "no such case: $case" ;;
esac
