#!/usr/bin/env python3
"""digit_pictures.py CSV_GZ FOLDER COUNT: writes the first digits of the embedded set as PNG, called LABEL-NUMBER.png."""
import gzip
import pathlib
import struct
import sys
import zlib


def png(rows):
    """Bytes of a PNG of 8-bit grey."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def main():
    source, folder, count = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    with gzip.open(source, "rt") as lines:
        for number, line in zip(range(count), lines):
            values = [int(value) for value in line.split(",")]
            rows = [[(value * 255 + 8) // 16 for value in values[8 * y : 8 * y + 8]] for y in range(8)]
            (folder / f"{values[64]}-{number:04}.png").write_bytes(png(rows))


main()
