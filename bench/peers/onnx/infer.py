"""infer.py DIR PACKAGE: forward passes of the networks in DIR/MODEL.onnx, which `athanor convert` has written, by PACKAGE,
onnxruntime or openvino. bench/peers/athanor/infer.cpp is the same in Athanor."""

import functools
import importlib
import math
import os
import sys

import protocol

THREADS = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count())
IMAGES = {"lenet5": (1, 28, 28), "resnet20": (3, 32, 32), "resnet18_cifar": (3, 32, 32), "cifarnet": (3, 32, 32),
          "resnet50": (3, 224, 224), "mobilenet_v2": (3, 224, 224)}
BATCHES = (1, 16, 64, 128, 500, 512)


def made_up(np, shape, seed):
    """As bench/peers/pytorch/worker.py has it."""
    words = (np.arange(math.prod(shape), dtype=np.int64) + seed) & 0xFFFFFFFF
    for shift, factor in ((16, 0x9E3779B1), (15, 0x85EBCA77)):
        words = ((words ^ words >> shift) * factor) & 0xFFFFFFFF
    words ^= words >> 16
    return ((words >> 8).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)).reshape(shape)


def onnxruntime(package, file, images, precision):
    options = package.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 3
    options.add_free_dimension_override_by_name("N", images.shape[0])
    session = package.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"images": images})[0]


def openvino(package, file, images, precision):
    settings = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    core = package.Core()
    model = core.read_model(file)
    model.reshape(list(images.shape))
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    return lambda: next(iter(request.infer([images], share_inputs=True).values()))


# ONNX Runtime computes an f32 graph in f32 alone.
PRECISIONS = {"onnxruntime": (onnxruntime, ["f32"]), "openvino": (openvino, ["f32", "bf16"])}


def prepare(package, np, file, shape, precision, make):
    run = make(package, file, made_up(np, shape, 7), precision)
    return run, run().flatten().tolist()


def main():
    folder, name = sys.argv[1:]
    try:
        np, package = importlib.import_module("numpy"), importlib.import_module(name)
    except (ImportError, OSError) as missing:
        protocol.say({"error": str(missing)})
        return
    make, precisions = PRECISIONS[name]
    cases = {f"{model}/{precision}/infer-b{batch}":
             {name: functools.partial(prepare, package, np, f"{folder}/{model}.onnx", (batch, *image), precision, make)}
             for model, image in IMAGES.items() for precision in precisions for batch in BATCHES}
    protocol.serve(name, package.__version__.split("-")[0], THREADS, cases)


main()
