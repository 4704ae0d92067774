"""serve_nginx.py ATHANOR RUN PICTURES NGINX_CONF: TLS and a token by nginx, as examples/serve/nginx.conf sets it up.

Of that file, addresses and names of files are replaced by those of this folder, and no line else. Needs nginx and openssl.
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

from serve_client import Server, multipart  # beside this file

athanor, run, pictures, recipe = sys.argv[1:5]
picture = sorted(pathlib.Path(pictures).glob("*.png"))[0].read_bytes()
here = pathlib.Path.cwd()


def check(condition, what):
    if not condition:
        sys.exit(f"{what}\n{open('serve.err').read()}{pathlib.Path('nginx.err').read_text() if pathlib.Path('nginx.err').exists() else ''}")


def replaced(text, old, new):
    check(text.count(old) == 1, f"the recipe must have {old!r} once")
    return text.replace(old, new)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main():
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=example.org",
                    "-addext", "subjectAltName=DNS:example.org"], check=True, capture_output=True)
    server, port = Server(athanor, run, "--token", "s3cret"), free_port()
    text = pathlib.Path(recipe).read_text(encoding="utf-8")
    text = replaced(text, "server 127.0.0.1:8080;", f"server 127.0.0.1:{server.port};")
    text = replaced(text, "listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;")
    text = replaced(text, "/etc/ssl/certs/example.org.pem", str(here / "cert.pem"))
    text = replaced(text, "/etc/ssl/private/example.org.key", str(here / "key.pem"))
    pathlib.Path("athanor.conf").write_text(text, encoding="utf-8")
    folders = "".join(f"  {name}_temp_path {here}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    pathlib.Path("nginx.conf").write_text(f"daemon off;\nmaster_process off;\npid {here}/nginx.pid;\nerror_log {here}/nginx.err;\nevents {{}}\nhttp {{\n  access_log off;\n"
                                          f"{folders}  include {here}/athanor.conf;\n}}\n", encoding="utf-8")
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    nginx = subprocess.Popen([program, "-p", str(here), "-e", str(here / "nginx.err"), "-c", str(here / "nginx.conf")])
    trust = ssl.create_default_context(cafile="cert.pem")

    def ask(method, path, body=None, token="s3cret", headers=None):
        sock = socket.create_connection(("127.0.0.1", port), timeout=120)
        connection = http.client.HTTPConnection("example.org")
        connection.sock = trust.wrap_socket(sock, server_hostname="example.org")
        try:
            connection.request(method, path, body=body, headers={**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    try:
        end = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                check(nginx.poll() is None and time.monotonic() < end, "nginx does not start")
                time.sleep(0.05)
        said = json.loads(ask("POST", "/predict", picture)[2])
        check(said == server_says(server), f"the answer through nginx: {said}")
        check(ask("POST", "/predict", picture, token=None)[0] == 401 and ask("POST", "/predict", picture, token="x")[0] == 401, "without the token")
        check(ask("GET", "/v2/health/ready", token=None)[0] == 200 and ask("GET", "/v2")[0] == 200, "the protocol through nginx")
        code, headers, text = ask("POST", "/v2/models/default/infer", *binary_request())
        length = int(headers["Inference-Header-Content-Length"])
        check(code == 200 and json.loads(text[:length])["outputs"][0]["parameters"]["binary_data_size"] == len(text) - length == 40, f"binary: {code} {text[:length]}")
        kind, body = multipart([("a.png", picture)] * 3)
        check(ask("POST", "/predict", body, headers={"Content-Type": kind})[0] == 200, "a form")
        check(ask("POST", "/predict", bytes(17 << 20))[0] == 413, "a body that is too large")
        check(ask("GET", "/metrics")[0] == 200, "figures from this machine")
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")
            check(re.match(rb"HTTP/1.1 400 ", plain.recv(1000)), "plain HTTP at the port of TLS")
    finally:
        nginx.send_signal(signal.SIGQUIT)
        nginx.wait(120)
    check(server.stop() == 0, "SIGTERM must end with 0")


def server_says(server):
    return json.loads(server.ask("POST", "/predict", picture, {"Authorization": "Bearer s3cret"})[2])


def binary_request():
    """(body, token, headers)"""
    tensor = bytes(64)
    text = json.dumps({"inputs": [{"name": "images", "datatype": "UINT8", "shape": [1, 8, 8, 1], "parameters": {"binary_data_size": 64}}],
                       "outputs": [{"name": "logits", "parameters": {"binary_data": True}}]}).encode()
    return text + tensor, "s3cret", {"Inference-Header-Content-Length": str(len(text))}


main()
