"""tool_serve.py ATHANOR RUN OTHER_RUN PICTURES: athanor serve answers what athanor predict says, and survives its clients.

RUN is a model of the digits, OTHER_RUN another one; PICTURES a folder of PNGs of digits. Works in the current folder.
"""
import concurrent.futures
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from serve_client import Server, multipart, png_bytes  # beside this file

athanor, run, other = sys.argv[1:4]
pictures = sorted(pathlib.Path(sys.argv[4]).glob("*.png"))
data = {picture: picture.read_bytes() for picture in pictures}
TOLERANCE = 2e-6  # of a probability: batches of other sizes round otherwise


def predicted(model, top=3):
    """What athanor predict says of each picture, alone."""
    said = {}
    for picture in pictures[:8]:
        line = subprocess.check_output([athanor, "predict", model, str(picture), "--top", str(top), "--json", "--batch-size", "1"])
        said[picture] = json.loads(line)["top"]
    lines = subprocess.check_output([athanor, "predict", model, *map(str, pictures), "--top", str(top), "--json"]).splitlines()
    for picture, line in zip(pictures, lines):
        said.setdefault(picture, json.loads(line)["top"])
    return said


def same(a, b):
    return len(a) == len(b) and all(
        x["class"] == y["class"] and x["index"] == y["index"] and abs(x["probability"] - y["probability"]) <= TOLERANCE for x, y in zip(a, b))


def check(condition, what):
    if not condition:
        sys.exit(f"{what}\n{open('serve.err').read()}")


def check_answers(server, expected):
    # One at a time: bit for bit.
    for picture in pictures[:8]:
        code, said = server.predict(data[picture])
        check(code == 200 and said == {"image": None, "top": expected[picture]}, f"{picture}: {said} instead of {expected[picture]}")
    # Many at once, by both ways of sending.
    def ask(picture):
        kind, body = multipart([(picture.name, data[picture])])
        return picture, server.predict(body, content_type=kind)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for picture, (code, said) in pool.map(ask, pictures):
            check(code == 200 and said["image"] == picture.name and same(said["top"], expected[picture]), f"{picture}: {said}")
    check(server.metric("athanor_batch_images_count") < server.metric("athanor_batch_images_sum"), "no two images shared a batch")
    # Several in a request, in their order; a broken one among them has an error of its own.
    kind, body = multipart([("a.png", data[pictures[0]]), ("b.png", b"no picture"), ("ü.png", data[pictures[1]])])
    code, said = server.predict(body, content_type=kind)
    first, broken, last = said["images"]
    check(code == 200 and same(first["top"], expected[pictures[0]]) and same(last["top"], expected[pictures[1]]), f"several: {said}")
    check(last["image"] == "ü.png" and broken["image"] == "b.png" and "top" not in broken and broken["error"], f"several: {said}")
    check(len(server.predict(data[pictures[0]], top=1)[1]["top"]) == 1, "top=1")
    check(len(server.predict(data[pictures[0]], top=99)[1]["top"]) == 10, "top=99 gives all ten classes")


def check_refusals(server):
    def refused(code, part, method, path, body=None, headers=None):
        got, answer_headers, text = server.ask(method, path, body, headers)
        check(got == code and part in json.loads(text)["error"], f"{method} {path}: expected {code} and {part!r}, but got {got} {text}")
        return answer_headers
    refused(404, "/predict", "GET", "/nothing")
    check(refused(405, "takes POST", "GET", "/predict")["Allow"] == "POST, OPTIONS", "405 must name methods")
    check(refused(405, "takes GET", "POST", "/metrics", b"x")["Allow"] == "GET, HEAD, OPTIONS", "405 must name methods")
    code, headers, text = server.ask("OPTIONS", "/predict", None, {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"})
    check(code == 204 and text == b"" and headers["Allow"] == "POST, OPTIONS", f"OPTIONS: {code} {headers}")
    check(not [name for name in headers if name.startswith("Access-Control")], "without --allow-origin no other site may read")
    refused(405, "takes GET", "DELETE", "/")
    refused(400, "is empty", "POST", "/predict", b"")
    refused(400, "must be a JPEG, PNG or WebP, but is text", "POST", "/predict", b"no picture")
    refused(400, "jpeg", "POST", "/predict", b"\xff\xd8\xff" + os.urandom(500))
    refused(400, "", "POST", "/predict", data[pictures[0]][:60])
    refused(400, "heif-convert", "POST", "/predict", b"\0\0\0\x18ftypheic" + bytes(50))
    refused(400, "megapixels", "POST", "/predict", png_bytes(9000, 9000, b""))
    refused(400, "", "POST", "/predict", png_bytes(65535, 65535, b""))
    refused(400, "top", "POST", "/predict?top=0", data[pictures[0]])
    refused(400, "top", "POST", "/predict?top=many", data[pictures[0]])
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    refused(400, "must end with its boundary", "POST", "/predict", b"--x\r\nContent-Disposition: form-data; name=file\r\n\r\nabc", kind)
    refused(400, "there must be a file", "POST", "/predict", b"--x--\r\n", kind)
    refused(400, "boundary", "POST", "/predict", b"--x--\r\n", {"Content-Type": "multipart/form-data"})
    # Too large, with a length and in chunks.
    refused(413, "at most 1000000 bytes", "POST", "/predict", bytes(1_000_001))
    refused(413, "at most 1000000 bytes", "POST", "/predict", iter([bytes(400_000)] * 3))
    code, _, text = server.ask("GET", "/")
    check(code == 200 and b"What is in this picture?" in text, "the page")
    code, headers, text = server.ask("HEAD", "/")
    check(code == 200 and text == b"" and int(headers["Content-Length"]) > 1000, "HEAD of the page")
    health = json.loads(server.ask("GET", "/healthz")[2])
    check(health["status"] == "ok" and health["classes"] == 10 and health["images"] == [8, 8, 1], f"/healthz: {health}")
    check(server.metric('athanor_requests_total{code="413"}') == 2, "/metrics does not count what was refused")


def check_protocol(server):
    body = data[pictures[0]]
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    # Whoever asks first is told to go on, or not to.
    with socket.create_connection((server.host, server.port), timeout=120) as client:
        client.sendall((head + "Expect: 100-continue\r\nConnection: close\r\n\r\n").encode())
        check(client.recv(1000).startswith(b"HTTP/1.1 100 "), "Expect: 100-continue")
        client.sendall(body)
        check(b" 200 OK" in client.recv(100_000), "behind 100 Continue")
    text = server.raw(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")
    check(text.startswith(b"HTTP/1.1 413 "), f"a body that is too large must not be asked for: {text[:100]}")
    # Two requests in one piece are two answers; garbage behind one is not.
    both = (head + "\r\n").encode() + body + (head + "Connection: close\r\n\r\n").encode() + body
    check(server.raw(both).count(b'{"image":null,"top":') == 2, "two requests in one piece")
    text = server.raw((head + "\r\n").encode() + body + os.urandom(3000).replace(b"\r", b"") + b"\r\n\r\n\r\n")
    check(text.startswith(b"HTTP/1.1 200 "), "garbage behind a request")
    # Headers without end, without sense, too large.
    all_bad = (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", b"GET /" + b"a" * 200_000, os.urandom(5000) + b"\r\n\r\n",
               b"\0" * 5000 + b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
               b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"GET / HTTP/9.9\r\n\r\n")
    with concurrent.futures.ThreadPoolExecutor(len(all_bad)) as pool:
        for bad, text in zip(all_bad, pool.map(server.raw, all_bad)):
            check(not text or b" 4" in text[:14] or b" 5" in text[:14], f"{bad[:40]}: {text[:100]}")
    check_strict(server)
    # A client that goes away while it is being answered, and one in the middle of its body.
    for _ in range(20):
        for part in (both, both[: len(head) + 40]):
            with socket.create_connection((server.host, server.port)) as client:
                client.sendall(part)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def check_strict(server):
    """A head that readers understand in different ways is refused, and what follows it is not a request."""
    host, end = b"Host: x\r\n", b"\r\n"
    hidden = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    line, chunks = b"POST /predict HTTP/1.1\r\n" + host, b"0\r\n\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"
    heads = [
        line + b"Content-Length: 5\r\nContent-Length: 0\r\n" + end + b"abcde", line + b"Content-Length: 0\r\nContent-Length: 0\r\n" + end,
        line + b"Content-Length: 5\r\n" + chunked + end + chunks, line + chunked + chunked + end + chunks,
        line + b"Transfer-Encoding: xchunked\r\n" + end, line + b"Transfer-Encoding: gzip, chunked\r\n" + end + chunks,
        b"POST /predict HTTP/1.0\r\n" + host + chunked + end + chunks,
        *[line + b"Content-Length: " + length + end + end for length in (b"-1", b"+1", b"x", b"", b"0, 0", b"0x0", b"1 ")],
        b"GET /healthz%00.png HTTP/1.1\r\n" + host + end, b"GET /healthz\0.png HTTP/1.1\r\n" + host + end,
        b"GET /healthz?a=%00 HTTP/1.1\r\n" + host + end, b"GET /healthz x HTTP/1.1\r\n" + host + end,
        *[b"GET /healthz HTTP/1.1\r\n" + host + field + end + end for field in (
            b"X: a\r\n b", b"X: a\r\n\tb", b"X: a\r\n ", b"X: a\0b", b"X\0: a", b"X : a", b"X\t: a", b": a", b"X: a\rb: c", b"X: a\1", b"Host: y",
            b"Transfer-Encoding:\r\n chunked", b"Content-Length : 5", b"Content-Length: 0\0\r\nX: a")],
        *[method + b" /healthz HTTP/1.1\r\n" + host + end for method in (b"G\xffT", b"GET\1", b"(GET)", b"G(T")],
        b"GET /healthz HTTP/1.1\r\n Host: x\r\n" + end, b"GET /healthz HTTP/1.1\r\n" + end, b"GET /healthz HTTP/1.1\nHost: x\n\n",
        *[b"GET /healthz HTTP/1.1\r\nHost: " + name + end + end for name in (b"x, y", b"x y", b"x/y", b"y@x")]]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for head, text in zip(heads, pool.map(lambda head: server.raw(head + hidden), heads)):
            check(text.startswith(b"HTTP/1.1 400 ") and b"generation" not in text, f"{head}: {text[:200]}")
    # Chunks may end elsewhere for a proxy, so nothing after them is a request.
    for chunks in (b"5\nhello\n0\n\n", b"5\r\nhello\r\n0\r\n\r\n"):
        text = server.raw(line + chunked + end + chunks + hidden)
        check(text.startswith(b"HTTP/1.1 400 ") and b"generation" not in text, f"{chunks}: {text[:200]}")
    # What is unusual but has one meaning.
    for head in (b"GET /healthz HTTP/1.0\r\n\r\n", b"GET /h%65althz?a=b HTTP/1.1\r\nHOST:x\r\nConnection:\tclose\r\nCookie: a=b; c\r\nX:\r\nY:  z \r\n\r\n"):
        text = server.raw(head)
        check(text.startswith(b"HTTP/1.1 200 "), f"{head}: {text[:200]}")


def check_sites():
    """Pages of named sites may read the answers, errors too."""
    server = Server(athanor, run, "--allow-origin", "HTTPS://Example.org:443", "--allow-origin", "http://localhost:3000")
    for origin, allowed in (("https://example.org", True), ("http://localhost:3000", True), ("https://example.com", False)):
        for method, path, body in (("OPTIONS", "/predict", None), ("POST", "/predict", b"no picture"), ("GET", "/nothing", None)):
            headers = server.ask(method, path, body, {"Origin": origin})[1]
            check(headers["Access-Control-Allow-Origin"] == (origin if allowed else None) and headers["Vary"] == "Origin", f"{origin} {method}: {headers}")
            asked = headers["Access-Control-Allow-Methods"]
            check(asked == ("POST, OPTIONS" if allowed and method == "OPTIONS" else None), f"{origin} {method}: {headers}")
    check(server.stop() == 0, "the end")
    server = Server(athanor, run, "--allow-origin", "*")
    check(server.ask("GET", "/healthz", None, {"Origin": "null"})[1]["Access-Control-Allow-Origin"] == "*", "* allows all")
    check(server.stop() == 0, "the end")


def asked_until_refused(server, ask, number, least=1):
    """The codes of rounds of `number` requests at once, until `least` found the queue full: a fast server may empty it in time."""
    codes = []
    def refused():
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            codes.extend(pool.map(ask, range(number)))
        return codes.count(503) >= least
    server.until(refused, "full queue")
    return codes


def check_large_images():
    """Pixels count before they are decoded; a large image does not make a small one wait for all of its request."""
    large = png_bytes(2000, 1000, b"".join(b"\0" + bytes(2000) for _ in range(1000)))
    server = Server(athanor, run, "--max-queue-megapixels", "20", "--threads", "1", "--deadline-s", "60")
    kind, body = multipart([("a.png", large)] * 11)
    code, _, text = server.ask("POST", "/predict", body, {"Content-Type": kind})
    check(code == 413 and b"20 megapixels" in text, f"22 megapixels: {code} {text}")
    kind, body = multipart([("a.png", large)] * 8)
    def ask(_):
        code, headers, _ = server.ask("POST", "/predict", body, {"Content-Type": kind})
        check(code == 200 or (code == 503 and headers["Retry-After"]), f"16 megapixels: {code}")
        return code
    codes = asked_until_refused(server, ask, 16)
    check(codes.count(200) >= 1, f"{codes}")
    check(server.predict(data[pictures[0]])[0] == 200 and server.stop() == 0, "after large images")
    server = Server(athanor, run, "--deadline-s", "0.001", "--threads", "1")
    kind, body = multipart([("a.png", large)] * 8)
    code, headers, text = server.ask("POST", "/predict", body, {"Content-Type": kind})
    check(code == 503 and headers["Retry-After"] and b"0.001 s" in text, f"a late request: {code} {text}")
    limit = str(int(server.metric("process_resident_memory_bytes")) + (64 << 20))
    check(server.stop() == 0, "the end")
    server = Server(athanor, run, "--memory-limit", limit, "--max-megapixels", "100")
    code, _, text = server.ask("POST", "/predict", png_bytes(9000, 9000, b""))
    check(code == 413 and b"MB" in text, f"an image beyond the limit: {code} {text}")
    check(server.predict(large)[0] == 200 and server.stop() == 0, "an image within the limit")


def check_slow():
    """Slow clients are told so, whether silent or one byte at a time, and closed; meanwhile others are answered."""
    server = Server(athanor, run, "--timeout-s", "2.5")
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    def dribble():
        with socket.create_connection((server.host, server.port), timeout=120) as client:
            client.sendall(head)
            try:
                for _ in range(5000):
                    client.sendall(b"\0")
                    time.sleep(0.02)
            except (BrokenPipeError, ConnectionResetError):
                return "ended"
        return "a body byte by byte was not ended"
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        silent, headers, idle, dribbling = [pool.submit(server.raw, text) for text in (head + b"x", b"GET / HT", b"")] + [pool.submit(dribble)]
        check(server.predict(data[pictures[0]])[0] == 200, "beside slow clients")
        text = silent.result()
        check(text.startswith(b"HTTP/1.1 408 ") and b"did not come in time" in text, f"a slow body: {text[:100]}")
        check(headers.result() == b"" and idle.result() == b"", "slow headers, and idle connections, must end")
        check(dribbling.result() == "ended", dribbling.result())
    check(time.monotonic() - began >= 2.4, f"slow clients were given {time.monotonic() - began} s")
    check(server.metric('athanor_requests_total{code="408"}') == 2, "two slow bodies are not counted")
    check(server.stop() == 0, "the end behind slow clients")


class Load:
    """Clients that ask without pause until stopped; each answer must be one of `allowed`."""

    def __init__(self, server, clients=8):
        self.server, self.stopped, self.answers, self.wrong = server, False, [], []
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def ask(self, number):
        connection = self.server.connect()
        while not self.stopped:
            picture = pictures[(number + len(self.answers)) % len(pictures)]
            try:
                connection.request("POST", "/predict", body=data[picture])
                answer = connection.getresponse()
                said = json.loads(answer.read())
                self.answers.append((picture, said["top"]))
            except Exception as error:  # pylint: disable=broad-except
                self.wrong.append(repr(error))
                return
        connection.close()

    def stop(self):
        self.stopped = True
        for thread in self.threads:
            thread.join(120)


def check_reload(expected, expected_of_other):
    """The link points elsewhere, then to nothing: no request is lost, and each is answered by one of both models."""
    link = pathlib.Path("latest")
    link.symlink_to(pathlib.Path(run).resolve())
    server = Server(athanor, link, "--drain-s", "600", "--timeout-s", "600")
    load = Load(server)
    for number in range(1, 6):
        link.unlink()
        link.symlink_to(pathlib.Path(other if number % 2 else run).resolve())
        before = len(load.answers)
        server.tell(signal.SIGHUP)
        server.wait_for_line(r"loaded digits_cnn of latest", number)
        while len(load.answers) < before + 50 and not load.wrong:
            time.sleep(0.01)
    link.unlink()
    server.tell(signal.SIGHUP)
    server.wait_for_line(r"the model is unchanged: .*latest")
    load.stop()
    check(not load.wrong, f"SIGHUP has lost requests: {load.wrong}")
    of_old = sum(same(top, expected[picture]) for picture, top in load.answers)
    of_new = sum(same(top, expected_of_other[picture]) for picture, top in load.answers)
    check(of_old > 20 and of_new > 20 and of_old + of_new >= len(load.answers), f"{of_old} + {of_new} of {len(load.answers)} are right")
    check(same(server.predict(data[pictures[0]])[1]["top"], expected_of_other[pictures[0]]), "the newest model does not answer")
    check(server.metric("athanor_reloads_total") == 5 and server.metric("athanor_failed_reloads_total") == 1, "reloads are not counted")
    return server


def check_crowd():
    """Clients that keep their connections open leave room for others: none waits until they time out."""
    server = Server(athanor, run, "--max-connections", "8", "--timeout-s", "600")
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data[pictures[0]])}\r\n\r\n".encode()
    kept = []
    for number in range(24):
        client = socket.create_connection((server.host, server.port), timeout=120)
        client.sendall(head + data[pictures[0]])
        check(client.recv(65536).startswith(b"HTTP/1.1 200 "), f"client {number} must be answered")
        kept.append(client)
    for client in kept:
        client.close()
    check(server.stop() == 0, "SIGTERM must end with 0")


def check_end(server):
    """SIGTERM while requests are in flight: all that has come is answered, and the port is free at once."""
    body = data[pictures[0]]
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    clients = [socket.create_connection((server.host, server.port), timeout=120) for _ in range(40)]
    for number, client in enumerate(clients):
        client.sendall(head + (body if number % 2 else body[:20]))
    idle = socket.create_connection((server.host, server.port))
    # All 41, and the one that asks; of the requests the halves, and the question.
    server.until(lambda: server.metric("athanor_connections") >= 42 and server.metric("athanor_active_requests") >= 21, "requests in flight")
    server.tell(signal.SIGTERM)
    server.until(lambda: not server.accepts(), "end of new connections")
    for number, client in enumerate(clients):
        if number % 2 == 0:
            client.sendall(body[20:])
    for client in clients:
        text = b""
        while piece := client.recv(65536):
            text += piece
        check(text.startswith(b"HTTP/1.1 200 ") and b'"top":' in text, f"in flight at SIGTERM: {text[:100]}")
    idle.close()
    check(server.process.wait(120) == 0, "SIGTERM must end with 0")
    again = Server(athanor, run, port=server.port)
    check(again.predict(body)[0] == 200, "after a restart on the same port")
    return again


def ask_half(server, client):
    """A request of which the last bytes do not come; it and the question are under way afterwards."""
    client.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n1")
    server.until(lambda: server.metric("athanor_active_requests") >= 2, "request under way")


def check_signals():
    """SIGINT ends as SIGTERM does; while a slow client is waited for, a second one ends at once."""
    server = Server(athanor, run)
    check(server.stop(signal.SIGINT) == 0, "SIGINT must end with 0")
    server = Server(athanor, run, "--drain-s", "600", "--timeout-s", "600")
    with socket.create_connection((server.host, server.port)) as slow:
        ask_half(server, slow)
        server.tell(signal.SIGINT)
        server.until(lambda: not server.accepts(), "end of new connections")
        time.sleep(0.3)
        check(server.process.poll() is None, "a request is under way, and the server does not wait for it")
        check(server.stop(signal.SIGINT) == 130, "a second SIGINT must end at once")
    server = Server(athanor, run, "--drain-s", "0.5", "--timeout-s", "600")
    with socket.create_connection((server.host, server.port)) as slow:
        ask_half(server, slow)
        check(server.stop(signal.SIGTERM) == 0, "a slow client must not hold up the end")


def check_start(server):
    """What cannot be served is one line and code 2."""
    for part, arguments in (("in use", [run, "--port", str(server.port)]), ("--host", [run, "--host", "203.0.113.7", "--port", "0"]),
                            ("--host", [run, "--host", "no such host"]), ("nowhere", ["nowhere"]), ("--port", [run, "--port", "70000"]),
                            ("--max-batch", [run, "--max-batch", "0"]), ("--memory-limit", [run, "--memory-limit", "1M"]),
                            ("--allow-origin", [run, "--allow-origin", "https://example.org/"]), ("--allow-origin", [run, "--allow-origin", "https://*.example.org"]), ("--max-connections", [run, "--max-connections", "99999999"])):
        ended = subprocess.run([athanor, "serve", *arguments], capture_output=True, text=True, timeout=600)
        lines = ended.stderr.splitlines()
        check(ended.returncode == 2 and len(lines) == 1 and part in lines[0] and not ended.stdout, f"{arguments}: {ended}")
    every = Server(athanor, run, "--host", "0.0.0.0", err="every.err")
    check(every.first_line.startswith("http://0.0.0.0:") and "digits_cnn of" in every.first_line and "10 classes" in every.first_line, every.first_line)
    check(every.stop() == 0 and open("every.err").read().count("warning: other machines can reach this address") == 1, "0.0.0.0 must warn")


def check_queue():
    """More than fits is refused, and nothing that was taken is lost."""
    server = Server(athanor, run, "--max-queue", "4", "--max-batch", "1")
    kind, body = multipart([(picture.name, data[picture]) for picture in pictures[:4]])
    def ask(_):
        code, headers, text = server.ask("POST", "/predict", body, {"Content-Type": kind})
        check(code == 200 or (code == 503 and headers["Retry-After"] == "1" and "queue is full" in json.loads(text)["error"]), f"{code} {text}")
        return code
    codes = asked_until_refused(server, ask, 64, least=2)
    check(codes.count(200) >= 2, f"{codes.count(200)} answered, {codes.count(503)} refused")
    kind, body = multipart([(picture.name, data[picture]) for picture in pictures[:6]])
    check(server.predict(body, content_type=kind)[0] == 200, "a request larger than the queue, alone")
    check(server.stop() == 0, "the end behind a full queue")


def main():
    expected, expected_of_other = predicted(run), predicted(other)
    check(not same(expected[pictures[0]], expected_of_other[pictures[0]]), "both models say the same")
    server = Server(athanor, run, "--max-body-mb", "1", "--timeout-s", "20")
    check_answers(server, expected)
    check_refusals(server)
    check_protocol(server)
    check_start(server)
    check(server.stop() == 0, "SIGTERM must end with 0")
    check_slow()
    server = check_reload(expected, expected_of_other)
    server = check_end(server)
    check(server.stop() == 0, "SIGTERM must end with 0")
    check_signals()
    check_crowd()
    check_queue()
    check_sites()
    check_large_images()
    for line in open("serve.err"):
        check(line.startswith("athanor serve: "), f"a line on stderr that is not ours: {line}")


main()
