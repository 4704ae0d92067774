"""serve_tritonclient.py ATHANOR RUN OTHER_RUN PICTURES: Triton's own Python client talks to athanor serve.

RUN is a model of the digits, OTHER_RUN another one; PICTURES a folder of PNGs of digits. Needs tritonclient[http] and numpy.
"""
import json
import pathlib
import subprocess
import sys

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from serve_client import Server  # beside this file

athanor, run, other = sys.argv[1:4]
pictures = sorted(pathlib.Path(sys.argv[4]).glob("*.png"))[:20]


def check(condition, what):
    if not condition:
        sys.exit(f"{what}\n{open('serve.err').read()}")


def predicted(model):
    """[N, 10]"""
    lines = subprocess.check_output([athanor, "predict", model, *map(str, pictures), "--top", "10", "--json"]).splitlines()
    rows = np.zeros((len(pictures), 10), np.float32)
    for row, line in zip(rows, lines):
        for guess in json.loads(line)["top"]:
            row[guess["index"]] = guess["probability"]
    return rows


def refused(part, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except InferenceServerException as error:
        check(part in str(error), f"{part!r} is not in: {error}")
    else:
        check(False, f"{call} must be refused")


def files_of(binary_data):
    files = np.array([picture.read_bytes() for picture in pictures], np.object_)
    tensor = triton.InferInput("images", [len(pictures)], "BYTES")
    if not binary_data:  # JSON has no bytes
        import base64  # pylint: disable=import-outside-toplevel
        files = np.array([base64.b64encode(file) for file in files], np.object_)
    tensor.set_data_from_numpy(files, binary_data=binary_data)
    return tensor


def main():
    server = Server(athanor, f"one={run}", f"two={other}", "--model-control")
    with triton.InferenceServerClient(f"{server.host}:{server.port}", concurrency=4) as client:
        check(client.is_server_live() and client.is_server_ready() and client.is_model_ready("one") and client.is_model_ready("two", "1"), "ready")
        check(not client.is_model_ready("three") and not client.is_model_ready("one", "9"), "not ready")
        check("binary_tensor_data" in client.get_server_metadata()["extensions"], "extensions")
        metadata = client.get_model_metadata("one")
        shape = metadata["inputs"][0]["shape"]
        check(metadata["inputs"][0]["datatype"] == "UINT8" and shape == [-1, 8, 8, 1], f"{metadata}")
        for model in ("one", "two"):
            expected = predicted(run if model == "one" else other)
            for binary in (True, False):
                found = client.infer(model, [files_of(binary)], request_id="7")
                check(found.get_response()["id"] == "7" and found.get_response()["model_name"] == model, f"{found.get_response()}")
                check(np.allclose(found.as_numpy("probabilities"), expected, atol=2e-6), f"{model}: {found.as_numpy('probabilities')}")
                check((found.as_numpy("classes") == expected.argmax(1)).all(), "classes")
        expected = predicted(run)
        noise = np.random.default_rng(1).integers(0, 256, (6, 8, 8, 1), np.uint8)
        answers = []
        for binary in (True, False):
            tensor = triton.InferInput("images", list(noise.shape), "UINT8")
            tensor.set_data_from_numpy(noise, binary_data=binary)
            wanted = [triton.InferRequestedOutput("logits", binary_data=binary), triton.InferRequestedOutput("probabilities", binary_data=not binary)]
            answers.append(client.infer("one", [tensor], outputs=wanted))
        mean, std = metadata["parameters"]["mean"], metadata["parameters"]["std"]
        tensor = triton.InferInput("images", list(noise.shape), "FP32")
        tensor.set_data_from_numpy(((noise / 255 - np.array(mean)) / np.array(std)).astype(np.float32))
        answers.append(client.infer("one", [tensor]))
        for found in answers:
            check(np.allclose(found.as_numpy("logits"), answers[0].as_numpy("logits"), atol=1e-4), "logits of the same images")
            scores = np.exp(found.as_numpy("logits"))
            check(np.allclose(found.as_numpy("probabilities"), scores / scores.sum(1, keepdims=True), atol=1e-5), "probabilities of logits")
        best = client.infer("one", [files_of(True)], outputs=[triton.InferRequestedOutput("probabilities", class_count=3)])
        said = best.as_numpy("probabilities")
        check(said.shape == (len(pictures), 3) and [int(row[0].decode().split(":")[1]) for row in said] == list(expected.argmax(1)), f"{said}")
        pending = [client.async_infer("two" if i % 2 else "one", [files_of(True)]) for i in range(16)]
        for i, one in enumerate(pending):
            check(one.get_result().get_response()["model_name"] == ("two" if i % 2 else "one"), "answers of requests at the same time")
        refused("there is no model", client.infer, "three", [files_of(True)])
        wrong = triton.InferInput("images", [1, 9, 9, 1], "UINT8")
        wrong.set_data_from_numpy(np.zeros((1, 9, 9, 1), np.uint8))
        refused("[N, 8, 8, 1]", client.infer, "one", [wrong])
        client.unload_model("two")
        check(not client.is_model_ready("two"), "unloaded")
        refused("not loaded", client.infer, "two", [files_of(True)])
        client.load_model("two")
        check(client.is_model_ready("two"), "loaded")
        index = {one["name"]: one["state"] for one in client.get_model_repository_index()}
        check(index == {"one": "READY", "two": "READY"}, f"{index}")
    check(server.stop() == 0, "SIGTERM must end with 0")
    # And with a token.
    server = Server(athanor, run, "--token", "abc")
    with triton.InferenceServerClient(f"{server.host}:{server.port}") as client:
        refused("token", client.infer, "default", [files_of(True)])
        found = client.infer("default", [files_of(True)], headers={"Authorization": "Bearer abc"})
        check(np.allclose(found.as_numpy("probabilities"), expected, atol=2e-6), "with the token")
    check(server.stop() == 0, "SIGTERM must end with 0")


main()
