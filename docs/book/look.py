#!/usr/bin/env python3
"""Looks at the site in headless Chromium: look.py SITE FOLDER

Opens every page of the book, collects errors of the console, and tries what a reader does: search, the dark switch, a phone's
width, the copy button. Saves screenshots to FOLDER. Prints a line for each fault; the code is 1 where there is one.
"""

import base64
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import order  # noqa: E402

SHOTS = (("index", 1280, False), ("one_step_by_hand", 1280, False), ("matrix_product", 1280, True), ("the_ring", 390, False),
         ("half_the_bits", 390, True), ("index_of_terms", 390, False), ("teaching/exam", 1280, False), ("slides/stage01", 1280, False))
PATIENCE = 120  # seconds: for a machine that does much else


class Browser:
    """Chromium, spoken to through two pipes in the DevTools protocol."""

    def __init__(self, profile):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def pipes():
            # Copies first: either may lie where the other must go.
            reads, writes = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        flags = ["--headless", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run",
                 "--allow-file-access-from-files"] + (["--no-sandbox"] if os.geteuid() == 0 else [])
        self.process = subprocess.Popen(["chromium", *flags], preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.read_end, self.write_end, self.rest, self.number, self.session = ours_in, ours_out, b"", 0, None
        self.errors = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def message(self):
        while b"\0" not in self.rest:
            if not select.select([self.read_end], [], [], PATIENCE)[0]:
                raise TimeoutError("Chromium does not answer")
            piece = os.read(self.read_end, 1 << 16)
            if not piece:
                raise OSError("Chromium has ended")
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        found = json.loads(line)
        method, told = found.get("method"), found.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]).split("\n")[0] + " " + details.get("url", ""))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.errors.append(str([a.get("value", a.get("description")) for a in told["args"]]))
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(told["entry"]["text"] + " " + told["entry"].get("url", ""))
        return found

    def call(self, method, **params):
        self.number += 1
        sent = {"id": self.number, "method": method, "params": params}
        if self.session:
            sent["sessionId"] = self.session
        os.write(self.write_end, json.dumps(sent).encode() + b"\0")
        while True:
            found = self.message()
            if found.get("id") == self.number:
                if "error" in found:
                    raise OSError(f"{method}: {found['error']}")
                return found["result"]

    def open(self, page):
        self.call("Page.navigate", url=page)
        while self.message().get("method") != "Page.loadEventFired":
            pass

    def ask(self, code):
        return self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True, userGesture=True)["result"].get("value")

    def until(self, code):
        end = time.monotonic() + PATIENCE
        while not self.ask(code):
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def window(self, width, dark):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def shot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait()


def look_at_pages(browser, site):
    """Every page of the book, on a screen and on a phone."""
    pages = ["index"] + [page for _, listed in order.parts() for page in listed]
    for page in pages:
        for width in (1280, 390):
            browser.window(width, False)
            browser.open((site / f"{page}.html").as_uri())
            for error in browser.errors:
                yield f"{page}.html: {error}"
            browser.errors.clear()
            over = browser.ask("document.documentElement.scrollWidth - window.innerWidth")
            if over > 0:
                yield f"{page}.html: {over} pixels too wide for a window of {width}"
            broken = browser.ask("[...document.images].filter(i => i.loading !== 'lazy' && i.complete && i.naturalWidth === 0).map(i => i.src).join()")
            if broken:
                yield f"{page}.html: no such picture: {broken}"


def try_out(browser, site, folder):
    browser.window(1280, False)
    browser.open((site / "search.html").as_uri() + "?q=Winograd")
    if not browser.until("document.querySelectorAll('#search-results li a').length >= 3"):
        yield "search.html: a search for Winograd finds fewer than 3 pages"
    browser.shot(folder / "search.png")
    browser.open((site / "autograd.html").as_uri())
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.window(1280, True)
    dark = browser.ask(paper)
    browser.window(1280, False)
    if dark == browser.ask(paper):
        yield "autograd.html: a system that prefers dark gets a light page"
    papers = set()
    for _ in range(3):  # automatic, dark, light
        papers.add(browser.ask(paper))
        browser.ask("document.querySelector('.theme-toggle').click()")
    if len(papers) != 2:
        yield f"autograd.html: the switch must change light to dark, but shows {papers}"
    browser.ask("document.body.dataset.theme = 'auto'; localStorage.removeItem('theme')")
    if not browser.until("document.querySelectorAll('button.copybtn').length > 0"):
        yield "autograd.html: no block has a copy button"
    else:
        browser.ask("document.querySelector('button.copybtn').click()")
        if not browser.until("document.querySelector('button.copybtn').classList.contains('success')"):
            yield "autograd.html: the copy button copies nothing"
    for page, width, dark in SHOTS:
        browser.window(width, dark)
        browser.open((site / f"{page}.html").as_uri())
        browser.shot(folder / f"{page.replace('/', '_')}_{width}{'_dark' if dark else ''}.png")
    for error in browser.errors:
        yield f"console: {error}"


def main():
    if len(sys.argv) != 3 or not pathlib.Path(sys.argv[1], "index.html").is_file():
        print("look.py: usage: look.py SITE FOLDER, where SITE is what scripts/book.sh builds", file=sys.stderr)
        return 2
    site, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    faults = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            for fault in (*look_at_pages(browser, site), *try_out(browser, site, folder)):
                faults.append(fault)
                print(fault)
        finally:
            browser.close()
    print(f"{folder}: {len(list(folder.glob('*.png')))} screenshots, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
