#!/usr/bin/env python3
"""load.py ATHANOR MODEL PICTURES [--seconds S] [--flags="FLAGS of athanor serve"]: what athanor serve answers in time.

Its capacity first: 64 clients that ask without pause. Then requests at random times (a Poisson process) at 50, 80 and 95 % of
that. Each one's latency counts from the time it was due, so that a server that stalls is not spared the requests it has kept
from being sent. The client takes a part of the same machine. Only 127.0.0.1 is talked to.
"""
import argparse
import asyncio
import random
import tempfile
import time

from client import Connection, Server, expectations, is_right


MOST_CONNECTIONS = 256  # a request that finds none waits, which counts
IDLE_S = 15  # older ones may have been closed by the server


class Load:
    def __init__(self, server, known):
        self.server, self.known, self.draw, self.free = server, known, random.Random(1), []
        self.wrong = self.refused = self.again = 0
        self.room = asyncio.Semaphore(MOST_CONNECTIONS)

    async def one(self):
        async with self.room:
            connection, used = self.free.pop() if self.free else (Connection(self.server), 0)
            if time.monotonic() - used > IDLE_S:
                connection.close()
            body, expected = self.draw.choice(self.known)
            try:
                code, said = await connection.ask(body)
            except (ConnectionError, asyncio.IncompleteReadError):  # this process was so late that the server has closed it
                self.again += 1
                connection.close()
                code, said = await connection.ask(body)
            self.refused += code == 503
            self.wrong += code not in (200, 503) or (code == 200 and not is_right(said["top"], expected))
            self.free.append((connection, time.monotonic()))

    async def capacity(self, seconds, clients=64):
        """Images per second."""
        answered, end = 0, time.monotonic() + seconds

        async def client():
            nonlocal answered
            while time.monotonic() < end:
                await self.one()
                answered += 1

        begin = time.monotonic()
        await asyncio.gather(*(client() for _ in range(clients)))
        return answered / (time.monotonic() - begin)

    async def open_loop(self, rate, seconds):
        """Sorted latencies in seconds."""
        latencies, tasks, due = [], [], time.monotonic()
        end = due + seconds

        async def timed(since):
            await self.one()
            latencies.append(time.monotonic() - since)

        while (due := due + self.draw.expovariate(rate)) < end:
            if (pause := due - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            tasks.append(asyncio.create_task(timed(due)))
        await asyncio.gather(*tasks)
        return sorted(latencies)

    def mean_batch(self, since=(0, 0)):
        """(mean, totals to go on from)"""
        totals = self.server.metric("athanor_batch_images_sum"), self.server.metric("athanor_batch_images_count")
        return (totals[0] - since[0]) / max(1, totals[1] - since[1]), totals


async def measure(options, server):
    load = Load(server, expectations(options.athanor, options.model, options.pictures))
    await load.capacity(2)
    _, totals = load.mean_batch()
    capacity = await load.capacity(options.seconds)
    batch, totals = load.mean_batch(totals)
    print(server.first_line.split("/: ", 1)[1].strip())
    print("| load | images/s | p50 ms | p99 ms | mean batch | requests | refused |")
    print("|---|---|---|---|---|---|---|")
    print(f"| 64 clients without pause | {capacity:.0f} | - | - | {batch:.1f} | - | {load.refused} |")
    for share in (0.5, 0.8, 0.95):
        load.refused = 0
        latencies = await load.open_loop(share * capacity, options.seconds)
        batch, totals = load.mean_batch(totals)
        at = lambda q: 1000 * latencies[min(len(latencies) - 1, int(q * len(latencies)))]  # pylint: disable=cell-var-from-loop
        print(f"| {100 * share:.0f} % | {share * capacity:.0f} | {at(0.5):.1f} | {at(0.99):.1f} | {batch:.1f} | {len(latencies)} | {load.refused} |")
    print(f"wrong answers: {load.wrong}; asked again: {load.again}; memory {server.resident_kb() / 1024:.0f} MiB")
    return load.wrong == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("athanor", "model", "pictures"):
        parser.add_argument(name, metavar=name.upper())
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--flags", default="", help="of athanor serve")
    options = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".err") as log:
        server = Server(options.athanor, options.model, "--max-queue", "2000", *options.flags.split(), err=log.name)
        try:
            right = asyncio.run(measure(options, server))
        finally:
            server.stop()
    raise SystemExit(0 if right else 1)


main()
