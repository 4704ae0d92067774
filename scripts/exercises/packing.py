"""Tarballs: for students, everything that solving exercises needs and no answer; for teachers, the answers."""
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

from . import compiling, patching
from .description import UserError, folder_of

STUDENTS, TEACHERS = "athanor-exercises", "athanor-exercise-answers"
SCRIPTS = ["exercise.sh", "exercise.py", "kernel_lab.sh", "common.sh", "gpu_env.sh"]
LIBRARIES = ["fmt", "gtest", "gtest_main", "isal", "z"]  # of the system, where a student may not install packages

README = """Exercises on what happens inside the training of a network. They need g++ 12 or later and python3; nothing is installed.

    scripts/exercise.sh list
    scripts/exercise.sh start 1        # a text and files to change, in my_exercises/
    scripts/exercise.sh check 1        # tests them, and counts points

docs/ has the chapters that they belong to. examples/course/README.md begins the course, in which you build an engine of your own.
"""


def pack(root, exercises, stages, what, target):
    with tempfile.TemporaryDirectory(prefix="exercise-pack-") as name:
        folder = pathlib.Path(name) / (STUDENTS if what == "students" else TEACHERS)
        folder.mkdir()
        (for_students if what == "students" else for_teachers)(root, exercises, folder)
        (course_for_students if what == "students" else course_for_teachers)(root, stages, folder)
        try:
            with tarfile.open(str(target) + ".tmp", "w:gz", compresslevel=6) as archive:
                archive.add(folder, folder.name)
            pathlib.Path(str(target) + ".tmp").rename(target)
        except OSError as error:
            raise UserError(f"pack: cannot write {target}: {error.strerror}") from None


def copy(root, folder, path):
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / path, target)


def copy_tree(root, folder, top, suffixes, without=()):
    for path in sorted((root / top).rglob("*")):
        name = path.relative_to(root)
        if path.is_file() and path.suffix in suffixes and str(name) not in without:
            copy(root, folder, name)


def for_students(root, exercises, folder):
    archive = compiling.library_folder(root) / compiling.ARCHIVE
    if not archive.is_file():
        raise UserError("pack: the library must be built first: scripts/exercise.sh build")
    planted = {path for exercise in exercises for path in exercise.tree}  # the whole ones are the answers
    for name in SCRIPTS:
        copy(root, folder, pathlib.Path("scripts") / name)
    copy_tree(root, folder, "scripts/exercises", {".py"})
    copy_tree(root, folder, "examples/kernel_lab", {".h", ".cpp", ".cu", ".md"})
    copy_tree(root, folder, "simt", {".h", ".cpp", ".cmake", ""})
    for top in compiling.FOLDERS:
        copy_tree(root, folder, top, {".h"}, without=planted)
    for path in ("athanor.h", "LICENSE"):
        copy(root, folder, path)
    copy_tree(root, folder, "docs", {".md", ".svg", ".png"})
    for exercise in exercises:
        copy_exercise(root, folder, exercise)
    (folder / "README.md").write_text(README)
    (folder / "lib").mkdir()
    shutil.copy(archive, folder / "lib" / archive.name)
    subprocess.run(["strip", "--strip-debug", str(folder / "lib" / archive.name)], check=False)
    copy_system(folder)


def copy_exercise(root, folder, exercise):
    """As it is at the start: without the patch, which tells what was planted."""
    target = folder_of(folder) / exercise.name
    (target / "starter").mkdir(parents=True)
    exercise.starter_into(target / "starter")
    for path in [exercise.folder / "exercise.json", exercise.folder / "text.md", *exercise.own_tests()]:
        shutil.copy(path, target / path.name)


def copy_system(folder):
    """Headers and libraries of the system that compiling with the library needs."""
    for name in LIBRARIES:
        found = []
        for suffix in (".so", ".a"):
            said = subprocess.run([compiling.compiler(), f"-print-file-name=lib{name}{suffix}"], capture_output=True, text=True)
            path = pathlib.Path(said.stdout.strip())
            if path.is_absolute() and path.is_file():
                found = [path] if suffix == ".a" else sorted(path.parent.glob(path.name + "*"))
                break
        if not found:
            raise UserError(f"pack: the library {name} must be installed")
        for path in found:
            shutil.copy(path, folder / "lib" / path.name, follow_symlinks=False)
    for name in ("fmt", "gtest"):
        headers = next((place / name for place in (pathlib.Path("/usr/include"), pathlib.Path("/usr/local/include"))
                        if (place / name).is_dir()), None)
        if not headers:
            raise UserError(f"pack: the headers of {name} must be installed")
        shutil.copytree(headers, folder / "include" / name)


def for_teachers(root, exercises, folder):
    answers = root / "tests" / "exercises" / "answers"
    lines = ["# Answers", "",
             "`NN_name/solution.patch` changes the starter of an exercise into its solution, `wrong_*.patch` into a typical wrong "
             "answer; the first lines of a wrong one say what is wrong, which test fails, and how it is named.", ""]
    for exercise in exercises:
        lines.append(f"## {exercise.number} {exercise.title} ({exercise.points} points, docs/{exercise.chapter})\n")
        shutil.copytree(answers / exercise.name, folder / exercise.name)
        whole = folder / exercise.name / "solution"
        whole.mkdir()
        exercise.starter_into(whole)
        patching.apply((answers / exercise.name / "solution.patch").read_text(), whole, exercise.name)
        for path in sorted(whole.rglob("*")):
            if path.is_file() and str(path.relative_to(whole)) not in exercise.files:
                path.unlink()
        for patch in sorted((answers / exercise.name).glob("wrong_*.patch")):
            mistake = patch.read_text().splitlines()[0].removeprefix("Mistake: ")
            lines.append(f"- `{patch.name}`: {mistake}")
        lines.append("")
    (folder / "README.md").write_text("\n".join(lines))


# The course.

def course_for_students(root, stages, folder):
    copy_tree(root, folder, "examples/course", {".md", ".json", ".h", ".cpp", ".cu", ".txt"})
    for path in sorted({path for stage in stages for path in stage.own_data}):
        copy(root, folder, pathlib.Path(path))


def course_for_teachers(root, stages, folder):
    course = root / "tests" / "course"
    for part in ("solution", "wrong"):
        shutil.copytree(course / part, folder / "course" / part)
    lines = ["", "# The course", "", "`course/solution/` is the reference solution of all stages, `course/wrong/NN_name.patch` changes it into a "
             "typical wrong answer of stage NN.", ""]
    for stage in stages:
        lines.append(f"## {stage.name} {stage.title} ({stage.points} points)\n")
        for patch in sorted((course / "wrong").glob(f"{stage.name[-2:]}_*.patch")):
            mistake = patch.read_text().splitlines()[0].removeprefix("Mistake: ")
            lines.append(f"- `{patch.name}`: {mistake}")
        lines.append("")
    with open(folder / "README.md", "a") as readme:
        readme.write("\n".join(lines))
