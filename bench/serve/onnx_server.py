#!/usr/bin/env python3
"""onnx_server.py MODEL.onnx [--port N] [--threads N] [--max-batch N] [--max-delay-ms MS]: what athanor serve does, by ONNX Runtime.

    athanor convert RUN MODEL.onnx --preprocess
    ~/.cache/athanor/peers/bin/python3 bench/serve/onnx_server.py MODEL.onnx --port 8080

load.py measures it beside athanor serve. It needs onnxruntime, numpy and Pillow; HTTP is asyncio's. One picture per request, JPEG or
PNG, is the body of POST /predict. Pictures are cut and batched as there: `--threads` threads decode, one more computes a batch with
as many; a batch starts when it is full, when its oldest picture has waited for --max-delay-ms, or when no other is being decoded;
sizes are powers of two. It is for measurements on 127.0.0.1: the size of a request has no limit, and nothing times out.
"""
import argparse
import asyncio
import collections
import concurrent.futures
import io
import json
import os
import signal
import sys
import threading
import time
import urllib.parse

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error",
           503: "Service Unavailable"}


class Model:
    """A classifier of pixels [N, H, W, C] u8, as athanor convert --preprocess writes it with its classes and sizes."""

    def __init__(self, path, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        known = self.session.get_modelmeta().custom_metadata_map
        if known.get("preprocess") != "inside":
            sys.exit(f"{path}: must be written by athanor convert --preprocess, but is not")
        self.name, self.classes = known["model"], json.loads(known["class_names"])
        self.shorter_side = int(known["shorter_side"])
        self.height, self.width, self.channels = self.session.get_inputs()[0].shape[1:]

    def window(self, size):
        """The part (left, top, right, bottom) of a picture of (width, height) that becomes the model's image."""
        wanted = self.width, self.height
        if self.shorter_side:
            scaled = [self.shorter_side * side // min(size) for side in size]
            scales = [side / by for side, by in zip(size, scaled)]
            first = [round((by - want) / 2) * scale for by, want, scale in zip(scaled, wanted, scales)]
        else:
            scales = [min(side / want for side, want in zip(size, wanted))] * 2
            first = [max(side - scale * want, 0) / 2 for side, want, scale in zip(size, wanted, scales)]
        last = [min(at + scale * want, side) for at, scale, want, side in zip(first, scales, wanted, size)]
        return *first, *last

    def pixels(self, body):
        """[H, W, C] u8. Throws what Pillow does where it cannot read the body."""
        image = Image.open(io.BytesIO(body), formats=("JPEG", "PNG"))
        if image.format == "JPEG":
            image = ImageOps.exif_transpose(image)
        if image.mode != "L" or self.channels != 1:
            image = image.convert("RGB")
        if image.size != (self.width, self.height) or self.shorter_side > min(image.size):
            image = image.resize((self.width, self.height), Image.Resampling.BILINEAR, self.window(image.size))
        if self.channels == 1:
            image = image.convert("L")
        return np.asarray(image).reshape(self.height, self.width, self.channels)

    def probabilities(self, images):
        logits = self.session.run(None, {"images": images})[0]
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)


# image [H, W, C] u8; answer(code, object) is called in the loop's thread; decoded: when it began to wait
Picture = collections.namedtuple("Picture", "image top answer decoded")


class Batcher:
    """Pictures that wait for the model, and the thread that computes them."""

    def __init__(self, model, loop, options):
        self.model, self.loop, self.max_delay = model, loop, options.max_delay_ms / 1000
        self.sizes = [1 << i for i in range((options.max_batch - 1).bit_length())] + [options.max_batch]
        self.changed, self.waiting, self.expected = threading.Condition(), collections.deque(), 0
        self.inside = self.images = self.batches = 0
        for size in reversed(self.sizes):  # the first batch of a size takes longer
            model.probabilities(np.zeros((size, model.height, model.width, model.channels), np.uint8))
        threading.Thread(target=self.compute, daemon=True).start()

    def expect(self):
        with self.changed:
            self.expected += 1
            self.inside += 1

    def put(self, picture):
        with self.changed:
            self.expected -= 1
            self.waiting.append(picture)
            self.changed.notify()

    def drop(self):
        """The expected one could not be read."""
        with self.changed:
            self.expected -= 1
            self.inside -= 1
            self.changed.notify()

    def take(self):
        with self.changed:
            self.changed.wait_for(lambda: self.waiting)
            left = self.waiting[0].decoded + self.max_delay - time.monotonic()
            self.changed.wait_for(lambda: len(self.waiting) >= self.sizes[-1] or self.expected == 0, max(left, 0))
            size = max(size for size in self.sizes if size <= len(self.waiting))
            self.images, self.batches = self.images + size, self.batches + 1
            return [self.waiting.popleft() for _ in range(size)]

    def compute(self):
        while True:
            batch = self.take()
            try:
                rows = self.model.probabilities(np.stack([picture.image for picture in batch]))
                answers = [(200, {"image": None, "top": self.top(row, picture.top)}) for row, picture in zip(rows, batch)]
            except Exception as error:  # pylint: disable=broad-exception-caught  # every request gets an answer
                answers = [(500, {"error": str(error)})] * len(batch)
            with self.changed:
                self.inside -= len(batch)
            self.loop.call_soon_threadsafe(self.send, batch, answers)

    def top(self, row, count):
        order = np.argsort(-row, kind="stable")[:count].tolist()
        return [{"class": self.model.classes[i], "index": i, "probability": float(row[i])} for i in order]

    @staticmethod
    def send(batch, answers):
        for picture, answer in zip(batch, answers):
            picture.answer(*answer)


class Service:
    """What becomes of a request."""

    def __init__(self, model, loop, options):
        self.model, self.loop, self.max_queue = model, loop, options.max_queue
        self.batcher = Batcher(model, loop, options)
        self.decoders = concurrent.futures.ThreadPoolExecutor(options.threads)

    def handle(self, method, target, body, answer):
        url = urllib.parse.urlsplit(target)
        if url.path == "/predict" and method == "POST":
            self.predict(url.query, body, answer)
        elif url.path == "/healthz" and method == "GET":
            model = self.model
            answer(200, {"status": "ok", "model": model.name, "classes": len(model.classes),
                         "images": [model.height, model.width, model.channels], "generation": 1})
        elif url.path == "/metrics" and method == "GET":
            answer(200, f"athanor_batch_images_sum {self.batcher.images}\nathanor_batch_images_count {self.batcher.batches}\n")
        elif url.path in ("/predict", "/healthz", "/metrics"):
            answer(405, {"error": f"{url.path} does not take {method}"})
        else:
            answer(404, {"error": f"there is no {url.path}"})

    def predict(self, query, body, answer):
        top = dict(urllib.parse.parse_qsl(query)).get("top", "3")
        if not top.isdecimal() or int(top) < 1:
            answer(400, {"error": f"top must be at least 1, but is '{top}'"})
        elif self.batcher.inside >= self.max_queue:
            answer(503, {"error": f"{self.max_queue} pictures are waiting"})
        else:
            self.batcher.expect()
            self.decoders.submit(self.decode, body, int(top), answer)

    def decode(self, body, top, answer):
        try:
            image = self.model.pixels(body)
        except Exception as error:  # pylint: disable=broad-exception-caught  # Pillow throws many kinds
            self.batcher.drop()
            self.loop.call_soon_threadsafe(answer, 400, {"error": f"image: {error}"})
        else:
            self.batcher.put(Picture(image, top, answer, time.monotonic()))


class Connection(asyncio.Protocol):
    """Its requests, one after the other; it stays open."""

    def __init__(self, service):
        self.service, self.transport, self.received = service, None, bytearray()
        self.needed, self.busy = 0, False  # bytes until the request is whole, as far as is known; whether one is being answered

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        self.next_request()

    def next_request(self):
        head = self.received.find(b"\r\n\r\n") + 4 if len(self.received) >= self.needed and not self.busy else 0
        if head < 4:
            return
        first, *fields = self.received[:head].decode("latin-1").split("\r\n")
        length = next((value for name, _, value in (field.partition(":") for field in fields) if name.lower() == "content-length"), "0")
        words = first.split(" ")
        if len(words) != 3 or not length.strip().isdecimal():
            self.transport.close()
            return
        self.needed = head + int(length)
        if len(self.received) < self.needed:
            return
        body = bytes(self.received[head : self.needed])
        del self.received[: self.needed]
        self.needed, self.busy = 0, True
        self.service.handle(words[0], words[1], body, self.answer)

    def answer(self, code, said):
        kind, text = ("text/plain", said) if isinstance(said, str) else ("application/json", json.dumps(said, separators=(",", ":")) + "\n")
        data = text.encode()
        self.transport.write(f"HTTP/1.1 {code} {REASONS[code]}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        self.busy = False
        if self.received:
            self.next_request()


async def serve(options):
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    model = Model(options.model, options.threads)
    service = Service(model, loop, options)
    server = await loop.create_server(lambda: Connection(service), "127.0.0.1", options.port, backlog=512)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}/: {model.name} of {options.model}, {len(model.classes)} classes, "
          f"images {model.height}x{model.width}x{model.channels}, {options.threads} threads, "
          f"batches of up to {options.max_batch} within {options.max_delay_ms:g} ms", flush=True)
    await stop.wait()
    server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument("--port", type=int, default=8080, help="0: any free one")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--max-delay-ms", type=float, default=2)
    parser.add_argument("--max-queue", type=int, default=256)
    asyncio.run(serve(parser.parse_args()))
    sys.stdout.flush()
    os._exit(0)  # threads may be inside a batch


if __name__ == "__main__":
    main()
