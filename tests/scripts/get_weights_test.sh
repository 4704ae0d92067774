#!/usr/bin/env bash
# get_weights_test.sh [BIN]: scripts/get_weights.sh with a table and a server that are made up: downloads, whole and resumed, checks,
# files from a folder, and the line that each failure gets. The real table has each name and file once.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/tests/support/python.sh"
command -v curl >/dev/null || { echo "skipped: there is no curl"; exit 77; }
folder=$(mktemp -d)
server=""
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
cd "$folder"
export HOME=$folder XDG_CACHE_HOME=relative # which does not count

die() { echo "$*"; cat out err log 2>/dev/null; exit 1; }
weights() { # weights CODE ARGUMENTS...
  local want=$1 code=0
  shift
  mock/scripts/get_weights.sh "$@" >out 2>err || code=$?
  [ "$code" -eq "$want" ] || die "$*: expected code $want, but got $code"
}
says() { grep -qE -- "$1" "${2-out}" || die "expected '$1'"; }
refuses() { # refuses PATTERN ARGUMENTS...: in the only line
  weights 2 "${@:2}"
  [ "$(wc -l <err)" -eq 1 ] || die "$*: expected one line on stderr"
  says "^get_weights.sh: $1" err
}

# A server: /torch is any server, /deaf answers no ranges, /timm redirects as Hugging Face does, which states the checksum of what it
# sends; /wrong states another one.
mkdir -p site mock/scripts mock/nn/models
head -c 300000 /dev/urandom >site/data
sum=$(sha256sum <site/data | cut -d' ' -f1)
cat >server.py <<'SERVER'
import hashlib, http.server, re
data = open("site/data", "rb").read()
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, form, *values):
        with open("log", "a") as log:
            log.write(f"{self.command} {self.path} {self.headers.get('Range', '-')}\n")
    def do_GET(self):
        kind = self.path.split("/")[1]
        if kind not in ("torch", "deaf", "timm", "wrong", "plain"):
            self.send_error(404)
        elif kind in ("timm", "wrong", "plain") and not self.path.endswith("cdn"):
            self.send_response(302)
            self.send_header("Location", self.path + "/cdn")
            if kind != "plain":
                stated = hashlib.sha256(data if kind == "timm" else b"").hexdigest()
                self.send_header("X-Linked-Etag", f'"{stated}"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            begin = re.match(r"bytes=(\d+)-", self.headers.get("Range", "")) if kind != "deaf" else None
            at = int(begin[1]) if begin else 0
            if at >= len(data):
                return self.send_error(416)
            self.send_response(206 if begin else 200)
            if begin:
                self.send_header("Content-Range", f"bytes {at}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - at))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data[at:])
    do_HEAD = do_GET
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
open("port.part", "w").write(str(server.server_port))
import os; os.rename("port.part", "port")
server.serve_forever()
SERVER
python3 server.py &
server=$!
for _ in $(seq 2400); do [ ! -f port ] || break; sleep 0.05; done
home=http://127.0.0.1:$(cat port)
cp "$root/scripts/get_weights.sh" mock/scripts/
cat >mock/nn/models/weights.txt <<TABLE
# name
a.v2 224 80.9 ${sum:0:8} $home/torch/a-${sum:0:8}.pth
a.v1 224 76.1 0676ba61 $home/torch/a-0676ba61.pth
a_d.v1 224 - ${sum:0:8} $home/deaf/a_d.pth
t.ft 160 - - $home/timm/theirs.ft/resolve/main/model.safetensors
w.ft 160 - - $home/wrong/w.ft/resolve/main/model.safetensors
p.ft 160 - - $home/plain/p.ft/resolve/main/model.safetensors
gone.v1 224 - 12345678 $home/nowhere/gone-12345678.pth
TABLE
cache=$folder/.cache/athanor/weights

weights 0 --list
[ "$(wc -l <out)" -eq 8 ] || die "--list has other rows"
says '^a\.v2 +224 +80\.9 +- +http'
weights 0 a t.ft
says "^a.v2 is in $cache/a-${sum:0:8}.pth \(SHA-256 ${sum:0:8}\)$"
says "^t.ft is in $cache/theirs.ft.safetensors \(SHA-256 $sum\)$"
cmp -s site/data "$cache/a-${sum:0:8}.pth" && cmp -s site/data "$cache/theirs.ft.safetensors" || die "other bytes"
weights 0 --list
[ "$(grep -c ' yes ' out)" -eq 2 ] || die "--list does not know what is there"

# What is there is not fetched again, unless it is damaged; a part of it is completed, or fetched anew where a server cannot go on.
: >log
weights 0 a t
[ ! -s log ] || die "it is fetched again"
printf x | dd of="$cache/a-${sum:0:8}.pth" bs=1 seek=9 conv=notrunc 2>/dev/null
weights 0 a.v2
cmp -s site/data "$cache/a-${sum:0:8}.pth" || die "it is still damaged"
for part in 1000 299999 300000; do
  : >log
  rm "$cache/a-${sum:0:8}.pth"
  head -c $part site/data >"$cache/a-${sum:0:8}.pth.part"
  weights 0 a
  cmp -s site/data "$cache/a-${sum:0:8}.pth" || die "it is not completed from $part"
  [ $part -eq 300000 ] || says "bytes=$part-$" log
done
[ ! -s log ] || die "all of it was there"
mkdir other
head -c 1000 site/data >other/a_d.pth.part
weights 0 a_d --to other
cmp -s site/data other/a_d.pth || die "a server that cannot go on"
[ -z "$(ls other/*.part "$cache"/*.part 2>/dev/null)" ] || die "a part is left"

# What cannot be checked is said.
weights 0 p
says "nobody states its SHA-256, which is $sum"

# Failures: a line each, and the others are fetched.
rm "$cache/theirs.ft.safetensors"
refuses "a.v1: a-0676ba61.pth: its SHA-256 must begin with 0676ba61, but is $sum: " a.v1
refuses "w: w.ft.safetensors: its SHA-256 must begin with e3b0c442.*, but is $sum: " w
refuses "gone: $home/nowhere/gone-12345678.pth: .*404.*--from DIR" gone t
[ -f "$cache/theirs.ft.safetensors" ] || die "the second name is forgotten"
[ -z "$(ls "$cache"/*0676ba61* "$cache"/w.ft* "$cache"/gone* 2>/dev/null)" ] || die "what failed is there"
refuses "b: there are no weights of that name" b
refuses "name weights"
refuses "options are .* '--form'" --form x
refuses "--from must be a folder, but x is not" a --from x
refuses "cannot create the folder /dev/null/x" a --to /dev/null/x

# Without a network: by the file's name, or as the caches of Hugging Face are laid out.
kill "$server"
server=""
rm -r "$cache" other
mkdir -p given/models--timm--theirs.ft/snapshots/1a2b
refuses "a: given has no a-${sum:0:8}.pth" a --from given
cp site/data "given/a-${sum:0:8}.pth"
cp site/data given/model.safetensors # of whom?
refuses "t: given has no theirs.ft.safetensors" t --from given
mv given/model.safetensors given/models--timm--theirs.ft/snapshots/1a2b/
weights 0 a t --from given
says "^a.v2 is in $cache/a-${sum:0:8}.pth"
says "^t.ft is in $cache/theirs.ft.safetensors"
echo x >given/a-0676ba61.pth
refuses "a.v1: a-0676ba61.pth: its SHA-256 must begin with 0676ba61" a.v1 --from given
[ -f given/a-0676ba61.pth ] || die "what was given is gone"

grep -v '^#' "$root/nn/models/weights.txt" | while read -r name pixels top1 sum url rest; do
  [[ $name =~ ^[a-z0-9_]+\.[a-z0-9_]+$ && $pixels =~ ^[0-9]+$ && $top1 =~ ^(-|[0-9]+\.[0-9])$ && $url == https://* && -z $rest ]] ||
    die "a row of nn/models/weights.txt: $name"
  [[ $sum == - && $url == */model.safetensors || $sum =~ ^[0-9a-f]{8}$ && $url == *-$sum.pth ]] || die "the checksum of $name"
done
for column in 1 5; do
  [ -z "$(grep -v '^#' "$root/nn/models/weights.txt" | awk "{print \$$column}" | sort | uniq -d)" ] || die "twice in nn/models/weights.txt"
done
