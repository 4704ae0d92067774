"""What load.py asks: pictures with what athanor predict says of them, and requests over asyncio's streams."""
import asyncio
import base64
import json
import pathlib
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/programs"))
from serve_client import Server  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import

TOLERANCE = 2e-6  # of a probability: batches of other sizes round otherwise


def expectations(athanor, model, folder):
    """[(bytes, top)] of the pictures in a folder."""
    files = sorted(str(file) for file in pathlib.Path(folder).iterdir() if file.suffix.lower() in (".png", ".jpg", ".jpeg"))
    lines = subprocess.check_output([athanor, "predict", model, *files, "--json"]).splitlines()
    return [(pathlib.Path(file).read_bytes(), json.loads(line)["top"]) for file, line in zip(files, lines)]


def is_right(said, expected):
    """The same classes in the same order with the same probabilities; classes that are as probable may change places."""
    return len(said) == len(expected) and all(
        abs(a["probability"] - b["probability"]) <= TOLERANCE and (a["index"] == b["index"] or is_tie(a, expected))
        for a, b in zip(said, expected))


def is_tie(one, expected):
    return sum(abs(one["probability"] - other["probability"]) <= 2 * TOLERANCE for other in expected) > 1 or one["probability"] <= 2 * TOLERANCE


def request_bytes(path, body, headers=""):
    return f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def picture_request(dialect, picture, name="", top=3):
    """The request for a picture's most probable classes by the model of that name: of athanor's own dialect, of the Open Inference
    Protocol with a binary tensor, or of LitServe's, JSON."""
    if dialect == "predict":
        return request_bytes("/predict" + (f"?model={name}" if name else ""), picture)
    if dialect == "litserve":
        return request_bytes("/predict", json.dumps({"image": base64.b64encode(picture).decode()}).encode(), "Content-Type: application/json\r\n")
    tensor = struct.pack("<I", len(picture)) + picture
    text = json.dumps({"inputs": [{"name": "images", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(tensor)}}],
                       "outputs": [{"name": "probabilities", "parameters": {"classification": top}}]}).encode()
    return request_bytes(f"/v2/models/{name or 'default'}/infer", text + tensor, f"Inference-Header-Content-Length: {len(text)}\r\n")


def top_of(said):
    """The classes of an answer of any of these dialects."""
    if "top" in said:
        return said["top"]
    texts = (text.split(":", 2) for text in said["outputs"][0]["data"])
    return [{"index": int(index), "probability": float(value), "class": name} for value, index, name in texts]


def requests_for(known, dialect, name=""):
    """[(request, top)] of [(picture, top)]."""
    return [(picture_request(dialect, picture, name, len(top)), top) for picture, top in known]


async def read_answer(reader):
    """(code, JSON or None)"""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = 0
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    text = await reader.readexactly(length)
    return int(head.split(" ", 2)[1]), json.loads(text) if text else None


class Connection:
    """One that is kept open and opened again where it was closed."""

    def __init__(self, server):
        self.server, self.reader, self.writer = server, None, None

    async def open(self):
        if not self.writer:
            self.reader, self.writer = await asyncio.open_connection(self.server.host, self.server.port)

    async def ask(self, request):
        await self.open()
        self.writer.write(request)
        return await read_answer(self.reader)

    def close(self):
        if self.writer:
            self.writer.close()
        self.reader = self.writer = None
