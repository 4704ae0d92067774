"""infer.py DIR PACKAGE: forward passes of the networks in DIR/MODEL.onnx, which `athanor convert` has written, by PACKAGE,
onnxruntime or openvino. bench/peers/athanor/infer.cpp is the same in Athanor."""

import functools
import importlib
import math
import os
import pathlib
import sys

import protocol
from workloads import BATCHES

THREADS = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count())


def made_up(np, shape, seed):
    """As bench/peers/pytorch/worker.py has it."""
    words = (np.arange(math.prod(shape), dtype=np.int64) + seed) & 0xFFFFFFFF
    for shift, factor in ((16, 0x9E3779B1), (15, 0x85EBCA77)):
        words = ((words ^ words >> shift) * factor) & 0xFFFFFFFF
    words ^= words >> 16
    return ((words >> 8).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)).reshape(shape)


def onnxruntime(package, file, batch, precision, images_of):
    options = package.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 3
    options.add_free_dimension_override_by_name("N", batch)
    session = package.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    images = images_of([batch, *session.get_inputs()[0].shape[1:]])
    return lambda: session.run(None, {"images": images})[0]


def openvino(package, file, batch, precision, images_of):
    settings = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    core = package.Core()
    model = core.read_model(file)
    shape = [batch, *(size.get_length() for size in list(model.input(0).partial_shape)[1:])]
    model.reshape(shape)
    images = images_of(shape)
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    return lambda: next(iter(request.infer([images], share_inputs=True).values()))


# ONNX Runtime computes an f32 graph in f32 alone.
PRECISIONS = {"onnxruntime": (onnxruntime, ["f32"]), "openvino": (openvino, ["f32", "bf16"])}


def prepare(package, np, file, batch, precision, make):
    run = make(package, str(file), batch, precision, lambda shape: made_up(np, shape, 7))
    return run, run().flatten().tolist()


def main():
    folder, name = sys.argv[1:]
    try:
        np, package = importlib.import_module("numpy"), importlib.import_module(name)
    except (ImportError, OSError) as missing:
        protocol.say({"error": str(missing)})
        return
    make, precisions = PRECISIONS[name]
    cases = {f"{file.stem}/{precision}/infer-b{batch}":
             {name: functools.partial(prepare, package, np, file, batch, precision, make)}
             for file in pathlib.Path(folder).glob("*.onnx") for precision in precisions for batch in BATCHES}
    protocol.serve(name, package.__version__.split("-")[0], THREADS, cases)


main()
