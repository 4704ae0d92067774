"""The stages with threads under ThreadSanitizer, as their pages show it: the reference solution has no race, and those that are planted
are found. Code 77 where programs under ThreadSanitizer do not start."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from exercises.description import find  # noqa: E402

SOLUTION = ROOT / "tests" / "course" / "solution"
STAGES = ["stage08", "stage09"]
LOOKED_UP = "  const std::int64_t sample = sample_of(mine);\n"
PLANTED = {  # into loader.cpp: parts of it, and what they become
    "a row noted without the lock": {
        "  lock.lock();\n  --reading;\n  --slot.missing;\n": "  --slot.missing;\n  lock.lock();\n  --reading;\n"},
    "a sample looked up in the order after the mutex is unlocked": {
        LOOKED_UP: "", "  lock.unlock();\n": "  lock.unlock();\n" + LOOKED_UP},
}


def run(*command, cwd=ROOT):
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, errors="replace")


def test(mine, stage, *arguments):
    """The program's output, compiled with ThreadSanitizer."""
    for command in (["cmake", "-B", "build", "-DCMAKE_CXX_FLAGS=-fsanitize=thread"], ["cmake", "--build", "build", "--target", f"{stage}_test"]):
        built = run(*command, cwd=mine)
        if built.returncode != 0:
            sys.exit(f"{stage}: {' '.join(command)}:\n{built.stdout}{built.stderr}")
    ran = run(f"build/{stage}_test", *arguments, cwd=mine)
    said = ran.stdout + ran.stderr
    if "unexpected memory mapping" in said:
        sys.exit(77)
    return ran.returncode, said


def main():
    with tempfile.TemporaryDirectory(prefix="course-races-") as name:
        for stage in STAGES:
            mine = pathlib.Path(name) / stage
            mine.mkdir()
            for source in [path for used in find(ROOT, stage).used(SOLUTION) for path in used.sources()]:
                shutil.copy(SOLUTION / source, mine)
            started = run("bash", ROOT / "scripts" / "exercise.sh", "start", stage, "--dir", mine)
            code, said = test(mine, stage)
            if started.returncode != 0 or code != 0:
                sys.exit(f"{stage} must have no race, but:\n{started.stderr}{said[-4000:]}")
            print(f"{stage}: no race")

        loader = pathlib.Path(name) / "stage08" / "loader.cpp"
        right = loader.read_text()
        for what, changes in PLANTED.items():
            racing = right
            for lines, instead in changes.items():
                if racing.count(lines) != 1:
                    sys.exit(f"loader.cpp must have once the lines into which a race is planted:\n{lines}")
                racing = racing.replace(lines, instead)
            loader.write_text(racing)
            code, said = test(loader.parent, "stage08", "--gtest_filter=Loader.GivesTheSameBatchesForAnyNumberOfWorkers")
            if "ThreadSanitizer: data race" not in said:
                sys.exit(f"stage08: {what} must be reported as a race, but the test says:\n{said[-4000:]}")
            print(f"stage08: found: {what}")


if __name__ == "__main__":
    main()
