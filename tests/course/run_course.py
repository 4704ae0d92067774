"""run_course.py stageNN...: the reference solution in tests/course/solution/ must get all points of a stage; each of the wrong answers
wrong/NN_name.patch, which change the solution, must lose some: its test must fail, and name the mistake, as the patch says.
run_course.py whole stageNN...: these are all stages, all is there that a stage needs, and every patch applies; nothing is built.
run_course.py table: writes the table of stages in examples/course/README.md.
Prints what is not so; code 1."""
import copy
import pathlib
import re
import shutil
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "exercises")]
from exercises import grading, patching  # noqa: E402
from exercises.description import find, includes, load_stages  # noqa: E402
from run_answers import on_a_busy_machine, said, unnoticed  # noqa: E402

COURSE, SOLUTION, WRONG = ROOT / "examples" / "course", ROOT / "tests" / "course" / "solution", ROOT / "tests" / "course" / "wrong"
WRONG_ANSWERS = 3  # of a stage, or more
TABLE = re.compile(r"(<!-- stages -->\n).*(<!-- end of stages -->)", re.S)


def wrong_answers(stage):
    return sorted(WRONG.glob(f"{stage.name[-2:]}_*.patch"))


def patched(patch, work):
    """The solution in `work`, changed."""
    shutil.copytree(SOLUTION, work, dirs_exist_ok=True)
    patching.apply(patch.read_text(), work, str(patch.relative_to(ROOT)))


def for_mistake(stage, patch):
    """The stage, without slow tests that need not notice the mistake."""
    result = copy.copy(stage)
    result.tests = [test for test in stage.tests if not test.slow or test.name == said(patch)["Fails"]]
    return result


def run(stage):
    """Whether the stage is as it must be."""
    bad, stage = 0, on_a_busy_machine(stage)
    stage.seconds *= 10  # the machine may be a slow one, too
    for patch in [None, *wrong_answers(stage)]:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="course-") as name:
            work = pathlib.Path(name)
            if patch:
                patched(patch, work)
            graded = grading.grade(ROOT, for_mistake(stage, patch) if patch else stage, work if patch else SOLUTION)
        lost = "\n".join(f"{outcome.name}: {outcome.output}" for outcome in graded.outcomes if not outcome.passed)
        why = unnoticed(patch, graded) if patch else lost or graded.remarks
        print(f"{'BAD ' if why else 'ok  '} {stage.name} {patch.stem if patch else 'solution':<36} {graded.points:2} of {stage.points}, "
              f"{time.monotonic() - begin:.1f} s", flush=True)
        if why:
            print("     " + why.replace("\n", "\n     "), flush=True)
        bad += bool(why)
    return not bad


def row(stage):
    chapters = ", ".join(f"[{chapter}](../../docs/{chapter})" for chapter in stage.chapters)
    return (f"| {stage.name} | [{stage.title}]({stage.name}/text.md) | {chapters} | {stage.points} | {stage.minutes} | {stage.lines} |\n")


def table(stages):
    total = [sum(values) for values in zip(*((stage.points, stage.minutes, stage.lines) for stage in stages))]
    return ("| | what you build | chapters | points | minutes | lines |\n|---|---|---|---|---|---|\n" + "".join(map(row, stages)) +
            "| | all | | " + " | ".join(f"{value:,}" for value in total) + " |\n")


def write_table():
    readme = COURSE / "README.md"
    readme.write_text(TABLE.sub(lambda found: found[1] + table(load_stages(ROOT)) + found[2], readme.read_text()))


def faults_of(stage, stages):
    """What is wrong with the description of a stage."""
    tests = {f"{suite}.{name}" for suite, name in re.findall(r"^TEST\((\w+),\s*(\w+)\)", (stage.folder / "test.cpp").read_text(), re.M)}
    named = [test.name for test in stage.tests]
    if sorted(named) != sorted(tests):
        yield f"stage.json names {sorted(named)}, but the tests are {sorted(tests)}"
    if stage.points != 20:
        yield f"{stage.points} points; each stage has 20"
    text = (stage.folder / "text.md").read_text()
    if text.splitlines()[0].casefold() != f"# Stage {int(stage.name[-2:])}: {stage.title}".casefold():
        yield f"text.md must begin with the number and the title: {stage.title}"
    for part in ("## What to write", "## Traps", "## Further reading", "## What you have now"):
        if part not in text:
            yield f"text.md lacks the part {part}"
    for chapter in stage.chapters:
        if not (ROOT / "docs" / chapter).is_file():
            yield f"there is no chapter docs/{chapter}"
    missing = [path for path in stage.files if not (SOLUTION / path).is_file()]
    if missing:
        yield f"the solution lacks {missing}"
        return
    lines = sum(len((SOLUTION / path).read_text().splitlines()) for path in stage.files)
    if abs(lines - stage.lines) > 15:
        yield f"stage.json says {stage.lines} lines, but the solution has {lines}"
    readers = [*SOLUTION.iterdir(), *(path for other in stages for path in [other.folder / "test.cpp", *other.given()])]
    included = {header for path in readers for header in includes(path.read_bytes())}
    unused = [path.name for path in stage.given() if path.suffix == ".h" and path.name not in included]
    if unused:
        yield f"no source includes {unused}, by which the grader knows what a stage is built with"
    yield from faults_of_patches(stage)


def faults_of_patches(stage):
    patches = wrong_answers(stage)
    if len(patches) < WRONG_ANSWERS:
        yield f"{len(patches)} wrong answers, fewer than {WRONG_ANSWERS}"
    for patch in patches:
        words = said(patch)
        if set(words) != {"Mistake", "Fails", "Says"} or words["Fails"] not in [test.name for test in stage.tests]:
            yield f"{patch.name} must begin with Mistake:, Fails: (a test of this stage) and Says:"
        with tempfile.TemporaryDirectory() as place:
            try:
                patched(patch, pathlib.Path(place))
            except patching.PatchError as error:
                yield str(error)


def check_whole(names):
    stages = load_stages(ROOT)
    problems = [f"{stage.name}: {fault}" for stage in stages for fault in faults_of(stage, stages)]
    if [stage.name for stage in stages] != names:
        problems.append(f"tests/course/CMakeLists.txt lists {names}, but there are {[stage.name for stage in stages]}")
    if table(stages) not in (COURSE / "README.md").read_text():
        problems.append("examples/course/README.md: its table is not that of the stages: run tests/course/run_course.py table")
    strangers = {path.name for path in SOLUTION.iterdir()} - {path for stage in stages for path in stage.files}
    if strangers:
        problems.append(f"tests/course/solution/ has files of no stage: {sorted(strangers)}")
    print("\n".join(problems) or f"{len(stages)} stages, {sum(stage.points for stage in stages)} points, "
          f"{len(list(WRONG.glob('*.patch')))} wrong answers")
    return not problems


def main():
    if sys.argv[1] == "table":
        return write_table()
    if sys.argv[1] == "whole":
        return 0 if check_whole(sys.argv[2:]) else 1
    return 0 if all([run(find(ROOT, name)) for name in sys.argv[1:]]) else 1


if __name__ == "__main__":
    sys.exit(main())
