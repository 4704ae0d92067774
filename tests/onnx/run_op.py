"""Calls of `athanor run-op` from numpy: an op, its attributes and its tensors, through two safetensors files."""

import json
import pathlib
import struct
import subprocess
import tempfile

import ml_dtypes
import numpy as np

DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64,
          "I32": np.int32, "U8": np.uint8, "BOOL": np.bool_}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
OURS = {np.dtype(dtype): {"BOOL": "bool"}.get(name, name.lower()) for name, dtype in DTYPES.items()}


class Cannot(Exception):
    """Why a case cannot be expressed."""


class Wrong(Exception):
    """What the op has said to a call that should be one."""


def save(file, tensors, metadata):
    header, at = {"__metadata__": metadata}, 0
    for name, value in tensors.items():
        if value.dtype not in NAMES:
            raise Cannot(f"dtype {value.dtype}")
        header[name] = {"dtype": NAMES[value.dtype], "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            out.write(np.ascontiguousarray(value).tobytes())


def load(file):
    data = pathlib.Path(file).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, tensors = json.loads(data[8:8 + size]), {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


class Tool:
    """Runs ops with the binary `athanor`."""

    def __init__(self, binary):
        self.binary, self.calls = binary, 0

    def all(self, op, tensors, **attributes):
        """Every result by its name: y, and the buffers an op moves."""
        self.calls += 1
        with tempfile.TemporaryDirectory() as folder:
            call, out = folder + "/call", folder + "/out"
            given = {name: np.asarray(value) for name, value in tensors.items() if value is not None}
            save(call, given, {"op": op, "attributes": json.dumps(attributes)})
            run = subprocess.run([self.binary, "run-op", call, "--out", out], capture_output=True, text=True)
            if run.returncode != 0:
                raise Wrong(run.stderr.strip())
            return load(out)

    def __call__(self, op, x=None, **others):
        """y of an op. Tensors are numpy arrays, attributes anything else."""
        tensors = {} if x is None else {"x": x}
        tensors |= {name: value for name, value in others.items() if isinstance(value, (np.ndarray, np.generic))}
        attributes = {name: value for name, value in others.items()
                      if value is not None and not isinstance(value, (np.ndarray, np.generic))}
        return self.all(op, tensors, **attributes)["y"]

    def pair(self, op, a, b):
        return self(op, a=a, b=b)
