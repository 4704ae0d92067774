#!/usr/bin/env bash
# tool_pack.sh ATHANOR: pack, inspect and verify as a user runs them: damage, signals, kill -9.
set -euo pipefail
athanor=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$*"; exit 1; }

# A set in MNIST's format: 40,000 images of 28x28, labels 0 to 9.
big_endian() { printf "\\x$(printf %02x $(($1 >> 24 & 255)))\\x$(printf %02x $(($1 >> 16 & 255)))\\x$(printf %02x $(($1 >> 8 & 255)))\\x$(printf %02x $(($1 & 255)))"; }
count=40000
mkdir "$folder/mnist"
{ big_endian 0x803; big_endian $count; big_endian 28; big_endian 28
  head -c $((count * 784)) < <(yes 'any pixels would do, as long as they are not the same everywhere'); } \
  > "$folder/mnist/train-images-idx3-ubyte"
{ big_endian 0x801; big_endian $count
  head -c $count < <(yes | tr 'y\n' '\3\7'); } > "$folder/mnist/train-labels-idx1-ubyte"
out=$folder/out
mkdir "$out"

# The same bytes with any number of threads, and nothing on stderr, which is no terminal.
for threads in 1 2 5; do
  "$athanor" pack "$folder/mnist" "$out/$threads.athp" --threads $threads > "$folder/stdout" 2> "$folder/stderr"
  grep -q '40,000 samples' "$folder/stdout" || fail "pack said: $(cat "$folder/stdout")"
  [ "$(cat "$folder/stderr")" = "$folder/mnist has a training and a test part; this is --part train" ] ||
    fail "pack must say which part it takes, but says: $(cat "$folder/stderr")"
done
cmp "$out/1.athp" "$out/2.athp"
cmp "$out/1.athp" "$out/5.athp"
"$athanor" pack "$out/1.athp" "$out/again.athp" > "$folder/stdout"
cmp "$out/1.athp" "$out/again.athp"
"$athanor" pack "$out/1.athp" "$out/few.athp" --limit 100 --shuffle-seed 5 > "$folder/stdout"
grep -q '100 (100 raw)' <("$athanor" inspect "$out/few.athp") || fail "--limit 100 gave: $("$athanor" inspect "$out/few.athp")"

"$athanor" inspect "$out/1.athp" > "$folder/stdout"
grep -q '28x28x1 u8' "$folder/stdout" && grep -q '20,000 samples' "$folder/stdout" || fail "inspect: $(cat "$folder/stdout")"
grep -q '"samples": 40000' <("$athanor" inspect --json "$out/1.athp") || fail "inspect --json"
grep -q 'all as they were written' <("$athanor" verify "$out/1.athp") || fail "verify of a whole file"
red=$folder/$'\e[31mred.athp'
cp "$out/few.athp" "$red"
for command in inspect verify; do
  "$athanor" $command "$red" > "$folder/stdout"
  grep -q '\\x1b\[31mred' "$folder/stdout" && ! grep -q $'\e' "$folder/stdout" ||
    fail "$command shows an escape in a name raw: $(cat "$folder/stdout")"
done
id=$("$athanor" verify "$out/1.athp" | sed 's/.* //')
grep -q "$id" <("$athanor" inspect "$out/1.athp") || fail "inspect and verify must agree on the content id"

# Damage: 784 bytes a sample, 832 with padding. A byte of sample 1000, one of the padding behind sample 2000.
cp "$out/1.athp" "$folder/bad.athp"
damage() { printf 'X' | dd of="$folder/bad.athp" bs=1 seek="$1" conv=notrunc status=none; }
damage $((4096 + 1000 * 832 + 5))
damage $((4096 + 2000 * 832 + 800))
code=0
"$athanor" verify "$folder/bad.athp" > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] || fail "verify of a damaged file: code $code"
[ "$(wc -l < "$folder/stderr")" -eq 1 ] && [ "$(wc -l < "$folder/stdout")" -eq 2 ] || fail "$(cat "$folder/stdout" "$folder/stderr")"
grep -q "^offset $((4096 + 1000 * 832)): sample 1000 " "$folder/stdout" || fail "$(cat "$folder/stdout")"
grep -q "^offset $((4096 + 2000 * 832 + 800)): padding" "$folder/stdout" || fail "$(cat "$folder/stdout")"
code=0
"$athanor" pack "$folder/bad.athp" "$out/from_bad.athp" > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] && grep -q 'sample 1000' "$folder/stderr" || fail "pack of a damaged file: code $code, $(cat "$folder/stderr")"
[ ! -e "$out/from_bad.athp" ] || fail "pack of a damaged file left one"

# Images to a folder and back, and to another size.
"$athanor" pack "$out/few.athp" "$out/images" > "$folder/stdout"
[ "$(find "$out/images" -name '*.png' | wc -l)" -eq 100 ] || fail "a folder of images: $(cat "$folder/stdout")"
"$athanor" pack "$out/images" "$out/small.athp" --resize 20 > "$folder/stdout"
grep -q '100 (100 jpeg)' <("$athanor" inspect "$out/small.athp") || fail "--resize: $("$athanor" inspect "$out/small.athp")"
"$athanor" pack "$out/images" "$out/small.athp" --raw 14x12 --threads 2 > "$folder/stdout"
grep -q '14x12x3 u8' <("$athanor" inspect "$out/small.athp") || fail "--raw: $("$athanor" inspect "$out/small.athp")"
# What verify and pack vouch for, they have decoded: a photo cut in half, a text called .jpg and an empty PNG are found.
"$athanor" pack "$out/images" "$out/photos" --resize 20 > "$folder/stdout"
grep -q '100 samples, all can be read and are whole images' <("$athanor" verify "$out/photos") || fail "verify of photos"
photo=$(find "$out/photos" -name '*.jpg' -print -quit)
class=$(dirname "$photo")
head -c $(($(stat -c %s "$photo") / 2)) "$photo" > "$class/cut.jpg"
echo 'not a photo' > "$class/text.jpg"
: > "$class/empty.png"
for threads in 1 3; do
  code=0
  "$athanor" verify "$out/photos" --threads $threads > "$folder/stdout" 2> "$folder/stderr" || code=$?
  [ "$code" -eq 2 ] && grep -q '103 samples must be whole images, but 3 places are damaged' "$folder/stderr" || fail "verify of damaged photos: $code, $(cat "$folder/stderr")"
  [ "$(wc -l < "$folder/stdout")" -eq 3 ] || fail "verify of damaged photos: $(cat "$folder/stdout")"
  for name in cut.jpg text.jpg empty.png; do
    grep -q "/$name: .*\(jpeg: offset\|is text\|is empty\)" "$folder/stdout" || fail "verify must name $name: $(cat "$folder/stdout")"
  done
done
code=0
"$athanor" pack "$out/photos" "$out/photos.athp" > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] && grep -q 'cut.jpg\|text.jpg\|empty.png' "$folder/stderr" || fail "pack of damaged photos: $code, $(cat "$folder/stderr")"
[ ! -e "$out/photos.athp" ] || fail "pack of damaged photos left a file"
"$athanor" pack "$out/photos" "$out/photos.athp" --no-decode > "$folder/stdout"
grep -q 'all as they were written, content id' <("$athanor" verify "$out/photos.athp" --no-decode) || fail "verify --no-decode"
code=0
"$athanor" verify "$out/photos.athp" > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] && [ "$(grep -c '^sample ' "$folder/stdout")" -eq 3 ] || fail "verify of a packed file of damaged photos: $(cat "$folder/stdout")"
rm "$class/cut.jpg" "$class/text.jpg" "$class/empty.png"
# Bytes between two segments of a photo change no pixel.
cp "$photo" "$folder/photo.jpg"
{ head -c 2 "$folder/photo.jpg" && printf junk && tail -c +3 "$folder/photo.jpg"; } > "$photo"
"$athanor" verify "$out/photos" > "$folder/stdout" || fail "verify of a photo with bytes too many: $(cat "$folder/stdout")"
grep -q "^1 image has .*$(basename "$photo"): .*4 extraneous bytes" "$folder/stdout" && grep -q 'all can be read' "$folder/stdout" || fail "verify must count it: $(cat "$folder/stdout")"
mv "$folder/photo.jpg" "$photo"

# A standard output that takes nothing, and a file that may not grow, are a line and a code.
for command in "inspect --json" inspect verify; do
  code=0
  "$athanor" $command "$out/1.athp" > /dev/full 2> "$folder/stderr" || code=$?
  [ "$code" -eq 2 ] && [ "$(wc -l < "$folder/stderr")" -eq 1 ] && grep -q 'No space left on device' "$folder/stderr" ||
    fail "$command to a full disk: $code, $(cat "$folder/stderr")"
done
code=0
(ulimit -f 100; exec "$athanor" pack "$out/1.athp" "$out/limited.athp" > "$folder/stdout" 2> "$folder/stderr") || code=$?
[ "$code" -eq 2 ] && [ "$(wc -l < "$folder/stderr")" -eq 1 ] && grep -q 'File too large' "$folder/stderr" || fail "ulimit -f: $code, $(cat "$folder/stderr")"

for wrong in 14 14x 14x12x3 0x5 axb; do
  code=0
  "$athanor" pack "$out/images" "$out/no.athp" --raw $wrong > "$folder/stdout" 2> "$folder/stderr" || code=$?
  [ "$code" -eq 2 ] && grep -q "HEIGHTxWIDTH.*'$wrong'" "$folder/stderr" || fail "--raw $wrong: $code, $(cat "$folder/stderr")"
done

# Several files, read as one.
"$athanor" pack "$out/1.athp" "$out/set.athp.json" --file-mb 10 > "$folder/stdout"
[ "$(ls "$out"/set-*.athp | wc -l)" -eq 3 ] || fail "--file-mb 10 made: $(ls "$out")"
"$athanor" verify "$out/set.athp.json" > "$folder/stdout" || fail "verify of a set: $(cat "$folder/stdout")"
[ "$(grep -c 'all as they were written' "$folder/stdout")" -eq 3 ] || fail "verify of a set: $(cat "$folder/stdout")"
"$athanor" pack "$out/set.athp.json" "$out/again.athp" > "$folder/stdout"
cmp "$out/1.athp" "$out/again.athp"
printf 'X' | dd of="$out/set-00001.athp" bs=1 seek=4099 conv=notrunc status=none
code=0
"$athanor" verify "$out/set.athp.json" > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] && grep -q 'set-00001.athp, offset 4096: sample 0 ' "$folder/stdout" || fail "code $code, $(cat "$folder/stdout")"
code=0
"$athanor" pack "$out/1.athp" "$out/1.zip" > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] && grep -q 'must end in .athp' "$folder/stderr" || fail "code $code, $(cat "$folder/stderr")"

# Several sources, and shards of other formats.
mkdir "$out/parts"
"$athanor" pack "$out/1.athp" "$out/one.tfrecord" > "$folder/stdout"
"$athanor" pack "$out/one.tfrecord" "$out/one.athp" > "$folder/stdout"
"$athanor" pack "$out/1.athp" "$out/parts/t.tfrecord" --shard-size 10MB > "$folder/stdout"
grep -q 't-\*\.tfrecord: ' "$folder/stdout" && [ -e "$out/parts/t-00001.tfrecord" ] || fail "--shard-size 10MB: $(cat "$folder/stdout"; ls "$out/parts")"
mkdir "$out/halves"
"$athanor" pack "$out/1.athp" "$out/halves/t.tfrecord" --shard-size 12.5MB > "$folder/stdout"
[ -e "$out/halves/t-00002.tfrecord" ] && [ ! -e "$out/halves/t-00003.tfrecord" ] || fail "--shard-size 12.5MB: $(ls "$out/halves")"
code=0
"$athanor" pack "$out/1.athp" "$out/no.tfrecord" --shard-size 1.5XB > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] && grep -q "shard-size: .*1.5GB, but is '1.5XB'" "$folder/stderr" || fail "--shard-size 1.5XB: $code, $(cat "$folder/stderr")"
# Formats that hold numbers alone lose the names of classes, and say so.
"$athanor" pack "$out/images" "$out/named.tfrecord" > "$folder/stdout" 2> "$folder/stderr"
grep -q "^not kept: the names of .* classes (0 .*), of which .*named.tfrecord has the numbers alone" "$folder/stderr" || fail "names of classes: $(cat "$folder/stderr")"
"$athanor" pack "$out/images" "$out/named.athp" > "$folder/stdout" 2> "$folder/stderr"
[ ! -s "$folder/stderr" ] || fail "names of classes: $(cat "$folder/stderr")"
for sources in "$out/parts" "$out/parts/t-*.tfrecord" "$out/parts/t-{00000..00001}.tfrecord,$out/parts/t-0000[2-9].tfrecord"; do
  "$athanor" pack "$sources" "$out/parts.athp" > "$folder/stdout"
  cmp "$out/one.athp" "$out/parts.athp"
done
code=0
"$athanor" pack "$out"/parts/t-*.tfrecord > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] && grep -q 'must not exist yet, but .*tfrecord does' "$folder/stderr" || fail "code $code, $(cat "$folder/stderr")"
rm "$out/parts.athp"
"$athanor" pack "$out"/parts/t-*.tfrecord "$out/parts.athp" > "$folder/stdout"
cmp "$out/one.athp" "$out/parts.athp"
cp "$out/parts/t-00000.tfrecord" "$out/a,b.tfrecord"
"$athanor" pack "$out/a,b.tfrecord" "$out"/parts/t-0000[1-9].tfrecord "$out/comma.athp" > "$folder/stdout"
cmp "$out/one.athp" "$out/comma.athp"
"$athanor" pack --help > "$folder/stdout"
grep -q 'SRC\.\.\. DST$' "$folder/stdout" && ! grep -q '.\{81\}' "$folder/stdout" || fail "pack --help: $(cat "$folder/stdout")"
code=0
"$athanor" pack "$out/parts/t-{00000..00009}.tfrecord" "$out/no.athp" > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] && [ "$(wc -l < "$folder/stderr")" -eq 1 ] && grep -q 'missing: .*t-00009.tfrecord' "$folder/stderr" || fail "code $code, $(cat "$folder/stderr")"

# Samples of several fields: folders of the same names, and a table of them.
"$athanor" pack "$folder/mnist" "$out/digits" --limit 6 > "$folder/stdout"
mkdir -p "$out/pairs/images" "$out/pairs/masks"
for image in "$out"/digits/*/*.png; do cp "$image" "$out/pairs/images/"; cp "$image" "$out/pairs/masks/"; done
"$athanor" pack "$out/pairs" "$out/pairs.athp" > "$folder/stdout"
grep -q 'mask: mask, u8 \[0,0\]' <("$athanor" inspect "$out/pairs.athp") || fail "inspect of pairs: $("$athanor" inspect "$out/pairs.athp")"
grep -q 'all as they were written' <("$athanor" verify "$out/pairs.athp") || fail "verify of pairs"
{ echo 'image,mask,label,centre.0,centre.1'
  for image in "$out"/pairs/images/*; do echo "pairs/images/${image##*/},pairs/masks/${image##*/},four,1.5,2"; done; } > "$out/pairs.csv"
"$athanor" pack "$out/pairs.csv" "$out/table.athp" --threads 3 > "$folder/stdout"
grep -q 'centre: values, f32 \[2\]' <("$athanor" inspect "$out/table.athp") || fail "inspect of a table: $("$athanor" inspect "$out/table.athp")"
{ echo 'image,even,odd'; for image in "$out"/pairs/images/*; do echo "pairs/images/${image##*/},1,0"; done; } > "$out/labels.csv"
"$athanor" pack "$out/labels.csv" "$out/labels.athp" --task multilabel > "$folder/stdout"
"$athanor" inspect "$out/labels.athp" > "$folder/stdout"
grep -q ' 6 samples  even' "$folder/stdout" && grep -q ' 0 samples  odd' "$folder/stdout" || fail "inspect of several labels: $(cat "$folder/stdout")"
code=0
"$athanor" pack "$out/pairs.csv" "$out/table.tar" > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] && grep -q "must have only an image and a label, but has 2 more fields; a packed file (.athp) can hold them" "$folder/stderr" || fail "a table as a tar: $code, $(cat "$folder/stderr")"
printf 'not a picture' > "$out/pairs/masks/00000003.png"
code=0
"$athanor" verify "$out/pairs.csv" > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] && grep -q '^sample 3: ' "$folder/stdout" || fail "verify of a table: $code, $(cat "$folder/stdout" "$folder/stderr")"
rm "$out/pairs/masks/00000003.png"
code=0
"$athanor" pack "$out/pairs" "$out/no.athp" > "$folder/stdout" 2> "$folder/stderr" || code=$?
[ "$code" -eq 2 ] && grep -q 'images/00000003.png must have a file of the same name in masks/' "$folder/stderr" || fail "pairs without a mask: $(cat "$folder/stderr")"

# kill -9 at any moment: under the final name is nothing, or a whole file.
rm -r "${out:?}"/*
for round in $(seq 1 10); do
  "$athanor" pack "$folder/mnist" "$out/killed.athp" > /dev/null 2>&1 &
  sleep "0.$(printf %03d $((RANDOM % 250)))"
  kill -9 $! 2> /dev/null || true
  wait $! 2> /dev/null || true
  if [ -e "$out/killed.athp" ]; then
    "$athanor" verify "$out/killed.athp" > /dev/null || fail "kill -9 left a damaged file (round $round)"
  fi
  rm -rf "${out:?}"/*
done

# SIGINT and SIGTERM while samples are written: nothing is left, and the code says which. (One that comes after the last
# sample is no test. A script's background jobs ignore SIGINT: --default-signal.)
for signal in INT TERM; do
  for round in $(seq 1 60); do
    code=0
    env --default-signal "$athanor" pack "$folder/mnist" "$out/stopped.athp" > /dev/null 2> "$folder/stderr" &
    while [ -z "$(ls -A "$out")" ] && kill -0 $! 2> /dev/null; do :; done
    kill -$signal $! 2> /dev/null || true
    wait $! 2> /dev/null || code=$?
    if grep -q "ended by SIG$signal" "$folder/stderr"; then break; fi
    rm -rf "${out:?}"/*
    [ "$round" -lt 60 ] || fail "no SIG$signal came while samples were written"
  done
  [ "$code" -eq "$([ $signal = INT ] && echo 130 || echo 143)" ] || fail "SIG$signal: code $code"
  [ -z "$(ls -A "$out")" ] || fail "SIG$signal left: $(ls -A "$out")"
done
