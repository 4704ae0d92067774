"""The stages with threads under ThreadSanitizer, as their pages show it: the reference solution has no race, and one that is planted is
found. Code 77 where programs under ThreadSanitizer do not start."""
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
NOTED = "  lock.lock();\n  --reading;\n  --slot.missing;\n"  # of loader.cpp
RACING = "  --slot.missing;\n  lock.lock();\n  --reading;\n"


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
        if NOTED not in loader.read_text():
            sys.exit(f"loader.cpp must have the lines into which a race is planted:\n{NOTED}")
        loader.write_text(loader.read_text().replace(NOTED, RACING))
        code, said = test(loader.parent, "stage08", "--gtest_filter=Loader.GivesTheSameBatchesForAnyNumberOfWorkers")
        if "ThreadSanitizer: data race" not in said:
            sys.exit(f"stage08: a row noted without the lock must be reported as a race, but the test says:\n{said[-4000:]}")
        print("stage08: a planted race is found")


if __name__ == "__main__":
    main()
