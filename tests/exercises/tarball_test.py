"""The tarball for students: it holds no answer, and exercises can be solved with it on a machine without the packages that
building Athanor needs (which a mount namespace hides, where the system lets us)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from exercises import patching  # noqa: E402
from exercises.description import find, load_all, load_stages  # noqa: E402

ANSWERS = ROOT / "tests" / "exercises" / "answers"
SOLVED = ["03_wrong_engine", "15_ring_step", "24_adam", "06_racing_kernel"]  # alone; with the library; a header; a kernel
HIDDEN = ["/usr/include/fmt", "/usr/include/gtest", "/usr/include/eigen3", "/usr/include/isa-l"]


def hiding():
    """What to put before a command so that it does not see the system's headers; empty where that is not allowed."""
    hidden = [path for path in HIDDEN if os.path.isdir(path)]
    script = "empty=$(mktemp -d); " + "".join(f"mount --bind $empty {path} && " for path in hidden) + 'exec "$@"'
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "--", "bash", "-c", script, "-"]
    works = subprocess.run([*prefix, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    return prefix if works else []


def expect(condition, words):
    if not condition:
        raise SystemExit(words)


def check_contents(place):
    names = [str(path.relative_to(place)) for path in place.rglob("*")]
    bad = [name for name in names if "answers" in name or name.endswith(".patch") or "wrong_" in pathlib.Path(name).name.replace("wrong_engine", "")]
    expect(not bad, f"students would get {bad}")
    for exercise in load_all(ROOT):
        for path in exercise.tree:
            expect(not (place / path).exists(), f"students would get {path}, which is the solution of {exercise.name}")
            planted = place / "examples" / "exercises" / exercise.name / "starter" / path
            expect(planted.is_file() and planted.read_text() != (ROOT / path).read_text(), f"{planted} must be as at the start")


def check_course(place):
    for stage in load_stages(ROOT):
        expect((place / "examples" / "course" / stage.name / "text.md").is_file(), f"students need the page of {stage.name}")
        for path in stage.files:
            expect(not list((place / "examples" / "course").rglob(path)), f"students would get {path}, which they write in {stage.name}")
        for path in stage.own_data:
            expect((place / path).is_file(), f"students need {path}")


def main():
    prefix = hiding()
    environment = {name: value for name, value in os.environ.items() if name not in ("ATHANOR_EXERCISES_BUILD", "KERNEL_LAB_BUILD")}
    with tempfile.TemporaryDirectory(prefix="exercise-tarball-") as name:
        archive = pathlib.Path(name) / "exercises.tar.gz"
        subprocess.run([sys.executable, ROOT / "scripts" / "exercise.py", "pack", "students", archive], check=True)
        subprocess.run(["tar", "-xzf", archive, "-C", name], check=True)
        place = pathlib.Path(name) / "athanor-exercises"
        print(f"{archive.stat().st_size / 1e6:.0f} MB; the system's headers are {'hidden' if prefix else 'not hidden'}")
        check_contents(place)
        check_course(place)

        def run(*arguments):
            return subprocess.run([*prefix, "bash", "scripts/exercise.sh", *arguments], cwd=place, env=environment,
                                  capture_output=True, text=True)

        built = run("build")
        expect(built.returncode == 0, f"build: {built.stdout}{built.stderr}")
        for name in SOLVED:
            exercise = find(ROOT, name)
            started = run("start", name)
            expect(started.returncode == 0, f"start {name}: {started}")
            before = json.loads(run("check", name, "--json").stdout)
            expect(before["points"] < exercise.points, f"{name}: the starter has all points")
            patching.apply((ANSWERS / name / "solution.patch").read_text(), place / "my_exercises" / name, name)
            after = json.loads(run("check", name, "--json").stdout)
            expect(after["points"] == exercise.points, f"{name}: the solution must have all points, but: {after}")
            print(f"{name}: {before['points']} points, then {after['points']}")
        teachers = pathlib.Path(archive.parent) / "answers.tar.gz"
        subprocess.run([sys.executable, ROOT / "scripts" / "exercise.py", "pack", "teachers", teachers], check=True)
        listed = subprocess.run(["tar", "-tzf", teachers], capture_output=True, text=True, check=True).stdout
        for name in SOLVED:
            expect(f"/{name}/solution.patch" in listed and f"/{name}/solution/" in listed, f"the teachers' archive lacks {name}")


if __name__ == "__main__":
    main()
