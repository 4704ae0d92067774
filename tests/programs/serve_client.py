"""What the tests and benchmarks of athanor serve share: a server as a process, requests by the standard library, pictures."""
import http.client
import json
import re
import signal
import socket
import struct
import subprocess
import time
import zlib


def png(rows):
    """Bytes of a PNG of 8-bit grey."""
    return png_bytes(len(rows[0]), len(rows), b"".join(b"\0" + bytes(row) for row in rows))


def png_bytes(width, height, scanlines):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(scanlines)) + chunk(b"IEND", b"")


def pixels_of(png):
    """The 64 bytes of a PNG of 8 x 8, grey, whose lines are not filtered."""
    at, lines = 8, b""
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            lines += png[at + 8 : at + 8 + size]
        at += size + 12
    lines = zlib.decompress(lines)
    return b"".join(lines[9 * y + 1 : 9 * y + 9] for y in range(8))


def multipart(files, boundary="the-boundary"):
    """(content type, body) of files [(name, bytes)]."""
    body = b""
    for name, data in files:
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'.encode()
        body += b"Content-Type: application/octet-stream\r\n\r\n" + data + b"\r\n"
    return f"multipart/form-data; boundary={boundary}", body + f"--{boundary}--\r\n".encode()


class Server:
    """athanor serve MODEL FLAGS..., until it has said where it listens. Or another PROGRAM COMMAND MODEL FLAGS... like it."""

    def __init__(self, athanor, model, *flags, port=0, err="serve.err", command="serve"):
        self.err = err
        command = [str(athanor), str(command), str(model), "--port", str(port), *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(err, "a"), text=True)
        self.first_line = self.process.stdout.readline()
        found = re.match(r"http://([\d.]+):(\d+)/: ", self.first_line)
        if not found:
            raise RuntimeError(f"no first line, but {self.first_line!r}: {open(err).read()}")
        self.host, self.port = found[1], int(found[2])

    def connect(self, timeout=120):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None):
        """(code, headers, bytes) over a connection of its own."""
        connection = self.connect()
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def predict(self, data, top=None, content_type=None):
        """(code, JSON)"""
        headers = {"Content-Type": content_type} if content_type else {}
        code, _, text = self.ask("POST", "/predict" + (f"?top={top}" if top else ""), data, headers)
        return code, json.loads(text)

    def raw(self, data, timeout=120):
        """All that comes back for these bytes until the server closes; b"" too where it does so at once."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as client:
            received = b""
            try:
                client.sendall(data)
                while piece := client.recv(65536):
                    received += piece
            except (ConnectionResetError, BrokenPipeError):
                pass
            return received

    def metric(self, name):
        text = self.ask("GET", "/metrics")[2].decode()
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])

    def resident_kb(self):
        return int(re.search(r"VmRSS:\s*(\d+)", open(f"/proc/{self.process.pid}/status").read())[1])

    def all_resident_kb(self):
        """With the processes that it has started."""
        def of(pid):
            try:
                kb = int(re.search(r"VmRSS:\s*(\d+)", open(f"/proc/{pid}/status").read())[1])
                return kb + sum(of(child) for child in open(f"/proc/{pid}/task/{pid}/children").read().split())
            except (OSError, TypeError):  # it has ended
                return 0
        return of(self.process.pid)

    def tell(self, number):
        self.process.send_signal(number)

    def until(self, condition, what, seconds=120):
        """Waits for what must come, however slow the machine is."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"no {what} within {seconds} s: {open(self.err).read()}")
            time.sleep(0.01)

    def wait_for_line(self, pattern, times=1):
        """Until so many lines of stderr match."""
        self.until(lambda: len(re.findall(pattern, open(self.err).read(), re.M)) >= times, f"line like {pattern!r}")

    def accepts(self):
        """Whether a new connection is taken."""
        try:
            socket.create_connection((self.host, self.port)).close()
            return True
        except OSError:
            return False

    def stop(self, number=signal.SIGTERM, seconds=120):
        """Its exit code."""
        if self.process.poll() is None:
            self.tell(number)
        code = self.process.wait(seconds)
        self.process.stdout.close()
        return code
