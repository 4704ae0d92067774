#!/usr/bin/env python3
"""Makes small data sets of other labels than one class from MNIST: PNG files and tables beside them.

    scripts/make_label_sets.py pairs data-cache/mnist pairs      # two digits in a picture of 28 x 56, and which there are
    scripts/make_label_sets.py angles data-cache/mnist angles    # a digit turned by -45 to 45 degrees, and the angle

Then, with --image-size 28x56 and 28:

    train_images --task multilabel --train pairs/train.csv --val pairs/val.csv
    train_images --task regression --train angles/train.csv --val angles/val.csv
"""

import argparse
import gzip
import math
import pathlib
import random
import struct
import zlib

SIDE = 28


def read_idx(folder, name):
    """The bytes of an IDX file behind its header, compressed or not."""
    path = folder / name
    data = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    return data[4 + 4 * data[3]:]


def digits(folder, part):
    """Pairs of an image's bytes and its label."""
    images = read_idx(folder, f"{part}-images-idx3-ubyte")
    labels = read_idx(folder, f"{part}-labels-idx1-ubyte")
    return [(images[i * SIDE * SIDE:(i + 1) * SIDE * SIDE], label) for i, label in enumerate(labels)]


def write_png(path, rows):
    """A grey image, of one bytes object for each row."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


def turned(image, degrees):
    """The rows of a digit that stands upright by its moments, then turned counterclockwise around its centre of mass."""
    ink = [(i % SIDE, i // SIDE, value) for i, value in enumerate(image) if value]
    mass = sum(value for _, _, value in ink)
    x0, y0 = (sum(place[axis] * place[2] for place in ink) / mass for axis in (0, 1))
    slant = sum((x - x0) * (y - y0) * value for x, y, value in ink) / max(sum((y - y0) ** 2 * v for _, y, v in ink), 1)
    cos, sin, middle = math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), (SIDE - 1) / 2

    def pixel(x, y):
        return image[y * SIDE + x] if 0 <= x < SIDE and 0 <= y < SIDE else 0

    rows = []
    for row in range(SIDE):
        line = bytearray(SIDE)
        for column in range(SIDE):
            dx, dy = column - middle, row - middle
            up = sin * dx + cos * dy  # turned back; y points down
            x, y = x0 + cos * dx - sin * dy + slant * up, y0 + up
            left, top = math.floor(x), math.floor(y)
            fx, fy = x - left, y - top
            line[column] = round((pixel(left, top) * (1 - fx) + pixel(left + 1, top) * fx) * (1 - fy) +
                                 (pixel(left, top + 1) * (1 - fx) + pixel(left + 1, top + 1) * fx) * fy)
        rows.append(bytes(line))
    return rows


def pair(draw, source):
    (left, a), (right, b) = draw.choice(source), draw.choice(source)
    rows = [left[at:at + SIDE] + right[at:at + SIDE] for at in range(0, SIDE * SIDE, SIDE)]
    return rows, ",".join("1" if digit in (a, b) else "0" for digit in range(10))


def angle(draw, source):
    degrees = round(draw.uniform(-45, 45), 2)
    return turned(draw.choice(source)[0], degrees), str(degrees)


KINDS = {"pairs": (pair, ",".join(map(str, range(10)))), "angles": (angle, "angle")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("mnist", type=pathlib.Path, help="folder with the files of MNIST")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=12000, help="training images")
    parser.add_argument("--val", type=int, default=2000, help="validation images, from other digits")
    given = parser.parse_args()
    make, columns = KINDS[given.kind]
    (given.out / "images").mkdir(parents=True, exist_ok=True)
    for name, part, count in (("train", "train", given.train), ("val", "t10k", given.val)):
        draw, source = random.Random(name), digits(given.mnist, part)
        with open(given.out / f"{name}.csv", "w", encoding="utf-8") as table:
            print("image," + columns, file=table)
            for i in range(count):
                rows, labels = make(draw, source)
                file = f"images/{name}{i:06}.png"
                write_png(given.out / file, rows)
                print(f"{file},{labels}", file=table)


if __name__ == "__main__":
    main()
