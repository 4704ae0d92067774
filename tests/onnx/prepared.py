#!/usr/bin/env python3
"""What docs/reference/models.md says about images for onnxruntime: its program has the probabilities of `athanor predict`.

    prepared.py BIN SOURCE

Trains two small models, of colours and of grey, exports each in every form, and compares the page's program with
`athanor predict` on a photo, a transparent PNG, turned JPEGs and so on: each probability within 1e-4. Pillow's own scaling
is not, or the comparison would show nothing. Ends with 77 where a package is not installed.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnxruntime  # noqa: F401: the page's program needs it
    from PIL import Image
except ModuleNotFoundError as missing:
    print(f"{missing}; pip install numpy onnxruntime pillow")
    sys.exit(77)

MOST = 1e-4


def picture(random, height, width):
    colours = Image.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    noisy = np.asarray(colours) + random.normal(0, 12, (height, width, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def write_pictures(random):
    for name in ("ant", "bee"):
        pathlib.Path("photos", name).mkdir(parents=True)
        for i in range(6):
            picture(random, 40 + i, 48).save(f"photos/{name}/{i}.jpg")
    os.mkdir("pictures")
    picture(random, 360, 640).save("pictures/photo.jpg", quality=90)
    picture(random, 20, 24).save("pictures/small.png")
    picture(random, 50, 70).convert("L").save("pictures/grey.png")
    clear = picture(random, 75, 100)
    clear.putalpha(Image.fromarray(random.integers(0, 256, (75, 100), np.uint8)))
    clear.save("pictures/clear.png")
    for turned in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = turned
        picture(random, 60 + turned, 91).save(f"pictures/turned{turned}.jpg", exif=exif)


def errors(athanor, program, run, flags):
    """The largest error of a probability for each picture, by the page's program and by Pillow's way to scale."""
    subprocess.run([athanor, "convert", run, "model.onnx", *flags], check=True, stdout=subprocess.DEVNULL)
    names = {}
    exec(program, names)  # noqa: S102: the page's own
    predict = [athanor, "predict", run, "pictures", "--top", "99", "--json"]
    said = subprocess.run(predict, check=True, capture_output=True, text=True)
    for line in said.stdout.splitlines():
        wanted = {one["class"]: one["probability"] for one in json.loads(line)["top"]}
        path = json.loads(line)["image"]
        exact = names["probabilities"](path)
        image = Image.open(path).convert("RGB").resize((names["width"], names["height"]))
        image.save("plain.png")
        plain = names["probabilities"]("plain.png")
        assert exact.keys() == wanted.keys() and len(wanted) > 1, (exact, wanted)
        yield path, *(max(abs(float(found[name]) - p) for name, p in wanted.items()) for found in (exact, plain))


def main():
    binaries, source = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    page = (source / "docs/reference/models.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "def prepared" in block]
    assert len(blocks) == 1, f"{len(blocks)} programs"
    program = "".join(line for line in blocks[0].splitlines(True) if not line.startswith("print"))
    wrong = largest = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_pictures(np.random.default_rng(1))
        photos = ["train_images", "photos", "--model", "resnet20", "--workers", "0"]
        train = {"run_photos": [*photos, "--image-size", "32"], "run_digits": ["train_digits"]}
        for fit in ("pad", "squash", "crop"):
            train[f"run_{fit}"] = [*photos, "--image-size", "40x24", "--resize", fit]
        for run, (name, *arguments) in train.items():
            command = [binaries / name, *arguments, "--device", "cpu", "--batch-size", "8", "--max-steps", "4", "--lr", "0.01",
                       "--run-dir", run]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for flags in ([], ["--input", "nhwc"], ["--preprocess"]):
                for path, error, of_pillow in errors(binaries / "athanor", program, run, flags):
                    print(f"{run} {' '.join(flags):12} {path:22} {error:.1e}, by another scaling {of_pillow:.1e}")
                    wrong += not error <= MOST
                    largest = max(largest, of_pillow)
        os.chdir("/")
    assert largest > 10 * MOST, "whatever the scaling, probabilities are the same: this shows nothing"
    print(f"{wrong} wrong")
    sys.exit(bool(wrong))


main()
