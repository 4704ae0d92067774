"""serve_v2.py ATHANOR RUN OTHER_RUN PICTURES: athanor serve in the Open Inference Protocol, with several models, and with a token.

RUN is a model of the digits, OTHER_RUN another one; PICTURES a folder of PNGs of digits, 8 x 8. Works in the current folder.
"""
import base64
import concurrent.futures
import json
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

from serve_client import Server, pixels_of, png_bytes  # beside this file

athanor, run, other = sys.argv[1:4]
pictures = sorted(pathlib.Path(sys.argv[4]).glob("*.png"))
data = {picture: picture.read_bytes() for picture in pictures}
TOLERANCE = 2e-6  # of a probability: batches of other sizes round otherwise


def check(condition, what):
    if not condition:
        sys.exit(f"{what}\n{open('serve.err').read()}")


def predicted(model):
    """The probabilities of each picture in the order of classes, as athanor predict says them."""
    lines = subprocess.check_output([athanor, "predict", model, *map(str, pictures), "--top", "10", "--json"]).splitlines()
    said = {}
    for picture, line in zip(pictures, lines):
        of_class = {guess["index"]: guess["probability"] for guess in json.loads(line)["top"]}
        said[picture] = [of_class[index] for index in range(10)]
    return said


def near(a, b, tolerance=TOLERANCE):
    return len(a) == len(b) and all(abs(x - y) <= tolerance for x, y in zip(a, b))


def infer(server, body, model="default", json_bytes=None, headers=None, version=None):
    """(code, headers, JSON, tensors)"""
    headers = dict(headers or {})
    if json_bytes is not None:
        headers["Inference-Header-Content-Length"] = str(json_bytes)
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer"
    code, got, text = server.ask("POST", path, body, headers)
    length = int(got["Inference-Header-Content-Length"] or len(text))
    return code, got, json.loads(text[:length]), text[length:]


def request(datatype, shape, numbers=None, size=None, **more):
    entry = {"name": "images", "datatype": datatype, "shape": shape}
    if numbers is not None:
        entry["data"] = numbers
    if size is not None:
        entry["parameters"] = {"binary_data_size": size}
    return {"inputs": [entry], **more}


def asked_with_pixels(server, some, model="default", **more):
    tensor = b"".join(pixels_of(data[picture]) for picture in some)
    text = json.dumps(request("UINT8", [len(some), 8, 8, 1], size=len(tensor), **more)).encode()
    return infer(server, text + tensor, model, len(text))


def probabilities(said, tensors=b""):
    """Of a JSON answer, or a binary one with that output alone: a list for each image."""
    [output] = [one for one in said["outputs"] if one["name"] == "probabilities"]
    values = output.get("data") or struct.unpack(f"<{len(tensors) // 4}f", tensors)
    return [list(values[10 * i : 10 * i + 10]) for i in range(output["shape"][0])]


def check_metadata(server):
    code, _, text = server.ask("GET", "/v2")
    said = json.loads(text)
    check(code == 200 and said["name"] == "athanor" and "binary_tensor_data" in said["extensions"], f"/v2: {said}")
    for path, key in (("/v2/health/live", "live"), ("/v2/health/ready", "ready"), ("/v2/models/default/ready", "ready"),
                      ("/v2/models/default/versions/1/ready", "ready")):
        code, _, text = server.ask("GET", path)
        check(code == 200 and json.loads(text)[key] is True, f"{path}: {code} {text}")
    code, _, text = server.ask("GET", "/v2/models/default")
    said = json.loads(text)
    check(code == 200 and said["name"] == "default" and said["versions"] == ["1"], f"metadata: {said}")
    check(said["inputs"] == [{"name": "images", "datatype": "UINT8", "shape": [-1, 8, 8, 1]}], f"metadata: {said}")
    check([one["name"] for one in said["outputs"]] == ["logits", "probabilities", "classes"], f"metadata: {said}")
    return said["parameters"]


def check_inference(server, expected, parameters):
    mean, std = parameters["mean"][0], parameters["std"][0]
    some = pictures[:5]
    flat = [value for picture in some for value in pixels_of(data[picture])]
    wanted = [expected[picture] for picture in some]
    best = [max(range(10), key=row.__getitem__) for row in wanted]
    code, headers, said, _ = infer(server, json.dumps(request("UINT8", [5, 8, 8, 1], flat, id="a-1")))
    check(code == 200 and headers["Content-Type"] == "application/json", f"UINT8: {code} {said}")
    check(said["model_name"] == "default" and said["model_version"] == "1" and said["id"] == "a-1", f"UINT8: {said}")
    check(all(near(a, b) for a, b in zip(probabilities(said), wanted)), f"UINT8: {said}")
    outputs = {one["name"]: one for one in said["outputs"]}
    check(outputs["classes"] == {"name": "classes", "datatype": "INT64", "shape": [5], "data": best}, f"classes: {outputs['classes']}")
    check(outputs["logits"]["shape"] == [5, 10] and len(outputs["logits"]["data"]) == 50, f"logits: {outputs['logits']}")
    normalised = [(value / 255 - mean) / std for value in flat]
    code, _, said, _ = infer(server, json.dumps(request("FP32", [5, 8, 8, 1], normalised)))
    check(code == 200 and all(near(a, b, 1e-5) for a, b in zip(probabilities(said), wanted)), f"FP32: {code} {said}")
    files = [base64.b64encode(data[picture]).decode() for picture in some]
    code, _, said, _ = infer(server, json.dumps(request("BYTES", [5], files)))
    check(code == 200 and all(near(a, b) for a, b in zip(probabilities(said), wanted)), f"BYTES: {code} {said}")
    # In binary, both ways.
    only = {"outputs": [{"name": "probabilities", "parameters": {"binary_data": True}}]}
    code, headers, said, tensors = asked_with_pixels(server, some, **only)
    check(code == 200 and headers["Content-Type"] == "application/octet-stream" and len(tensors) == 200, f"binary: {code} {headers} {said}")
    check(all(near(a, b) for a, b in zip(probabilities(said, tensors), wanted)), f"binary: {said}")
    tensor = struct.pack("<320f", *normalised)
    text = json.dumps(request("FP32", [5, 8, 8, 1], size=len(tensor), **only)).encode()
    code, _, said, tensors = infer(server, text + tensor, json_bytes=len(text))
    check(code == 200 and all(near(a, b, 1e-5) for a, b in zip(probabilities(said, tensors), wanted)), f"binary FP32: {said}")
    tensor = b"".join(struct.pack("<I", len(data[picture])) + data[picture] for picture in some)
    text = json.dumps(request("BYTES", [5, 1], size=len(tensor), parameters={"binary_data_output": True})).encode()
    code, _, said, tensors = infer(server, text + tensor, json_bytes=len(text))
    sizes = [one["parameters"]["binary_data_size"] for one in said["outputs"]]
    check(code == 200 and sizes == [200, 200, 40] and list(struct.unpack("<5q", tensors[400:])) == best, f"binary BYTES: {said}")
    named = {"outputs": [{"name": "probabilities", "parameters": {"classification": 2}}]}
    code, _, said, _ = asked_with_pixels(server, some[:1], **named)
    value, index, name = said["outputs"][0]["data"][0].split(":")
    check(said["outputs"][0]["shape"] == [1, 2] and int(index) == best[0] and name == str(best[0]) and near([float(value)], [max(wanted[0])]), f"{said}")
    # Many at once share batches.
    def ask(picture):
        return picture, asked_with_pixels(server, [picture])
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for picture, (code, _, said, _) in pool.map(ask, pictures):
            check(code == 200 and near(probabilities(said)[0], expected[picture]), f"{picture}: {code} {said}")


def check_refusals(server):
    def refused(code, part, path, body, headers=None, method="POST"):
        got, _, text = server.ask(method, path, body, headers)
        said = json.loads(text)
        check(got == code and list(said) == ["error"] and part in said["error"], f"{path}: expected {code} and {part!r}, but got {got} {text}")
    infer_path, one = "/v2/models/default/infer", [0] * 64
    refused(404, "there is no model 'x'; there is default", "/v2/models/x/infer", b"{}")
    refused(404, "has no version '7'", "/v2/models/default/versions/7/infer", b"{}")
    refused(404, "there is no model", "/v2/models/x", None, method="GET")
    refused(404, "there are /", "/v2/nothing", None, method="GET")
    refused(405, "takes POST", infer_path, None, method="GET")
    refused(400, "must be JSON", infer_path, b"no JSON")
    refused(400, "inputs", infer_path, b"{}")
    refused(400, "[N, 8, 8, 1]", infer_path, json.dumps(request("UINT8", [1, 28, 28, 1], one)))
    refused(400, "64 numbers", infer_path, json.dumps(request("UINT8", [1, 8, 8, 1], one[1:])))
    refused(400, "UINT8, FP32 or BYTES", infer_path, json.dumps(request("INT64", [1, 8, 8, 1], one)))
    refused(400, "images: 0", infer_path, json.dumps(request("BYTES", [1], ["AAAA"])))
    refused(400, "logits", infer_path, json.dumps(request("UINT8", [1, 8, 8, 1], one, outputs=[{"name": "boxes"}])))
    refused(400, "1 to 256", infer_path, json.dumps(request("UINT8", [257, 8, 8, 1], one)))
    refused(400, "Inference-Header-Content-Length", infer_path, b"{}", {"Inference-Header-Content-Length": "9"})
    refused(400, "Inference-Header-Content-Length", infer_path, b"{}", {"Inference-Header-Content-Length": "x"})
    refused(400, "Content-Encoding", infer_path, b"{}", {"Content-Encoding": "gzip"})
    refused(413, "at most 1000000 bytes", infer_path, bytes(1_000_001))
    refused(403, "--model-control", "/v2/repository/models/default/unload", b"")
    refused(400, "JSON object", "/v2/repository/index", b"[")
    late = request("BYTES", [8], [base64.b64encode(large_png()).decode()] * 8, parameters={"timeout": 1})
    code, headers, said, _ = infer(server, json.dumps(late))
    check(code == 503 and headers["Retry-After"] and "try again" in said["error"], f"a timeout of a microsecond: {code} {said}")
    # Two lengths, and a length beside a coding, for this path as for others.
    head = f"POST {infer_path} HTTP/1.1\r\nHost: x\r\n".encode()
    for fields in (b"Content-Length: 2\r\nContent-Length: 0\r\n\r\n{}", b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"):
        text = server.raw(head + fields)
        check(text.startswith(b"HTTP/1.1 400 "), f"{fields}: {text[:100]}")


def large_png():
    return png_bytes(1000, 500, b"".join(b"\0" + bytes(1000) for _ in range(500)))


def check_one_model(expected):
    server = Server(athanor, run, "--max-body-mb", "1")
    parameters = check_metadata(server)
    check_inference(server, expected, parameters)
    check_refusals(server)
    check(server.metric('athanor_model_images_total{model="default"}') == server.metric("athanor_images_total"), "images by model")
    check(server.metric("athanor_body_bytes") == 0 and server.metric("athanor_images_inside") == 0, "something of a request is held after it")
    check(server.stop() == 0, "SIGTERM must end with 0")


def check_two_models(expected, expected_of_other):
    """By name, with the first for requests that have none."""
    server = Server(athanor, f"one={run}", f"two={other}")
    check("2 models: one, two" in server.first_line, server.first_line)
    only = {"outputs": [{"name": "probabilities"}]}
    def ask(number):
        model, wanted = (("one", expected), ("two", expected_of_other))[number % 2]
        picture = pictures[number % len(pictures)]
        code, _, said, _ = asked_with_pixels(server, [picture], model, **only)
        check(code == 200 and said["model_name"] == model and near(probabilities(said)[0], wanted[picture]), f"{model} {picture}: {said}")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(200)))
    picture = pictures[0]
    for query, wanted in (("", expected), ("?model=one", expected), ("?model=two", expected_of_other)):
        _, _, text = server.ask("POST", "/predict" + query, data[picture])
        check(near([json.loads(text)["top"][0]["probability"]], [max(wanted[picture])]), f"/predict{query}: {text}")
    code, _, text = server.ask("POST", "/predict?model=three", data[picture])
    check(code == 404 and b"one, two" in text, f"an unknown model: {code} {text}")
    for model in ("one", "two"):
        check(server.metric(f'athanor_model_images_total{{model="{model}"}}') >= 100, "images by model")
    check(server.stop() == 0, "SIGTERM must end with 0")


class Load:
    """Clients that ask a model without pause until stopped; what each answer was."""

    def __init__(self, server, model, clients=4):
        self.server, self.model, self.stopped, self.answers, self.wrong = server, model, False, [], []
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def ask(self, number):
        while not self.stopped:
            picture = pictures[(number + len(self.answers)) % len(pictures)]
            try:
                code, _, said, _ = asked_with_pixels(self.server, [picture], self.model, outputs=[{"name": "probabilities"}])
                if code != 200:
                    self.wrong.append(f"{code} {said}")
                    return
                self.answers.append((picture, said["model_version"], probabilities(said)[0]))
            except Exception as error:  # pylint: disable=broad-except
                self.wrong.append(repr(error))
                return

    def stop(self):
        self.stopped = True
        for thread in self.threads:
            thread.join(120)


def newest(server, model):
    return int(server.metric(f'athanor_model_version{{model="{model}"}}'))


def check_folder(expected, expected_of_other):
    """Versions come, are damaged and go, by polling, by SIGHUP and by request: no request is lost, each is right for its version."""
    shutil.copytree(run, "models/digits/1")
    shutil.copytree(run, "models/others/1")
    server = Server(athanor, "--models=models", "--poll-s", "0.05", "--model-control")
    check("2 models: digits, others" in server.first_line, server.first_line)
    until, loads = server.until, [Load(server, "digits"), Load(server, "others")]
    def answers(version):
        """Whether that version has answered, or a client has given up."""
        return loads[0].wrong or any(one == version for _, one, _ in list(loads[0].answers))
    until(lambda: answers("1"), "answer of version 1")
    wanted = {"1": expected, "2": expected_of_other, "4": expected}
    def add(version, source):
        shutil.copytree(source, f"new-{version}")
        pathlib.Path(f"new-{version}").rename(f"models/digits/{version}")
    add("2", other)
    until(lambda: newest(server, "digits") == 2, "version 2")
    until(lambda: answers("2"), "answer of version 2")
    pathlib.Path("damaged").mkdir()
    pathlib.Path("damaged/model.safetensors").write_bytes(pathlib.Path(run, "model.safetensors").read_bytes()[:-100])
    pathlib.Path("damaged").rename("models/digits/3")
    until(lambda: server.metric('athanor_model_failed_loads_total{model="digits"}') == 1, "refusal of version 3")
    check(newest(server, "digits") == 2, "a damaged version answers")
    server.wait_for_line(r"digits: version 3 cannot be used, and the model is unchanged: .*model\.safetensors")
    add("4", run)
    server.tell(signal.SIGHUP)
    until(lambda: newest(server, "digits") == 4, "version 4")
    until(lambda: answers("4"), "answer of version 4")
    code, _, text = server.ask("GET", "/v2/models/digits/versions/2")
    check(code == 404, f"version 2 is retired: {code} {text}")
    shutil.rmtree("models/digits/4")
    until(lambda: newest(server, "digits") == 2, "version 2 again")
    before = [len(load.answers) for load in loads]
    until(lambda: all(len(load.answers) > count + 20 or load.wrong for load, count in zip(loads, before)), "answers")
    for load in loads:
        load.stop()
        check(not load.wrong, f"changes of models have lost requests: {load.wrong}")
    for picture, version, row in loads[0].answers:
        check(near(row, wanted[version][picture]), f"version {version}, {picture}: {row}")
    check({version for _, version, _ in loads[0].answers} == set(wanted), "all versions must have answered")
    check(all(near(row, expected[picture]) for picture, _, row in loads[1].answers), "the other model has changed")
    # By request.
    index = json.loads(server.ask("POST", "/v2/repository/index", b"{}")[2])
    states = {(one["name"], one["version"]): one["state"] for one in index}
    check(states == {("digits", "2"): "READY", ("digits", "3"): "UNAVAILABLE", ("others", "1"): "READY"}, f"index: {index}")
    code, _, text = server.ask("POST", "/v2/repository/models/others/unload", b"")
    check(code == 200, f"unload: {code} {text}")
    time.sleep(0.2)  # several looks at the folder
    code, _, text = server.ask("GET", "/v2/models/others/ready")
    check(code == 503 and b"not loaded" in text, f"an unloaded model: {code} {text}")
    check(server.ask("GET", "/v2/health/ready")[0] == 200, "what is unloaded by request is not missed")
    ready = json.loads(server.ask("POST", "/v2/repository/index", b'{"ready": true}')[2])
    check([one["name"] for one in ready] == ["digits"], f"index of what is ready: {ready}")
    code, _, text = server.ask("POST", "/v2/repository/models/others/load", b"{}")
    check(code == 200 and server.ask("GET", "/v2/models/others/ready")[0] == 200, f"load: {code} {text}")
    code, _, text = server.ask("POST", "/v2/repository/models/nothing/load", b"")
    check(code == 404 and json.loads(text)["error"], f"load of nothing: {code} {text}")
    code, _, text = server.ask("POST", "/v2/repository/models/others/unload", b"", {"Origin": "https://example.org"})
    check(code == 403, f"a page of another site: {code} {text}")
    check(server.stop() == 0, "SIGTERM must end with 0")


def check_token():
    """Who has no token sees that the server is there, and its page."""
    pathlib.Path("token").write_text("s3cret\n", encoding="ascii")
    server = Server(athanor, run, "--token-file", "token", "--cors", "https://example.org")
    good, picture = {"Authorization": "Bearer s3cret"}, data[pictures[0]]
    for path in ("/", "/healthz", "/v2/health/live", "/v2/health/ready"):
        check(server.ask("GET", path)[0] == 200, f"{path} without the token")
    for method, path, body in (("POST", "/predict", picture), ("GET", "/metrics", None), ("GET", "/v2", None), ("GET", "/nothing", None), ("GET", "/healthz?model=x", None),
                               ("POST", "/v2/models/default/infer", b"{}"), ("POST", "/v2/repository/models/default/unload", b"")):
        for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"}):
            code, got, text = server.ask(method, path, body, headers)
            check(code == 401 and got["WWW-Authenticate"].startswith("Bearer") and "token" in json.loads(text)["error"], f"{path}: {code} {text}")
    check(server.ask("POST", "/predict", picture, good)[0] == 200 and server.ask("GET", "/v2", None, good)[0] == 200, "with the token")
    code, headers, _ = server.ask("OPTIONS", "/v2/models/default/infer", None, {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"})
    check(code == 204 and headers["Access-Control-Allow-Origin"] == "https://example.org" and "Authorization" in headers["Access-Control-Allow-Headers"]
          and headers["Access-Control-Allow-Methods"] == "POST, OPTIONS", f"what a browser asks first: {code} {headers}")
    check(server.stop() == 0, "SIGTERM must end with 0")


def check_start():
    """What cannot be served is one line and code 2."""
    pathlib.Path("empty").write_text("\n", encoding="ascii")
    for part, arguments in (("MODEL", []), ("--models", ["--models", "nowhere"]), ("two models", [f"a={run}", f"a={other}"]),
                            ("two models without a name; name each", [run, other]), ("'a b'", [f"a b={run}"]),
                            ("--token", [run, "--token", "a b"]), ("--token", [run, "--token", ""]),
                            ("--token-file", [run, "--token-file", "nowhere"]), ("--token-file", [run, "--token-file", ""]), ("--token-file", [run, "--token-file", "."]),
                            ("must hold a token, but is empty", [run, "--token-file", "empty"]), ("--versions", [run, "--versions", "0"])):
        ended = subprocess.run([athanor, "serve", *arguments], capture_output=True, text=True, timeout=600)
        lines = ended.stderr.splitlines()
        check(ended.returncode == 2 and len(lines) == 1 and part in lines[0] and not ended.stdout, f"{arguments}: {ended}")


def main():
    expected, expected_of_other = predicted(run), predicted(other)
    check(not near(expected[pictures[0]], expected_of_other[pictures[0]]), "both models say the same")
    check_one_model(expected)
    check_two_models(expected, expected_of_other)
    check_folder(expected, expected_of_other)
    check_token()
    check_start()
    for line in open("serve.err"):
        check(line.startswith("athanor serve: "), f"a line on stderr that is not ours: {line}")


main()
