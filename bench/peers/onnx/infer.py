"""infer.py DIR PACKAGE: forward passes of the networks in DIR/MODEL.onnx, which `athanor convert` has written, by PACKAGE,
onnxruntime or openvino. bench/peers/athanor/infer.cpp is the same in Athanor."""

import functools
import importlib
import math
import os
import pathlib
import sys
import tempfile

import protocol
from workloads import BATCHES

CALIBRATION_IMAGES = 8  # of int8
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
    return compiled(package, package.Core().read_model(file), batch, precision, images_of)


def compiled(package, model, batch, precision, images_of):
    settings = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    shape = [batch, *(size.get_length() for size in list(model.input(0).partial_shape)[1:])]
    model.reshape(shape)
    images = images_of(shape)
    request = package.Core().compile_model(model, "CPU", settings).create_infer_request()
    return lambda: next(iter(request.infer([images], share_inputs=True).values()))


def calibration(shape, images_of):
    """Images one by one, none of which is timed."""
    return [image[None] for image in images_of([CALIBRATION_IMAGES + 1, *shape[1:]])[1:]]


def onnxruntime_int8(package, file, batch, precision, images_of):
    """As its documentation has it for CNNs on a CPU: QDQ, u8 activations, i8 weights for each channel."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(quantization.CalibrationDataReader):
        def __init__(self, images):
            self.images = iter(images)

        def get_next(self):
            image = next(self.images, None)
            return None if image is None else {"images": image}

    with tempfile.TemporaryDirectory() as folder:
        prepared, quantized = f"{folder}/prepared.onnx", f"{folder}/int8.onnx"
        quant_pre_process(file, prepared, skip_symbolic_shape=True)
        shape = package.InferenceSession(file, providers=["CPUExecutionProvider"]).get_inputs()[0].shape
        quantization.quantize_static(prepared, quantized, Reader(calibration(shape, images_of)), per_channel=True,
                                     activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8)
        return onnxruntime(package, quantized, batch, precision, images_of)


def openvino_int8(package, file, batch, precision, images_of):
    """By NNCF, with its defaults."""
    import nncf

    model = package.Core().read_model(file)
    shape = [1, *(size.get_length() for size in list(model.input(0).partial_shape)[1:])]
    quantized = nncf.quantize(model, nncf.Dataset(calibration(shape, images_of)), subset_size=CALIBRATION_IMAGES)
    return compiled(package, quantized, batch, "f32", images_of)  # of what is not quantized


# ONNX Runtime computes an f32 graph in f32 alone.
PRECISIONS = {"onnxruntime": {"f32": onnxruntime, "int8": onnxruntime_int8},
              "openvino": {"f32": openvino, "bf16": openvino, "int8": openvino_int8}}


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
    cases = {f"{file.stem}/{precision}/infer-b{batch}":
             {name: functools.partial(prepare, package, np, file, batch, precision, make)}
             for file in pathlib.Path(folder).glob("*.onnx") for precision, make in PRECISIONS[name].items() for batch in BATCHES}
    protocol.serve(name, package.__version__.split("-")[0], THREADS, cases)


main()
