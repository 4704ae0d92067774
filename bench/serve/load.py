#!/usr/bin/env python3
"""load.py ATHANOR MODEL PICTURES [--also MODEL]... [--dialect predict|v2] [--seconds S] [--flags="FLAGS of athanor serve"]
        [--onnx PYTHON] [--litserve PYTHON]: what athanor serve answers in time.

Its capacity first: 64 clients that ask without pause. Then requests at random times (a Poisson process) at 50, 80 and 95 % of
that. Each one's latency counts from the time it was due, so that a server that stalls is not spared the requests it has kept
from being sent. The client takes a part of the same machine. Only 127.0.0.1 is talked to.

    bench/serve/load.py build/cpu/bin/athanor MODEL PICTURES --onnx ~/.cache/athanor/peers/bin/python3

--dialect v2 asks in the Open Inference Protocol, with binary tensors. With --also, the same server has further models, and each request
is for one of all at random.

With --onnx or --litserve, athanor convert writes the model as ONNX, and onnx_server.py or litserve_server.py serves it with that Python,
which must have onnxruntime, numpy and Pillow, and litserve. The top class of every picture must be that of athanor predict at all servers.
Then they are measured in turns, at the same loads: 50, 80 and 95 % of the capacity of each, in reverse order in every other turn; the
latencies of all turns are put together. A server that answers fewer images/s than are sent is above its capacity, and its latencies grow for
as long as that lasts. Twice its capacity and more is not sent. The code is 1 where a class differs or an answer is wrong.
"""
import argparse
import asyncio
import contextlib
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

from client import Connection, Server, expectations, is_right, requests_for, top_of


MOST_CONNECTIONS = 256  # a request that finds none waits, which counts
IDLE_S = 15  # older ones may have been closed by the server
SHARES = (0.5, 0.8, 0.95)  # of a capacity
MOST_ABOVE = 2  # times a server's capacity: more is not sent to it
TIMES = "p50 ms | p99 ms | mean batch | requests | refused |"


def has_top_class(said, expected):
    return bool(said) and said[0]["index"] == expected[0]["index"]


class Load:
    """One server's. is_right(said, expected) judges an answer's classes."""

    def __init__(self, server, known, is_right=is_right):
        self.server, self.known, self.is_right, self.draw, self.free = server, known, is_right, random.Random(1), []
        self.wrong = self.refused = self.again = 0
        self.room = asyncio.Semaphore(MOST_CONNECTIONS)

    async def one(self):
        async with self.room:
            connection, used = self.free.pop() if self.free else (Connection(self.server), 0)
            if time.monotonic() - used > IDLE_S:
                connection.close()
            request, expected = self.draw.choice(self.known)
            try:
                code, said = await connection.ask(request)
            except (ConnectionError, asyncio.IncompleteReadError):  # this process was so late that the server has closed it
                self.again += 1
                connection.close()
                code, said = await connection.ask(request)
            self.refused += code == 503
            self.wrong += code not in (200, 503) or (code == 200 and not self.is_right(top_of(said), expected))
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

        while (due := due + self.draw.expovariate(rate)) < end or not tasks:  # a slow server may be due none
            if (pause := due - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            tasks.append(asyncio.create_task(timed(due)))
        await asyncio.gather(*tasks)
        return sorted(latencies)

    def mean_batch(self, since=(0, 0)):
        """(mean as a text, totals to go on from); "-" of a server that does not say"""
        try:
            totals = self.server.metric("athanor_batch_images_sum"), self.server.metric("athanor_batch_images_count")
        except TypeError:  # it has no such figure
            return "-", since
        return f"{(totals[0] - since[0]) / max(1, totals[1] - since[1]):.1f}", totals


def at_quantile(latencies, q):
    """In ms, of sorted seconds."""
    return 1000 * latencies[min(len(latencies) - 1, int(q * len(latencies)))]


def known_of(options):
    """[(request, top)] of all models."""
    if not options.also:
        return requests_for(expectations(options.athanor, options.model, options.pictures), options.dialect)
    return [one for name, model in names_of(options)
            for one in requests_for(expectations(options.athanor, model, options.pictures), options.dialect, name)]


def names_of(options):
    """[(name, model)]"""
    return [(f"model{i}", model) for i, model in enumerate([options.model, *options.also])]


async def measure(options, server):
    load = Load(server, known_of(options))
    await load.capacity(2)
    _, totals = load.mean_batch()
    capacity = await load.capacity(options.seconds)
    batch, totals = load.mean_batch(totals)
    print(server.first_line.split("/: ", 1)[1].strip())
    print(f"| load | images/s | {TIMES}\n|---|---|---|---|---|---|---|")
    print(f"| 64 clients without pause | {capacity:.0f} | - | - | {batch} | - | {load.refused} |")
    for share in SHARES:
        load.refused = 0
        latencies = await load.open_loop(share * capacity, options.seconds)
        batch, totals = load.mean_batch(totals)
        print(f"| {100 * share:.0f} % | {share * capacity:.0f} | {at_quantile(latencies, 0.5):.1f} | {at_quantile(latencies, 0.99):.1f} "
              f"| {batch} | {len(latencies)} | {load.refused} |")
    print(f"wrong answers: {load.wrong}; asked again: {load.again}; memory {server.resident_kb() / 1024:.0f} MiB")
    return load.wrong == 0


# Beside ONNX Runtime -------------------------------------------------------------------------------------------------

class Engine:
    """A server beside another, and what its turns at one load have added up to."""

    def __init__(self, name, server, known):
        self.name, self.load, self.capacity = name, Load(server, known, has_top_class), 0
        self.begin()

    def begin(self):
        self.latencies, self.answered = [], []  # seconds of each request; images/s of each turn
        self.load.refused = 0
        _, self.totals = self.load.mean_batch()

    async def without_pause(self, seconds):
        self.answered.append(await self.load.capacity(seconds))
        self.capacity = statistics.fmean(self.answered)

    async def at_rate(self, rate, seconds):
        begin = time.monotonic()
        latencies = await self.load.open_loop(rate, seconds)
        self.answered.append(len(latencies) / (time.monotonic() - begin))
        self.latencies += latencies

    def row(self, load, sent="-"):
        if not self.answered:
            return f"| {self.name} | {load} | {sent} | far above its capacity | - | - | - | - | - |"
        latencies, (batch, _) = sorted(self.latencies), self.load.mean_batch(self.totals)
        times = f"{at_quantile(latencies, 0.5):.1f} | {at_quantile(latencies, 0.99):.1f}" if latencies else "- | -"
        return (f"| {self.name} | {load} | {sent} | {statistics.fmean(self.answered):.0f} | {times} | {batch} | {len(latencies) or '-'} "
                f"| {self.load.refused} |")


async def answer_alike(engines):
    """Whether each server's top class is athanor predict's, for every picture; says how far probabilities are off."""
    alike = True
    for engine in engines:
        connection, farthest = Connection(engine.load.server), 0
        for request, expected in engine.load.known:
            code, said = await connection.ask(request)
            if code != 200 or not has_top_class(top_of(said), expected):
                print(f"{engine.name}: {code} {said} instead of {expected}")
                alike = False
                continue
            farthest = max(farthest, abs(top_of(said)[0]["probability"] - expected[0]["probability"]))
        connection.close()
        print(f"{engine.name}: {engine.load.server.first_line.split('/: ', 1)[1].strip()}; "
              f"top probabilities of {len(engine.load.known)} pictures within {farthest:.1g}")
    return alike


async def in_turns(engines, turns, measure_one):
    for turn in range(turns):
        for engine in engines if turn % 2 == 0 else engines[::-1]:
            await measure_one(engine)


async def measure_beside(options, ours, others):
    known = expectations(options.athanor, options.model, options.pictures)
    engines = [Engine("athanor", ours, requests_for(known, options.dialect))]
    engines += [Engine(name, server, requests_for(known, dialect)) for name, dialect, server in others]
    if not await answer_alike(engines):
        return False
    for engine in engines:
        await engine.load.capacity(2)
    print(f"\n| engine | load | sent/s | answered/s | {TIMES}\n|---|---|---|---|---|---|---|---|---|")
    for engine in engines:
        engine.begin()
    await in_turns(engines, options.turns, lambda engine: engine.without_pause(options.seconds))
    for engine in engines:
        print(engine.row("64 clients without pause"))
    for of, share in [(engine, share) for engine in engines for share in SHARES]:
        rate, load = share * of.capacity, f"{100 * share:.0f} % of {of.name}'s"
        for engine in engines:
            engine.begin()
        able = [engine for engine in engines if rate < MOST_ABOVE * engine.capacity]
        await in_turns(able, options.turns, lambda engine: engine.at_rate(rate, options.seconds))  # pylint: disable=cell-var-from-loop
        for engine in engines:
            print(engine.row(load, f"{rate:.0f}"), flush=True)
    print("\n" + "; ".join(f"{e.name}: {e.load.wrong} wrong answers, {e.load.again} asked again, memory {e.load.server.all_resident_kb() / 1024:.0f} MiB"
                           for e in engines))
    return all(engine.load.wrong == 0 for engine in engines)


@contextlib.contextmanager
def served(program, model, options, folder, command="serve", more=()):
    server = Server(program, model, "--max-queue", "2000", *options.flags.split(), *more, err=f"{folder}/{pathlib.Path(command).stem}.err", command=command)
    try:
        yield server
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("athanor", "model", "pictures"):
        parser.add_argument(name, metavar=name.upper())
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--flags", default="", help="of athanor serve; the other servers get the same")
    parser.add_argument("--dialect", choices=("predict", "v2"), default="predict", help="in which athanor serve is asked")
    parser.add_argument("--also", metavar="MODEL", action="append", default=[], help="a further model of the same server")
    parser.add_argument("--onnx", metavar="PYTHON", help="measure onnx_server.py beside it, with this Python")
    parser.add_argument("--litserve", metavar="PYTHON", help="measure litserve_server.py beside it, with this Python")
    parser.add_argument("--turns", type=int, default=2, help="of each server at each load, with --onnx or --litserve")
    options = parser.parse_args()
    peers = [(name, dialect, python, script) for name, dialect, python, script in
             (("ONNX Runtime", "predict", options.onnx, "onnx_server.py"), ("LitServe", "litserve", options.litserve, "litserve_server.py")) if python]
    if peers and options.also:
        parser.error("--also: the other servers have one model")
    models = [f"{name}={model}" for name, model in names_of(options)] if options.also else [options.model]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(served(options.athanor, models[0], options, folder, more=models[1:]))
        if not peers:
            right = asyncio.run(measure(options, server))
        else:
            model = f"{folder}/model.onnx"
            subprocess.run([options.athanor, "convert", options.model, model, "--preprocess"], check=True, stdout=subprocess.DEVNULL)
            others = [(name, dialect, stack.enter_context(served(python, model, options, folder, pathlib.Path(__file__).resolve().with_name(script))))
                      for name, dialect, python, script in peers]
            right = asyncio.run(measure_beside(options, server, others))
    raise SystemExit(0 if right else 1)


main()
