"""A program under limits of time and memory, without network, whose whole session ends with it."""
import functools
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import time

PAGE, TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
MOST_OUTPUT = 20_000  # characters; a test that prints more has its beginning and end shown


@functools.cache
def no_network():
    """What to put before a command so that it has no network; empty where the system does not let us."""
    command = shutil.which("unshare")
    if not command:
        return ()
    prefix = (command, "--user", "--map-root-user", "--net", "--")
    works = subprocess.run([*prefix, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    return prefix if works else ()


def members(session):
    """Processes of a session, the bytes they have in memory, and the seconds that they have computed."""
    ids, resident, ticks = [], 0, 0
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == session and fields[0] != "Z":
                ids.append(int(entry.name))
                resident += int(fields[21]) * PAGE
                ticks += sum(map(int, fields[11:15]))  # of itself and of children that have ended
        except (OSError, IndexError, ValueError):
            continue  # it has ended
    return ids, resident, ticks / TICKS


def end(session):
    for process in members(session)[0]:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


def prepare():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))


def read(file):
    file.seek(0)
    text = file.read().decode(errors="replace")
    half = MOST_OUTPUT // 2
    return text if len(text) <= MOST_OUTPUT else f"{text[:half]}\n[...]\n{text[-half:]}"


class Ran:
    """rc: the exit code, negative for a signal; why: "" or the limit that ended it, in words."""

    def __init__(self, rc, output, why):
        self.rc, self.output, self.why = rc, output, why


def broken_limit(session, seconds, megabytes):
    _, resident, computed = members(session)
    if computed > seconds:
        return f"it had not ended after {seconds} s of computing"
    return f"it used more than {megabytes} MB of memory" if resident > megabytes << 20 else ""


def run(command, cwd, seconds, megabytes, environment=None, wall=None):
    """Ends a command that has computed for `seconds`, or by default three times as long by the clock: other work on the machine
    must not cost points."""
    wall = wall or 3 * seconds
    deadline, why = time.monotonic() + wall, ""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([*no_network(), *command], cwd=cwd, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})},
                                   start_new_session=True, preexec_fn=prepare)
        try:
            while process.poll() is None and not why:
                why = f"it had not ended after {wall:.0f} s" if time.monotonic() > deadline else broken_limit(
                    process.pid, seconds, megabytes)
                if not why:
                    try:
                        process.wait(0.05)
                    except subprocess.TimeoutExpired:
                        pass
        finally:
            end(process.pid)
            process.wait()
        return Ran(process.returncode, read(output), why)
