"""scripts/exercise.sh: see there."""
import argparse
import json
import pathlib
import shutil
import sys

from exercises import compiling, grading, limits, packing
from exercises.description import UserError, find, load_all

ROOT = pathlib.Path(__file__).resolve().parent.parent
MINE = str(ROOT / "my_exercises")


def show_list(arguments):
    exercises = load_all(ROOT)
    if arguments.json:
        print(json.dumps({"exercises": [{
            "exercise": exercise.number, "name": exercise.name, "title": exercise.title, "chapter": exercise.chapter,
            "minutes": exercise.minutes, "points": exercise.points, "files": exercise.files} for exercise in exercises]}))
        return 0
    for exercise in exercises:
        print(f"{exercise.number:3}  {exercise.title:<48} {exercise.points:2} points  {exercise.minutes:3} min  "
              f"docs/{exercise.chapter}")
    print("\nscripts/exercise.sh start N begins one; check N counts your points")
    return 0


def work_folder(arguments, exercise):
    return pathlib.Path(arguments.dir) / exercise.name


def start(arguments):
    exercise = find(ROOT, arguments.number)
    folder = work_folder(arguments, exercise)
    if folder.exists():
        raise UserError(f"start: {folder} must not exist yet: move it away, or name another folder with --dir")
    staging = folder.with_name(folder.name + ".new")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    exercise.starter_into(staging)
    for path in [exercise.folder / "text.md", *exercise.own_tests()]:
        shutil.copy(path, staging / path.name)
    staging.rename(folder)
    print(f"{exercise.number} {exercise.title}: {exercise.points} points, about {exercise.minutes} minutes\n")
    print(f"read    {folder / 'text.md'}, and docs/{exercise.chapter}")
    print(f"change  {', '.join(str(folder / path) for path in exercise.files)}")
    where = "" if arguments.dir == MINE else f" --dir {arguments.dir}"
    print(f"then    scripts/exercise.sh check {exercise.number}{where}")
    if exercise.library:
        print("needs   scripts/exercise.sh build, once: it compiles the library")
    return 0


def as_json(exercise, grade):
    """`exercise`, `points`, `of` and `passed` are ours, the rest is as Gradescope's results.json names it."""
    return {"exercise": exercise.number, "name": exercise.name, "points": grade.points, "of": exercise.points,
            **results(exercise, grade),
            "tests": [{**test, "passed": test["status"] == "passed"} for test in results(exercise, grade)["tests"]]}


def results(exercise, grade):
    return {
        "score": grade.points, "execution_time": round(grade.seconds, 3),
        "output": grade.remarks, "visibility": "visible",
        "tests": [{"name": outcome.name, "score": outcome.points if outcome.passed else 0, "max_score": outcome.points,
                   "status": "passed" if outcome.passed else "failed", "output": outcome.output,
                   "visibility": "visible"} for outcome in grade.outcomes]}


def as_text(exercise, grade):
    lines = [f"{exercise.number} {exercise.title}"]
    lines += ["  " + line for line in grade.remarks.splitlines()]
    said = set()
    for outcome in grade.outcomes:
        mark = "passed" if outcome.passed else "FAILED"
        lines.append(f"  {mark}  {outcome.points if outcome.passed else 0} of {outcome.points}  {outcome.name}")
        if outcome.output not in said:  # one compiler error is not said for each test
            lines += ["          " + line for line in outcome.output.splitlines()]
        said.add(outcome.output)
    lines.append(f"{grade.points} of {exercise.points} points")
    if not limits.no_network():
        lines.append("The tests ran with network access: on this system, only root can disable it.")
    return "\n".join(lines)


def check(arguments):
    exercise = find(ROOT, arguments.number)
    folder = work_folder(arguments, exercise)
    if not folder.is_dir():
        raise UserError(f"check: {folder} must exist: scripts/exercise.sh start {exercise.number} makes it")
    grade = grading.grade(ROOT, exercise, folder)
    if arguments.results:
        pathlib.Path(arguments.results).write_text(json.dumps(results(exercise, grade), indent=2) + "\n")
    print(json.dumps(as_json(exercise, grade)) if arguments.json else as_text(exercise, grade))
    return 0 if grade.points == exercise.points else 1


def build(arguments):
    exercises = load_all(ROOT)
    compiling.build_library(ROOT, exercises)
    grading.build_emulator(ROOT)
    print("scripts/exercise.sh check needs no further build")
    return 0


def pack(arguments):
    packing.pack(ROOT, load_all(ROOT), arguments.what, pathlib.Path(arguments.file))
    print(f"{arguments.file} is written")
    return 0


def parse():
    parser = argparse.ArgumentParser(prog="scripts/exercise.sh")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name, function, does):
        command = commands.add_parser(name, help=does)
        command.set_defaults(run=function)
        return command

    add("list", show_list, "the exercises").add_argument("--json", action="store_true")
    for name, function, does in (("start", start, "copy an exercise to work on it"), ("check", check, "count its points")):
        command = add(name, function, does)
        command.add_argument("number", metavar="N", help="the number or the name")
        command.add_argument("--dir", default=MINE, help="folder of your copies (my_exercises/)")
        if name == "check":
            command.add_argument("--json", action="store_true", help="one line of JSON")
            command.add_argument("--results", metavar="FILE", help="write Gradescope's results.json")
    add("build", build, "compile the library and the emulator, once")
    command = add("pack", pack, "write a tarball")
    command.add_argument("what", choices=["students", "teachers"])
    command.add_argument("file", metavar="FILE", help="a .tar.gz")
    return parser.parse_args()


def main():
    arguments = parse()
    try:
        return arguments.run(arguments)
    except UserError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"{arguments.command}: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
