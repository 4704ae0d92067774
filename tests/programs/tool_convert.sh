#!/usr/bin/env bash
# tool_convert.sh BIN SOURCE: weights go out of a run and come back, bit for bit, and say the same of a picture.
source "$(dirname "${BASH_SOURCE[0]}")/tool.sh"

refuses() { # refuses PATTERN ARGUMENTS...
  local pattern=$1
  shift
  athanor 2 convert "$@"
  [ "$(wc -l <err)" -eq 1 ] || die "convert $*: expected one line on stderr"
  grep -qE -- "$pattern" err || die "convert $*: expected '$pattern'"
}

"$bin/train_digits" --device cpu --epochs 1 >out 2>err || die "it does not train"
run=runs/train_digits/1
athanor 0 convert $run torch.safetensors --layout torch
grep -q '^torch.safetensors: digits_cnn, ' out || die "what convert says"
athanor 0 convert torch.safetensors back.safetensors
athanor 0 convert $run/model.safetensors same.safetensors
mkdir pictures
python3 "$source/tests/programs/digit_pictures.py" "$source/data/digits/digits.csv.gz" pictures 20
athanor 0 predict $run pictures
mv out said
for file in same.safetensors back.safetensors; do
  athanor 0 predict $file pictures
  cmp -s out said || die "$file says something else"
done
# What the run told of itself is told by its copies, there and back: the figures of an evaluation are those of the run.
for file in same.safetensors back.safetensors; do
  athanor 0 evaluate $file --val digits
  grep -q '^as its run reported' out || die "$file evaluates to something else"
done
about() { # about FILE: the metadata that tell of the network
  python3 - "$1" <<'PYTHON'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
known = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]
for key in sorted(known.keys() - {"format", "schema", "checksum"}):
    print(key, known[key])
PYTHON
}
about $run/model.safetensors >told
grep -qx 'image_size 8x8' told && grep -qx 'shorter_side 8' told || die "the metadata of a model"
for file in torch.safetensors same.safetensors back.safetensors; do
  about $file | cmp -s - told || die "$file tells something else"
done
edited() { # edited OUT STATEMENT: torch.safetensors, with other metadata or values
  python3 - "$@" <<'PYTHON'
import json, struct, sys
data = open("torch.safetensors", "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header, values = json.loads(data[8:8 + length]), bytearray(data[8 + length:])
metadata = header["__metadata__"]
exec(sys.argv[2])
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + values)
PYTHON
}
# Another size of images keeps the share of an image that is cropped.
edited wide.safetensors 'metadata["shorter_side"] = "9"; del metadata["resize"]'
athanor 0 convert wide.safetensors larger.safetensors --image-size 10
about larger.safetensors | grep -x 'shorter_side 11' >/dev/null || die "the shorter side does not follow the size"
athanor 0 predict larger.safetensors pictures
edited wide.safetensors 'metadata["shorter_side"] = "8"; del metadata["resize"]'
athanor 0 convert wide.safetensors larger.safetensors --image-size 11
about larger.safetensors | grep -x 'shorter_side 11' >/dev/null || die "the shorter side is less than the size"
# Images that are not square have that share of both sides.
athanor 0 convert wide.safetensors larger.safetensors --image-size 8x10
about larger.safetensors | grep -x 'image_size 8x10' >/dev/null && about larger.safetensors | grep -x 'resize cover' >/dev/null ||
  die "images that become wide"
athanor 0 predict larger.safetensors pictures
edited wide.safetensors 'metadata["image_size"] = "8x10"'
athanor 0 convert wide.safetensors larger.safetensors
about larger.safetensors | grep -x 'image_size 8x10' >/dev/null || die "images that are not square"
rm wide.safetensors larger.safetensors
# A checkpoint tells of its network what the model does; predict says what makes a model of it.
checkpoint=$(find $run/checkpoints -name '*.safetensors' | sort | tail -n 1)
athanor 2 predict "$checkpoint" pictures
grep -q "is a checkpoint; make a model of it with: athanor convert $checkpoint model.safetensors" err || die "what predict says of a checkpoint"
athanor 0 convert "$checkpoint" saved.safetensors
measured='^weights\|^test_\|^batch_size\|^ranks'
about saved.safetensors | grep -v "$measured" >of_checkpoint
grep -v "$measured" told | cmp -s - of_checkpoint || die "a checkpoint tells something else"
athanor 0 predict saved.safetensors pictures --top 1
# The weights of all of them are those of the run.
python3 - torch.safetensors $run/model.safetensors back.safetensors same.safetensors saved.safetensors <<'PYTHON' || die "weights differ"
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (info["dtype"], info["shape"], data[8 + length + info["data_offsets"][0]:8 + length + info["data_offsets"][1]])
            for name, info in header.items()}
torch, first, *others = map(read, sys.argv[1:])
assert all(other == first for other in others), "of another file"
conv = next(name for name, (_, shape, _) in first.items() if len(shape) == 4)
k, r, s, c = first[conv][1]
assert torch[conv][1] == [k, c, r, s], torch[conv][1]
counts = [name for name in torch if name.endswith("num_batches_tracked")]
norms = [name for name in first if name.endswith("running_mean")]
assert len(counts) == len(norms) and all(torch[name][:2] == ("I64", []) for name in counts), counts
assert set(torch) - set(counts) == set(first)
PYTHON

cp same.safetensors before
refuses "OUT must end in .safetensors or .onnx, but is same.txt" $run same.txt
refuses "--layout: .* x.onnx" $run x.onnx --layout torch
refuses "--preprocess: .* same.safetensors" $run same.safetensors --preprocess
refuses "--input: .* same.safetensors" $run same.safetensors --input nhwc
edited bare.safetensors 'header["__metadata__"] = {"format": "pt"}'
edited bad.safetensors 'at = header["conv1.weight"]["data_offsets"][0]; values[at:at + 4] = struct.pack("<f", float("nan"))'
refuses "does not name its network: name it with --model, one of lenet5 " bare.safetensors same.safetensors
refuses "does not hold lenet5: " bare.safetensors same.safetensors --model lenet5
refuses "bad.safetensors .*'conv1.weight'" bad.safetensors same.safetensors
printf '\xff\xd8\xff\xe0 no weights, but long enough' >x.jpg
refuses "x.jpg must be safetensors or a .pth file of PyTorch, but is a JPEG" x.jpg same.safetensors --model digits_cnn
refuses "must be one of .* but got 'digits'" bare.safetensors same.safetensors --model digits
refuses "--model: .* holds digits_cnn, but got lenet5" $run same.safetensors --model lenet5
refuses "nothing.safetensors" nothing.safetensors same.safetensors
head -c 3000 $run/model.safetensors >cut.safetensors
refuses "cut.safetensors" cut.safetensors same.safetensors
printf '\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R.' >evil.pth
refuses "evil.pth: at byte .*: expected a file written by torch.save" evil.pth same.safetensors --model digits_cnn
refuses "/nowhere/x.safetensors" $run /nowhere/x.safetensors
cmp -s same.safetensors before || die "a refusal has changed the file that was there"
rm -f ./*.safetensors before evil.pth x.jpg out err said told of_checkpoint
[ "$(find . -maxdepth 1 -type f | wc -l)" -eq 0 ] || die "something is left: $(ls)"

# Training begins with them, in torchvision's layout as in ours.
athanor 0 convert $run torch.safetensors --layout torch
"$bin/train_digits" --device cpu --epochs 1 --run-dir none --pretrained torch.safetensors --freeze conv1 >out 2>err || die "it does not begin"
grep -q '^pretrained: ' out || die "it does not say what it begins with"
code=0
"$bin/train_digits" --device cpu --epochs 1 --run-dir none --freeze layer9 >out 2>err || code=$?
[ $code -eq 2 ] && grep -q -- '--freeze: must be the name of a module, .* but got .layer9.' err || die "--freeze layer9"
