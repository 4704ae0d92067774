"""Runs the tests of an exercise on a student's files, each test apart, and counts points."""
import dataclasses
import json
import os
import re
import subprocess
import tempfile
import time
import pathlib

from . import compiling, limits
from .compiling import lab_environment
from .description import UserError


@dataclasses.dataclass
class Outcome:
    name: str
    points: int
    passed: bool
    output: str


@dataclasses.dataclass
class Grade:
    outcomes: list
    seconds: float
    remarks: str = ""  # about all of it: warnings of the compiler

    @property
    def points(self):
        return sum(outcome.points for outcome in self.outcomes if outcome.passed)


def grade(root, exercise, work):
    """The grade of the files in `work`. Throws UserError if one is missing."""
    with tempfile.TemporaryDirectory(prefix="exercise-") as name:
        stage = pathlib.Path(name)
        exercise.stage(work, stage)
        if exercise.kind == "lab":
            build_emulator(root)
        begin = time.monotonic()
        outcomes, remarks = (grade_kernel if exercise.kind == "lab" else grade_program)(root, exercise, stage)
        return Grade(outcomes, time.monotonic() - begin, remarks)


def none_passed(exercise, why):
    return [Outcome(test.name, test.points, False, why) for test in exercise.tests]


# Programs.

def grade_program(root, exercise, stage):
    try:
        program, warnings = compiling.compile_tests(root, exercise, stage)
    except compiling.DoesNotCompile as error:
        return none_passed(exercise, str(error).replace(f"{stage}/", "")), ""
    deadline = time.monotonic() + exercise.all_seconds
    outcomes = [run_test(exercise, program, test, deadline) for test in exercise.tests]
    return outcomes, warnings.replace(f"{stage}/", "")


def run_test(exercise, program, test, deadline):
    with tempfile.TemporaryDirectory(prefix="exercise-run-") as name:
        report = pathlib.Path(name) / "report.json"
        exercise.data_into(pathlib.Path(name))
        wall = min(exercise.wall_times * exercise.seconds, max(1, deadline - time.monotonic()))
        ran = limits.run([str(program), f"--gtest_filter={test.name}", f"--gtest_output=json:{report}"], name, exercise.seconds,
                         exercise.megabytes, {"HOME": name, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}, wall)
        return judge(test, ran, report)


def judge(test, ran, report):
    def failed(why):
        return Outcome(test.name, test.points, False, why)

    if ran.why:
        return failed(f"the test was ended: {ran.why}")
    if ran.rc < 0:
        return failed(f"the program crashed with signal {-ran.rc} ({signal_name(-ran.rc)})\n{tail(without_banner(ran.output))}".rstrip())
    try:
        cases = [case for suite in json.loads(report.read_text(errors="replace"))["testsuites"] for case in suite["testsuite"]]
    except (OSError, ValueError, KeyError):
        return failed(f"the program ended with code {ran.rc} before the test had\n{tail(without_banner(ran.output))}".rstrip())
    cases = [case for case in cases if f"{case['classname']}.{case['name']}" == test.name]
    if len(cases) != 1 or cases[0].get("result") != "COMPLETED":
        return failed(f"the test did not run: {test.name}")
    failures = [plain(failure["failure"]) for failure in cases[0].get("failures", [])]
    if failures or ran.rc != 0:
        return failed("\n".join(failures) or f"the program ended with code {ran.rc}")
    return Outcome(test.name, test.points, True, "")


def signal_name(number):
    names = {4: "illegal instruction", 6: "abort: an assertion or an uncaught exception", 8: "division by zero",
             9: "killed", 11: "memory that is not the program's, or a recursion too deep", 25: "a file that is too large"}
    return names.get(number, "see man 7 signal")


def plain(failure):
    """Without the place in the tests, which the student's folder has, too, under another path."""
    first, _, rest = failure.partition("\n")
    return rest if re.match(r".*:\d+$", first) else failure


def without_banner(output):
    """Without the lines that GoogleTest prints before a test."""
    banner = re.compile(r"Running main\(\) from |Note: Google Test filter = |\[[-= ]{10}\] |\[ RUN      \] ")
    return "\n".join(line for line in output.splitlines() if not banner.match(line))


def tail(text, lines=15):
    return "\n".join(text.splitlines()[-lines:])


# Kernels.

COLUMNS = ["kernel", "accesses", "sectors_read", "sectors_written", "rounds", "divergent_branches", "barriers"]


def lab(root, stage, *arguments):
    return ["bash", str(root / "scripts" / "kernel_lab.sh"), *arguments, "--dir", str(stage)]


def build_emulator(root):
    """So that no check pays for it."""
    ran = subprocess.run(lab(root, root / "examples" / "kernel_lab", "--build"), env={**os.environ, **lab_environment(root)},
                         capture_output=True, text=True)
    if ran.returncode != 0:
        raise UserError("build: the emulator of scripts/kernel_lab.sh does not build:\n" + tail(ran.stdout + ran.stderr))


def grade_kernel(root, exercise, stage):
    built = limits.run(lab(root, stage, "--build", exercise.kernel), stage, compiling.SECONDS, 4096, lab_environment(root))
    if built.why or built.rc != 0:
        return none_passed(exercise, "the kernel does not compile:\n" + (built.why or built.output.replace(f"{stage}/", ""))), ""
    most = exercise.all_seconds
    deadline = time.monotonic() + most
    ran = limits.run(lab(root, stage, exercise.kernel), stage, most, 4096, lab_environment(root), most)
    if ran.why:
        return none_passed(exercise, f"the kernel was ended: {ran.why}"), ""
    said = dict(re.findall(r"^  (values|bounds|races) +(.*)$", ran.output, re.M))
    right = said.get("values", "").startswith("right")
    counted = counts(root, exercise, stage, max(1, deadline - time.monotonic())) if right else {}
    outcomes = []
    for test in exercise.tests:
        if test.counter:
            outcomes.append(judge_counter(test, counted))
        else:
            good = {"values": "right", "bounds": "nothing outside", "races": "none"}[test.name]
            text = said.get(test.name, "unknown: " + tail(ran.output))
            outcomes.append(Outcome(test.name, test.points, text.startswith(good) and (right or test.name != "races"),
                                    text.replace(f"{stage}/", "")))
    return outcomes, ""


def counts(root, exercise, stage, seconds):
    """The columns of kernel_lab.sh --table, each summed over the kernels."""
    ran = limits.run(lab(root, stage, "--table", exercise.kernel), stage, exercise.all_seconds, 4096, lab_environment(root), seconds)
    total = {}
    for row in re.findall(r"^\| `.*$", ran.output, re.M):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        for column, cell in zip(COLUMNS[1:], cells[1:]):
            total[column] = total.get(column, 0) + int(cell.split()[0])
    return total


def judge_counter(test, counted):
    if test.counter not in counted:
        return Outcome(test.name, test.points, False, "not counted: the values are wrong")
    value = counted[test.counter]
    words = f"{test.counter.replace('_', ' ')}: {value:,}, and at most {test.at_most:,} are needed"
    if value <= test.at_most:
        return Outcome(test.name, test.points, True, words)
    return Outcome(test.name, test.points, False, f"{words}. {test.says}")
