#!/usr/bin/env bash
# photos_to_url.sh BIN SOURCE: runs the commands of docs/from_photos_to_a_url.md in their order, on small made-up photos and
# with few steps. Stand-ins for curl, which not every machine has, and for pkill, which would find servers of others.
set -euo pipefail
bin=$1 source=$2
folder=$(mktemp -d)
trap '[ ! -s "$folder/pid" ] || kill "$(cat "$folder/pid")" 2>/dev/null || true; rm -rf "$folder"' EXIT
unset ATHANOR_RUNS_DIR
cd "$folder"

die() { echo "$*"; cat said served 2>/dev/null; exit 1; }
export PYTHONPATH=$source/tests/programs PYTHONDONTWRITEBYTECODE=1
python3 - <<'END'
import pathlib
from serve_client import png_bytes
for name, first in (("cat", 40), ("dog", 170)):
    pathlib.Path("photos", name).mkdir(parents=True)
    for i in range(1, 11):
        rows = b"".join(b"\0" + bytes((first + i + 3 * x * (y % 3)) % 256 for x in range(24)) for y in range(20))
        pathlib.Path("photos", name, f"IMG_{i:04}.jpg").write_bytes(png_bytes(24, 20, rows))
END

mkdir -p build/cpu/bin tools
stand_in() { printf '#!/usr/bin/env bash\n%s\n' "$2" >"$1" && chmod +x "$1"; }
stand_in build/cpu/bin/train_images "exec '$bin/train_images' \"\$@\" --device cpu --model resnet18 --image-size 32 --max-steps 3"
stand_in build/cpu/bin/athanor "[ \$1 = serve ] || exec '$bin/athanor' \"\$@\"; exec '$bin/athanor' \"\$@\" --port 0 --max-batch 2"
stand_in tools/pkill "[ \"\$*\" = \"-HUP -f athanor serve\" ] && exec kill -HUP \"\$(cat '$folder/pid')\""
stand_in tools/curl "exec python3 -c '
import pathlib, sys, urllib.request
from serve_client import multipart
flag, field, url = sys.argv[1:]
assert flag == \"-F\" and field.startswith(\"file=@\"), sys.argv
file = pathlib.Path(field[6:])
kind, body = multipart([(file.name, file.read_bytes())])
url = url.replace(\"http://127.0.0.1:8080\", open(\"url\").read().strip())
print(urllib.request.urlopen(urllib.request.Request(url, body, {\"Content-Type\": kind})).read().decode(), end=\"\")' \"\$@\""
export PATH=$folder/tools:$PATH

# Each block of commands in a file of its own.
awk '/^```bash$/ { inside = 1; file = sprintf("block%02d", ++n); next } /^```$/ { inside = 0 } inside { print > file }' \
  "$source/docs/from_photos_to_a_url.md"
for block in block*; do
  if grep -q 'athanor serve runs' "$block"; then
    bash -c "exec $(cat "$block")" >served 2>served.err &
    echo $! >pid
    for _ in $(seq 6000); do [ -s served ] || { kill -0 "$(cat pid)" && sleep 0.1; } || die "$(cat served.err)"; done
    sed -n 's|^\(http://[0-9.:]*\)/: .*|\1|p' served >url
  else
    bash -eu "$block" >>said 2>&1 || die "$(cat "$block")"
  fi
done
[ "$(ls block* | wc -l)" -eq 5 ] || die "expected five blocks of commands"
[ "$(grep -cE '^photos/cat/IMG_00[01][0-9].jpg: (cat|dog) ' said)" -eq 10 ] || die "predict does not name ten photos"
grep -qE '^\{"image":"IMG_0001.jpg","top":\[\{"class":"(cat|dog)","index":[01],"probability":' said || die "the server does not answer"
for _ in $(seq 6000); do ! grep -q '^athanor serve: reloaded resnet18 of runs/train_images/latest' served.err || break; sleep 0.1; done
grep -q '^athanor serve: reloaded resnet18 of runs/train_images/latest' served.err || die "no reload: $(cat served.err)"
kill "$(cat pid)"
wait "$(cat pid)" || die "the server ended with $?"
: >pid
