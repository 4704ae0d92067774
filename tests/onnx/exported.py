#!/usr/bin/env python3
"""What export_onnx() writes, run by onnxruntime: the same results as ours.

    exported.py EXPORT_MODELS ATHANOR

EXPORT_MODELS writes every kind of model, and small networks with what no model has, as ONNX with results of ours. Each must pass
onnx.checker, shapes included, and onnxruntime's results, of batches of one and of five, must be within 1e-4 of the
largest; those of models in 8-bit integers within one step of the values that the last product reads, and on average within a
fiftieth. Ends with 1 where one is not, and with 77 where a package is not installed.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import ml_dtypes  # noqa: F401: run_op needs it
    import numpy as np
    import onnx
    import onnxruntime
except ModuleNotFoundError as missing:
    print(f"{missing}; pip install onnx onnxruntime ml_dtypes")
    sys.exit(77)

from run_op import load

MOST = 1e-4
MOST_STEPS, MEAN_STEPS = 1, 0.02


def session(path):
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def error_of(run, x, wanted, step=None):
    got = run.run(None, {"images": x})[0]
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)} for {wanted.dtype}{list(wanted.shape)}"
    largest = float(np.abs(wanted).max())
    if not largest > 1e-6:
        return f"results are {largest} at most: they show nothing"
    if step is not None:
        steps = np.abs(got - wanted) / step
        right = steps.max() <= MOST_STEPS and steps.mean() <= MEAN_STEPS
        return float(steps.max()) if right else f"{steps.max():.2g} steps off, on average {steps.mean():.2g}"
    error = float(np.abs(got - wanted).max()) / largest
    return error if error <= MOST else f"{error:.2g} of the largest off"


def check(path):
    """The largest error; what is wrong, as text."""
    tensors, run = load(path.with_suffix(".safetensors")), session(path)
    errors = [error_of(run, tensors[f"x{n}"], tensors[f"y{n}"], tensors.get("step")) for n in (1, 5)]
    return next((e for e in errors if isinstance(e, str)), None) or max(errors)


def convert(athanor, folder):
    """The command, in each of its forms."""
    tensors = load(folder / "pixels.safetensors")
    pixels, x = tensors["pixels"], tensors["x"]
    forms = {"--input nchw": x, "--input nhwc": x.transpose(0, 2, 3, 1), "--preprocess": pixels,
             "--preprocess --input nchw": pixels.transpose(0, 3, 1, 2)}
    for name, y, step in (("int8", "y_int8", tensors["step"]), ("model", "y", None)):
        for flags, images in forms.items():
            out = folder / "converted.onnx"
            subprocess.run([athanor, "convert", folder / f"{name}.safetensors", out, *flags.split()], check=True,
                           stdout=subprocess.DEVNULL)
            yield f"convert {name} {flags}", error_of(session(out), np.ascontiguousarray(images), tensors[y], step)
    known = {p.key: p.value for p in onnx.load(str(out)).metadata_props}
    right = (json.loads(known["class_names"]) == ["cat", "d\u00f6g", '"cow"'] and
             json.loads(known["pixel_mean"]) == [0.5, 0.4, 0.3] and known["model"] == "resnet20")
    yield "metadata", 0.0 if right else f"{known}"


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        subprocess.run([sys.argv[1], folder], check=True)
        results = {path.stem: check(path) for path in sorted(folder.glob("*.onnx"))}
        results.update(convert(sys.argv[2], folder))
    for name, error in results.items():
        print(f"{name:32}", error if isinstance(error, str) else f"{error:.1e}")
    wrong = [name for name, error in results.items() if isinstance(error, str)]
    print(f"{len(results)} graphs, {len(wrong)} wrong")
    sys.exit(bool(wrong) or len(results) < 50)


main()
