"""scripts/exercise.sh: see there."""
import argparse
import json
import pathlib
import shutil
import sys

from exercises import compiling, grading, limits, packing
from exercises.description import Stage, UserError, find, load_all, load_stages

ROOT = pathlib.Path(__file__).resolve().parent.parent
MINE, MY_COURSE = ROOT / "my_exercises", ROOT / "my_course"


def show_list(arguments):
    exercises, stages = load_all(ROOT), load_stages(ROOT)
    if arguments.number:
        return show_tests(find(ROOT, arguments.number))
    if arguments.json:
        print(json.dumps({"exercises": [{
            "exercise": exercise.number, "name": exercise.name, "title": exercise.title, "chapter": exercise.chapter,
            "minutes": exercise.minutes, "points": exercise.points, "files": exercise.files} for exercise in exercises],
            "stages": [{"stage": stage.name, "title": stage.title, "chapters": stage.chapters, "minutes": stage.minutes,
                        "lines": stage.lines, "points": stage.points, "files": stage.files} for stage in stages]}))
        return 0
    for exercise in exercises:
        print(f"{exercise.number:3}  {exercise.title:<48} {exercise.points:2} points  {exercise.minutes:3} min  "
              f"docs/{exercise.chapter}")
    print("\nThe course, examples/course/README.md, in which one engine grows:")
    for stage in stages:
        print(f"  {stage.name}  {stage.title:<42} {stage.points:2} points  {stage.minutes:3} min  {stage.lines:3} lines")
    print("\nscripts/exercise.sh start N begins one; check N counts your points")
    return 0


def show_tests(exercise):
    print(f"{exercise.number} {exercise.title}: {exercise.points} points, about {exercise.minutes} minutes")
    for test in exercise.tests:
        print(f"  {test.points:2}  {test.name}")
    return 0


def work_folder(arguments, exercise):
    """An exercise has a folder of its own, all stages one together."""
    if isinstance(exercise, Stage):
        return pathlib.Path(arguments.dir or MY_COURSE)
    return pathlib.Path(arguments.dir or MINE) / exercise.name


def dir_flag(arguments):
    return f" --dir {arguments.dir}" if arguments.dir else ""


def start(arguments):
    exercise = find(ROOT, arguments.number)
    return (start_stage if isinstance(exercise, Stage) else start_exercise)(arguments, exercise)


def start_stage(arguments, stage):
    folder = work_folder(arguments, stage)
    missing = stage.start_into(folder)
    print(f"{stage.name} {stage.title}: {stage.points} points, about {stage.minutes} minutes\n")
    print(f"read    {folder / stage.name}.md, and {', '.join('docs/' + chapter for chapter in stage.chapters)}")
    print(f"given   {', '.join(str(folder / path.name) for path in stage.given())}")
    print(f"write   {', '.join(str(folder / path) for path in stage.files)}")
    print(f"then    scripts/exercise.sh check {stage.name}{dir_flag(arguments)}")
    if missing:
        print(f"needs   {', '.join(missing)} of earlier stages, which {folder} does not have")
    return 0


def start_exercise(arguments, exercise):
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
    print(f"then    scripts/exercise.sh check {exercise.number}{dir_flag(arguments)}")
    if exercise.library:
        print("needs   scripts/exercise.sh build, once: it compiles the library")
    return 0


def as_json(graded):
    """`exercise`, `points`, `of` and `passed` are ours, the rest is as Gradescope's results.json names it."""
    exercise, said = graded[-1][0], results(graded)
    return {"exercise": exercise.number, "name": exercise.name, "points": said["score"],
            "of": sum(exercise.points for exercise, _ in graded), **said,
            "tests": [{**test, "passed": test["status"] == "passed"} for test in said["tests"]]}


def results(graded):
    return {
        "score": sum(grade.points for _, grade in graded), "execution_time": round(sum(grade.seconds for _, grade in graded), 3),
        "output": "\n".join(grade.remarks for _, grade in graded if grade.remarks), "visibility": "visible",
        "tests": [{"name": outcome.name, "score": outcome.points if outcome.passed else 0, "max_score": outcome.points,
                   "status": "passed" if outcome.passed else "failed", "output": outcome.output,
                   "visibility": "visible"} for _, grade in graded for outcome in grade.outcomes]}


def as_text(graded):
    lines, said = [], set()
    for exercise, grade in graded:
        lines.append(f"{exercise.number} {exercise.title}")
        lines += ["  " + line for line in grade.remarks.splitlines()]
        for outcome in grade.outcomes:
            mark = "passed" if outcome.passed else "FAILED"
            lines.append(f"  {mark}  {outcome.points if outcome.passed else 0} of {outcome.points}  {outcome.name}")
            if outcome.output not in said:  # one compiler error is not said for each test
                lines += ["          " + line for line in outcome.output.splitlines()]
            said.add(outcome.output)
    lines.append(f"{sum(grade.points for _, grade in graded)} of {sum(exercise.points for exercise, _ in graded)} points")
    if not limits.no_network():
        lines.append("The tests ran with network access: on this system, only root can disable it.")
    return "\n".join(lines)


def check(arguments):
    exercise = find(ROOT, arguments.number)
    folder = work_folder(arguments, exercise)
    if not folder.is_dir():
        raise UserError(f"check: {folder} must exist: scripts/exercise.sh start {exercise.number} makes it")
    checked = [exercise]
    if arguments.all:
        if not isinstance(exercise, Stage):
            raise UserError("check: --all is for stages of the course, and grades all up to the one named")
        checked = [stage for stage in load_stages(ROOT) if stage.name <= exercise.name]
    graded = [(each, grading.grade(ROOT, each, folder)) for each in checked]
    if arguments.results:
        pathlib.Path(arguments.results).write_text(json.dumps(results(graded), indent=2) + "\n")
    print(json.dumps(as_json(graded)) if arguments.json else as_text(graded))
    return 0 if all(grade.points == each.points for each, grade in graded) else 1


def build(arguments):
    exercises = load_all(ROOT)
    compiling.build_library(ROOT, exercises)
    grading.build_emulator(ROOT)
    print("scripts/exercise.sh check needs no further build")
    return 0


def pack(arguments):
    packing.pack(ROOT, load_all(ROOT), load_stages(ROOT), arguments.what, pathlib.Path(arguments.file))
    print(f"{arguments.file} is written")
    return 0


def parse():
    parser = argparse.ArgumentParser(prog="scripts/exercise.sh")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name, function, does):
        command = commands.add_parser(name, help=does)
        command.set_defaults(run=function)
        return command

    command = add("list", show_list, "the exercises, and the stages of the course")
    command.add_argument("number", metavar="N", nargs="?", help="the tests of this one alone")
    command.add_argument("--json", action="store_true")
    for name, function, does in (("start", start, "copy an exercise to work on it"), ("check", check, "count its points")):
        command = add(name, function, does)
        command.add_argument("number", metavar="N", help="the number or the name; stageNN for a stage of the course")
        command.add_argument("--dir", help="folder of your copies (my_exercises/), or of your engine (my_course/)")
        if name == "check":
            command.add_argument("--all", action="store_true", help="of the course: all stages up to this one")
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
