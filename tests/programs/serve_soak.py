#!/usr/bin/env python3
"""serve_soak.py ATHANOR RUN OTHER_RUN PICTURES [--requests N] [--clients N] [--kills N]: athanor serve under clients of all kinds.

Three models in a folder, polled: two are RUN and OTHER_RUN, of the third each version is the other one than the version before, and
versions come and go, damaged ones among them, all the time. Requests are of both dialects, as pictures, JSON and binary tensors; one in
a hundred is broken, slow, cut off, too large or garbage; and the server is killed with SIGKILL and started again at the same port in
between. Every answer is compared with athanor predict's, for the version that it names. The clients go on past N until two versions of the third
model have answered. Ends with 1 on a lost request, a wrong answer, a hang, or memory that grows. Only 127.0.0.1 is talked to.

    tests/programs/serve_soak.py build/cpu/bin/athanor RUN OTHER_RUN PICTURES --requests 100000 --kills 5
"""
import argparse
import asyncio
import collections
import json
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile

from serve_client import Server, pixels_of  # beside this file

PATIENCE = 60  # seconds, after which a request hangs
TOLERANCE = 2e-6  # of a probability: batches of other sizes round otherwise
GROWTH_MB = 24  # of a life's memory, from when it is warm to its end
NAMES = ("first", "second", "changing")


def predicted(athanor, run, files):
    """For each file the probabilities in the order of classes."""
    rows = []
    for line in subprocess.check_output([athanor, "predict", run, *map(str, files), "--top", "10", "--json"]).splitlines():
        of_class = {guess["index"]: guess["probability"] for guess in json.loads(line)["top"]}
        rows.append([of_class[index] for index in range(10)])
    return rows


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) <= TOLERANCE for x, y in zip(a, b))


def free_port():
    """One below those that connect() draws from: a client that asks while the server is away must not get the server's own port."""
    for port in range(20_000, 32_000):
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise RuntimeError("no port between 20000 and 32000 is free")


class Connection:
    """One that is kept open and opened again where it was closed."""

    def __init__(self, soak):
        self.soak, self.reader, self.writer = soak, None, None

    async def ask(self, path, body, headers=""):
        """(code, headers in lower case, bytes)"""
        if not self.writer:
            self.reader, self.writer = await asyncio.open_connection(self.soak.server.host, self.soak.server.port)
        self.writer.write(f"POST {path} HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)
        return await self.read()

    async def read(self):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:])}
        text = await self.reader.readexactly(int(fields.get("content-length", 0)))
        if fields.get("connection") == "close":
            self.close()
        return int(head.split(" ", 2)[1]), fields, text

    def close(self):
        if self.writer:
            self.writer.close()
        self.reader = self.writer = None


class Soak:
    def __init__(self, options, folder):
        self.options, self.draw, self.folder = options, random.Random(1), pathlib.Path(folder)
        files = sorted(pathlib.Path(options.pictures).glob("*.png"))
        self.pictures = [file.read_bytes() for file in files]
        self.pixels = [pixels_of(picture) for picture in self.pictures]
        self.expected = [predicted(options.athanor, run, files) for run in (options.run, options.other)]
        self.runs, self.log = (options.run, options.other), self.folder / "serve.err"
        self.server, self.lives, self.counts, self.wrong = None, [], collections.Counter(), []
        self.left, self.version, self.answered_by = options.requests, 0, collections.Counter()
        for name, run in zip(NAMES[:2], self.runs):
            shutil.copytree(run, self.folder / "models" / name / "1")
        self.next_version()

    def next_version(self):
        """Even versions are of the second run."""
        self.version += 1
        self.add(self.runs[1 - self.version % 2], lambda whole: whole)

    def add(self, run, change):
        """A whole folder takes its place at once."""
        made = self.folder / "made"
        made.mkdir()
        (made / "model.safetensors").write_bytes(change(pathlib.Path(run, "model.safetensors").read_bytes()))
        place = self.folder / "models" / NAMES[2] / str(self.version)
        place.parent.mkdir(parents=True, exist_ok=True)
        made.rename(place)

    def start(self, port):
        self.server = Server(self.options.athanor, f"--models={self.folder / 'models'}", "--poll-s", "0.1", "--max-body-mb", "2", "--timeout-s", "5", port=port,
                             err=str(self.log))

    def versions(self):
        """How many of the changing model have answered."""
        return sum(name == NAMES[2] for name, _ in self.answered_by)

    def going_on(self):
        """However quickly the requests are answered, a second version must have had the time to come."""
        return self.left > 0 or (self.versions() < 2 and asyncio.get_running_loop().time() < self.last)

    def row(self, model, version, number):
        """What is expected of a picture."""
        return self.expected[model if model < 2 else 1 - int(version) % 2][number]

    async def whole(self, connection):
        """A request like most; asked again where the server was killed meanwhile, or is full."""
        kind, model = self.draw.choice(("picture", "files", "json", "binary")), self.draw.randrange(3)
        some = [self.draw.randrange(len(self.pictures)) for _ in range(1 if kind == "picture" else self.draw.choice((1, 1, 2, 3, 8)))]
        while True:
            try:
                code, fields, text = await self.send(connection, kind, NAMES[model], some)
            except (ConnectionError, asyncio.IncompleteReadError, OSError):
                connection.close()
                self.counts["asked again after a kill"] += 1
                await asyncio.sleep(0.05)
                continue
            self.counts[code] += 1
            if code != 503:
                break
            await asyncio.sleep(0.1)
        try:
            right = code == 200 and self.is_right(kind, model, some, fields, text)
        except (ValueError, KeyError, IndexError, struct.error) as error:
            right, text = False, f"{error!r}: {text}"
        if not right:
            self.wrong.append(f"{kind} of {NAMES[model]}: {code} {text[:400]}")

    async def send(self, connection, kind, name, some):
        if kind == "picture":
            return await connection.ask(f"/predict?model={name}&top=10", self.pictures[some[0]])
        outputs = [{"name": "probabilities", "parameters": {"binary_data": kind == "binary"}}, {"name": "classes"}]
        entry = {"name": "images", "datatype": "UINT8", "shape": [len(some), 8, 8, 1]}
        if kind == "json":
            entry["data"] = [value for number in some for value in self.pixels[number]]
            tensor = b""
        else:
            if kind == "files":
                entry |= {"datatype": "BYTES", "shape": [len(some)]}
                tensor = b"".join(struct.pack("<I", len(self.pictures[number])) + self.pictures[number] for number in some)
            else:
                tensor = b"".join(self.pixels[number] for number in some)
            entry["parameters"] = {"binary_data_size": len(tensor)}
        text = json.dumps({"id": str(some), "inputs": [entry], "outputs": outputs}).encode()
        headers = "" if kind == "json" else f"Inference-Header-Content-Length: {len(text)}\r\n"
        return await connection.ask(f"/v2/models/{name}/infer", text + tensor, headers)

    def is_right(self, kind, model, some, fields, text):
        if kind == "picture":  # which says no version: of the changing one, either may have answered
            of_class = {guess["index"]: guess["probability"] for guess in json.loads(text)["top"]}
            row = [of_class[index] for index in range(10)]
            return any(near(row, self.row(model, version, some[0])) for version in (1, 2))
        length = int(fields.get("inference-header-content-length", len(text)))
        said = json.loads(text[:length])
        probabilities, classes = said["outputs"]
        values = probabilities.get("data") or struct.unpack(f"<{10 * len(some)}f", text[length:])
        self.answered_by[NAMES[model], said["model_version"]] += 1
        rows = [self.row(model, said["model_version"], number) for number in some]
        return (said["model_name"] == NAMES[model] and said["id"] == str(some) and all(near(values[10 * i : 10 * i + 10], row) for i, row in enumerate(rows))
                and classes["data"] == [max(range(10), key=row.__getitem__) for row in rows])

    async def odd(self):
        """One of those that go wrong, over a connection of its own."""
        kind = self.draw.choice(["broken", "slow", "cut", "too large", "garbage", "broken tensor", "gone"])
        number, connection = self.draw.randrange(len(self.pictures)), Connection(self)
        self.counts[kind] += 1
        try:
            if kind == "broken":
                code, _, text = await connection.ask("/predict?model=first", self.pictures[number][:40])
                right = code == 400 and json.loads(text)["error"]
            elif kind == "too large":
                code, _, text = await connection.ask("/v2/models/first/infer", bytes(2_100_000))
                right = code == 413 and json.loads(text)["error"]
            elif kind == "broken tensor":
                code, _, text = await connection.ask("/v2/models/second/infer", self.draw.randbytes(300), "Inference-Header-Content-Length: 200\r\n")
                right = code == 400 and json.loads(text)["error"]
            else:
                right = await self.rude(kind, number)
            if not right:
                self.wrong.append(f"{kind}: {code} {text[:200]}")
        finally:
            connection.close()

    async def rude(self, kind, number):
        reader, writer = await asyncio.open_connection(self.server.host, self.server.port)
        head = f"POST /predict?model=first HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(self.pictures[number])}\r\n\r\n".encode()
        request = head + self.pictures[number]
        try:
            if kind == "cut":
                writer.write(request[: -len(self.pictures[number]) // 2])
            elif kind == "gone":  # while it is being answered
                writer.write(request)
            elif kind == "garbage":
                writer.write(self.draw.randbytes(2000) + b"\r\n\r\n")
                await reader.read()
            else:
                for piece in (request[:30], request[30:-10], request[-10:]):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.5)
                return b" 200 OK" in await reader.readuntil(b"\r\n")
        finally:
            writer.close()
        return True

    async def client(self):
        connection = Connection(self)
        while self.going_on():
            self.left -= 1
            if self.draw.random() < 0.01:
                try:
                    await asyncio.wait_for(self.odd(), PATIENCE)
                except (ConnectionError, asyncio.IncompleteReadError, OSError):
                    self.counts["odd ones ended by a kill, or closed"] += 1
            else:
                await asyncio.wait_for(self.whole(connection), PATIENCE)
        connection.close()

    async def change_models(self):
        """A new version, a damaged one, one that goes, a SIGHUP."""
        while self.going_on():
            await asyncio.sleep(0.25)
            self.version += 1
            self.add(self.runs[1 - self.version % 2], lambda whole: whole[: self.draw.randrange(len(whole))])
            await asyncio.sleep(0.25)
            self.next_version()
            self.server.tell(signal.SIGHUP)
            await asyncio.sleep(0.25)
            for old in sorted((self.folder / "models" / NAMES[2]).iterdir(), key=lambda one: int(one.name))[:-2]:
                shutil.rmtree(old)
            self.counts["new versions"] += 1

    async def kill_and_start(self):
        part = self.options.requests // (self.options.kills + 1)
        for kill in range(self.options.kills):
            while self.left > self.options.requests - part * (kill + 1):
                await asyncio.sleep(0.01)
            self.lives[-1].append(self.server.resident_kb())
            port = self.server.port
            self.server.stop(signal.SIGKILL)
            self.start(port)
            self.lives.append([])

    async def watch_memory(self):
        """Of each life: when a tenth of its requests has warmed it, and at its end."""
        warm = self.options.requests // (self.options.kills + 1) // 10
        while True:
            before, life = self.left, len(self.lives)
            while self.left > before - warm and life == len(self.lives):
                await asyncio.sleep(0.01)
            if life == len(self.lives) and not self.lives[-1]:
                self.lives[-1].append(self.server.resident_kb())

    async def run(self):
        self.start(free_port())
        self.lives.append([])
        loop = asyncio.get_running_loop()
        watch, begin = asyncio.create_task(self.watch_memory()), loop.time()
        self.last = begin + PATIENCE  # for a second version to answer
        await asyncio.gather(*(self.client() for _ in range(self.options.clients)), self.kill_and_start(), self.change_models())
        seconds = loop.time() - begin
        watch.cancel()
        self.lives[-1].append(self.server.resident_kb())
        code = self.server.stop()
        print(f"{self.options.requests - self.left} requests from {self.options.clients} clients in {seconds:.1f} s, {self.options.kills} kills")
        print("answers and events:", ", ".join(f"{name}: {count}" for name, count in sorted(self.counts.items(), key=str)))
        print(f"{self.versions()} versions of '{NAMES[2]}' have answered")
        for life in self.lives:
            print(f"memory: {life[0] / 1024:.1f} MiB warm, {life[-1] / 1024:.1f} MiB at the end")
        grown = max(life[-1] - life[0] for life in self.lives)
        print(f"wrong or lost answers: {len(self.wrong)}; exit code {code}")
        for wrong in self.wrong[:5]:
            print("  ", wrong)
        return not self.wrong and code == 0 and grown < GROWTH_MB * 1024 and self.versions() > 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("athanor", "run", "other", "pictures"):
        parser.add_argument(name, metavar=name.upper())
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--kills", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        raise SystemExit(0 if asyncio.run(Soak(options, folder).run()) else 1)


main()
