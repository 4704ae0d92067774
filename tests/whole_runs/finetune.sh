#!/usr/bin/env bash
# finetune.sh BIN [EPOCHS]: what recipes/finetune.toml is worth. A ResNet-20 learns five classes of CIFAR-10, then the other
# five from 50 images each; beside it one that begins with random weights, by the same recipe and with a higher rate.
# Fails where the weights that were brought along are not 10 points better than the better of those.
set -euo pipefail
bin=$1 epochs=${2:-8}
data=${ATHANOR_DATA_DIR:-}
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/recipes/finetune.toml
[ -d "$data/cifar10" ] || { echo "ATHANOR_DATA_DIR names no folder with cifar10"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 - "$data/cifar10" "$folder" <<'END'
import pathlib, struct, sys, zlib

source, out = map(pathlib.Path, sys.argv[1:])
binaries = next(p.parent for p in source.rglob("test_batch.bin"))

def png(pixels):  # 3 planes of 32 x 32
    rows = b"".join(b"\0" + bytes(pixels[c * 1024 + y * 32 + x] for x in range(32) for c in range(3)) for y in range(32))
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    head = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")

seen = {}
for part, files in (("train", sorted(binaries.glob("data_batch_*.bin"))), ("val", [binaries / "test_batch.bin"])):
    for file in files:
        bytes_ = file.read_bytes()
        for at in range(0, len(bytes_), 3073):
            label = bytes_[at]
            count = seen[part, label] = seen.get((part, label), 0) + 1
            few = label >= 5
            if few and part == "train" and count > 50:
                continue
            to = out / ("few" if few else "many") / part / str(label)
            to.mkdir(parents=True, exist_ok=True)
            (to / f"{count}.png").write_bytes(png(bytes_[at + 1:at + 3073]))
END

accuracy() { sed -n '/"event":"end"/s/.*"test_accuracy":\([0-9.]*\).*/\1/p' "$1/metrics.jsonl"; }
common=(--model resnet20 --image-size 32)
"$bin/train_images" "${common[@]}" --train "$folder/many/train" --val "$folder/many/val" --epochs "$epochs" --batch-size 128 \
  --lr 0.2 --augment crop:4:reflect,flip --run-dir "$folder/pretrained" >"$folder/log"
few=("${common[@]}" --train "$folder/few/train" --val "$folder/few/val" --recipe "$recipe")
"$bin/train_images" "${few[@]}" --pretrained "$folder/pretrained/model.safetensors" --run-dir "$folder/tuned" >>"$folder/log"
"$bin/train_images" "${few[@]}" --run-dir "$folder/scratch" >>"$folder/log"
"$bin/train_images" "${few[@]}" --lr 0.1 --run-dir "$folder/scratch_fast" >>"$folder/log"
printf '%s on the five classes it came from; on five others, of 50 images each:\nwith its weights %s, from scratch %s, with --lr 0.1 %s\n' \
  "$(accuracy "$folder/pretrained")" "$(accuracy "$folder/tuned")" "$(accuracy "$folder/scratch")" "$(accuracy "$folder/scratch_fast")"
python3 -c 'import sys; tuned, *others = map(float, sys.argv[1:]); sys.exit(tuned < max(others) + 0.1)' \
  "$(accuracy "$folder/tuned")" "$(accuracy "$folder/scratch")" "$(accuracy "$folder/scratch_fast")"
