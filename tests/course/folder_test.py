"""What a student does: scripts/exercise.sh start, cmake in the folder, check. The reference solution stands in for what they write."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from exercises.description import find  # noqa: E402

SOLUTION = ROOT / "tests" / "course" / "solution"


def expect(condition, words):
    if not condition:
        raise SystemExit(words)


def run(*command, cwd=ROOT):
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)


def exercise(*arguments):
    return run("bash", ROOT / "scripts" / "exercise.sh", *arguments)


def main():
    with tempfile.TemporaryDirectory(prefix="course-folder-") as name:
        mine = pathlib.Path(name) / "mine"
        unknown = exercise("start", "stage99", "--dir", mine)
        expect(unknown.returncode == 2 and "there is no stage99" in unknown.stderr, f"start stage99: {unknown}")
        early = exercise("check", "stage01", "--dir", mine)
        expect(early.returncode == 2 and "must exist" in early.stderr, f"check before start: {early}")
        started = exercise("start", "stage01", "--dir", mine)
        expect(started.returncode == 0 and "tensor.cpp" in started.stdout, f"start: {started}")
        links = re.findall(r"\]\(([^)#]+)", (mine / "stage01.md").read_text())
        dead = [link for link in links if not link.startswith("http") and not (mine / link).exists()]
        expect(links and not dead, f"links of the page must lead to the book from the student's folder, but these do not: {dead}")
        missing = exercise("check", "stage01", "--dir", mine)
        expect(missing.returncode == 2 and "tensor.cpp must exist" in missing.stderr, f"check without a source: {missing}")

        for stage in find(ROOT, "stage02").used(SOLUTION):  # the solution's tensor.cpp calls what later stages made fast
            for path in stage.sources():
                shutil.copy(SOLUTION / path, mine)
        (mine / "tensor.cpp").write_text('#include "own.h"\n' + (SOLUTION / "tensor.cpp").read_text())
        (mine / "own.h").write_text("#pragma once\n")
        again = exercise("start", "stage01", "--dir", mine)
        expect(again.returncode == 0 and (mine / "fast.h").is_file(), f"start brings the headers of all stages that are in use: {again}")
        built = [run("cmake", "-B", "build", cwd=mine), run("cmake", "--build", "build", "--target", "stage01_test", cwd=mine)]
        expect(not any(step.returncode for step in built), f"the student's CMakeLists.txt: {built}")
        passed = run("build/stage01_test", cwd=mine)
        expect(passed.returncode == 0, f"stage01_test: {passed}")

        (mine / "tensor.h").write_text("#error a header that the student has changed\n")
        (mine / "stage01_test.cpp").write_text("#error a test that the student has changed\n")
        checked = exercise("check", "stage01", "--dir", mine, "--json")
        expect(checked.returncode == 0 and json.loads(checked.stdout)["points"] == 20, f"check takes its own headers and tests: {checked}")
        exercise("start", "stage01", "--dir", mine)
        expect((mine / "tensor.h").read_text() == (ROOT / "examples/course/stage01/given/tensor.h").read_text(), "start must restore tensor.h")
        expect("own.h" in (mine / "tensor.cpp").read_text(), "start must leave alone what the student wrote")

        started = exercise("start", "stage02", "--dir", mine)
        expect("needs" not in started.stdout, f"nothing is missing: {started}")
        page = (mine / "stage02.md").read_text()
        program = next(block for block in re.findall(r"```cpp\n(.*?)```", page, re.S) if "slope_main.cpp" in block)
        (mine / "slope_main.cpp").write_text(program)
        shown = run("bash", "-c", re.search(r"^    (cmake .* build/slope)", page, re.M)[1], cwd=mine)
        expect(shown.returncode == 0 and shown.stdout.endswith("5 3\n"), f"the page's program, by the page's command: {shown}")
        checked = exercise("check", "stage02", "--all", "--dir", mine, "--json", "--results", mine / "results.json")
        said = json.loads(checked.stdout)
        expect(checked.returncode == 0 and (said["points"], said["of"]) == (40, 40), f"check stage02 --all: {checked}")
        expect(json.loads((mine / "results.json").read_text())["score"] == 40, "results.json has the points of both stages")

        other = pathlib.Path(name) / "other"
        started = exercise("start", "stage04", "--dir", other)
        expect((other / "digits.csv").read_text().count("\n") == 1797, "start must unpack the data that a stage reads")
        expect((other / "tensor.h").is_file() and "tensor.cpp" in started.stdout, f"start of a later stage says what it lacks: {started}")


if __name__ == "__main__":
    sys.exit(main())
