#!/usr/bin/env python3
"""soak.py ATHANOR MODEL PICTURES [--requests N] [--clients N] [--kills N]: athanor serve under clients of all kinds.

One request in a hundred is broken, slow, cut off or too large; the server is killed with SIGKILL and started again at the same
port in between. Every answer is compared with athanor predict's. Ends with 1 on a wrong answer, a hang, or memory that grows.
Only 127.0.0.1 is talked to.
"""
import argparse
import asyncio
import collections
import random
import signal
import tempfile
import time

from client import Connection, Server, expectations, is_right, read_answer, request_bytes

PATIENCE = 60  # seconds, after which a request hangs


class Soak:
    def __init__(self, options):
        self.options, self.draw = options, random.Random(1)
        self.known = expectations(options.athanor, options.model, options.pictures)
        self.log = tempfile.NamedTemporaryFile(suffix=".err")
        self.server, self.lives, self.counts = None, [], collections.Counter()
        self.left = options.requests
        self.wrong = []

    def start(self, port=0):
        self.server = Server(self.options.athanor, self.options.model, "--max-body-mb", "2", "--timeout-s", "5", port=port, err=self.log.name)

    async def whole(self, connection):
        """A request like most; asked again where the server was killed meanwhile."""
        body, expected = self.draw.choice(self.known)
        while True:
            try:
                code, said = await connection.ask(body)
            except (ConnectionError, asyncio.IncompleteReadError, OSError):
                connection.close()
                self.counts["asked again after a kill"] += 1
                await asyncio.sleep(0.05)
                continue
            self.counts[code] += 1
            if code == 503:
                await asyncio.sleep(0.1)
                continue
            if code != 200 or not is_right(said["top"], expected):
                self.wrong.append(f"{code} {said} instead of {expected}")
            return

    async def odd(self):
        """One of those that go wrong, over a connection of its own."""
        kind = self.draw.choice(["broken", "slow", "cut", "too large", "garbage"])
        body, expected = self.draw.choice(self.known)
        self.counts[kind] += 1
        reader, writer = await asyncio.open_connection(self.server.host, self.server.port)
        if kind == "cut":
            writer.write(request_bytes(body)[: -len(body) // 2])
        elif kind == "slow":
            for piece in (request_bytes(body)[:30], request_bytes(body)[30:-10], request_bytes(body)[-10:]):
                writer.write(piece)
                await asyncio.sleep(0.5)
            code, said = await read_answer(reader)
            if code != 503 and (code != 200 or not is_right(said["top"], expected)):
                self.wrong.append(f"{kind}: {code} {said}")
        elif kind == "garbage":
            writer.write(self.draw.randbytes(2000) + b"\r\n\r\n")
            await reader.read()
        else:
            writer.write(request_bytes(body[:40] if kind == "broken" else bytes(2_100_000)))
            code, said = await read_answer(reader)
            if code != (400 if kind == "broken" else 413) or not said["error"]:
                self.wrong.append(f"{kind}: {code} {said}")
        writer.close()

    async def client(self):
        connection = Connection(self.server)
        while self.left > 0:
            self.left -= 1
            connection.server = self.server
            if self.draw.random() < 0.01:
                try:
                    await asyncio.wait_for(self.odd(), PATIENCE)
                except (ConnectionError, asyncio.IncompleteReadError, OSError):
                    self.counts["odd ones ended by a kill, or closed"] += 1
            else:
                await asyncio.wait_for(self.whole(connection), PATIENCE)
        connection.close()

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
        """Of each life: when 500 requests have warmed it, and at its end."""
        while True:
            before, life = self.left, len(self.lives)
            while self.left > before - 500 and life == len(self.lives):
                await asyncio.sleep(0.01)
            if life == len(self.lives) and not self.lives[-1]:
                self.lives[-1].append(self.server.resident_kb())

    async def run(self):
        self.start()
        self.lives.append([])
        watch = asyncio.create_task(self.watch_memory())
        begin = time.monotonic()
        await asyncio.gather(*(self.client() for _ in range(self.options.clients)), self.kill_and_start())
        seconds = time.monotonic() - begin
        watch.cancel()
        self.lives[-1].append(self.server.resident_kb())
        code = self.server.stop()
        print(f"{self.options.requests} requests from {self.options.clients} clients in {seconds:.1f} s, {self.options.kills} kills")
        print("answers and events:", ", ".join(f"{name}: {count}" for name, count in sorted(self.counts.items(), key=str)))
        for life in self.lives:
            print(f"memory: {life[0] / 1024:.1f} MiB warm, {life[-1] / 1024:.1f} MiB at the end")
        grown = max(life[-1] - life[0] for life in self.lives)
        print(f"wrong answers: {len(self.wrong)}; exit code {code}")
        for wrong in self.wrong[:5]:
            print("  ", wrong)
        return not self.wrong and code == 0 and grown < 16 * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("athanor", "model", "pictures"):
        parser.add_argument(name, metavar=name.upper())
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--kills", type=int, default=2)
    raise SystemExit(0 if asyncio.run(Soak(parser.parse_args()).run()) else 1)


main()
