#!/usr/bin/env python3
"""litserve_server.py MODEL.onnx [--port N] [--threads N] [--max-batch N] [--max-delay-ms MS]: what athanor serve does, by LitServe.

    athanor convert RUN MODEL.onnx --preprocess
    ~/.cache/athanor/peers/bin/python3 bench/serve/litserve_server.py MODEL.onnx --port 8080

load.py measures it beside athanor serve. It needs litserve, onnxruntime, numpy and Pillow. HTTP, the queue and batches are LitServe's, one
process of which decodes the pictures of a batch and computes it by ONNX Runtime; a picture is {"image": BASE64}, as LitServe's requests are JSON.
"""
import argparse
import base64
import os
import signal
import socket
import sys
import threading
import time

import litserve
import numpy as np

from onnx_server import Model  # beside this file


class Classifier(litserve.LitAPI):
    def __init__(self, path, threads, **batches):
        super().__init__(**batches)
        self.path, self.threads = path, threads

    def setup(self, device):
        self.model = Model(self.path, self.threads)
        images = np.zeros((1, self.model.height, self.model.width, self.model.channels), np.uint8)
        for size in sorted({1, 2, 4, 8, 16, 32, self.max_batch_size}, reverse=True):  # the first batch of a size takes longer
            if size <= self.max_batch_size:
                self.model.probabilities(np.repeat(images, size, 0))

    def decode_request(self, request):
        return self.model.pixels(base64.b64decode(request["image"]))

    def batch(self, inputs):
        return np.stack(inputs)

    def predict(self, images):
        return self.model.probabilities(images if self.max_batch_size > 1 else images[None])

    def unbatch(self, output):
        return list(output)

    def encode_response(self, output):
        row = output if output.ndim == 1 else output[0]
        best = np.argsort(-row, kind="stable")[:3]
        return {"top": [{"class": self.model.classes[index], "index": int(index), "probability": float(row[index])} for index in best]}


def say_when_ready(port, text):
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    print(text, flush=True)


def stop(*_):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument("--port", type=int, default=8080, help="0: any free one")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--max-delay-ms", type=float, default=2)
    parser.add_argument("--max-queue", type=int, default=0, help="not known to LitServe")
    options = parser.parse_args()
    if not options.port:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            options.port = one.getsockname()[1]
    model = Model(options.model, 1)
    text = (f"http://127.0.0.1:{options.port}/: {model.name} of {options.model}, {len(model.classes)} classes, "
            f"images {model.height}x{model.width}x{model.channels}, {options.threads} threads, "
            f"batches of up to {options.max_batch} within {options.max_delay_ms:g} ms")
    signal.signal(signal.SIGTERM, stop)
    threading.Thread(target=say_when_ready, args=(options.port, text), daemon=True).start()
    # Without a time to wait, LitServe's batches have one image each.
    api = Classifier(options.model, options.threads, max_batch_size=options.max_batch, batch_timeout=options.max_delay_ms / 1000 if options.max_batch > 1 else 0)
    server = litserve.LitServer(api, accelerator="cpu", timeout=False)
    server.run(host="127.0.0.1", port=options.port, log_level="error", generate_client_file=False, access_log=False)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(0)
