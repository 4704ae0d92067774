"""check_exercises.py NAME...: the exercises of examples/exercises/ are whole, without building any. NAMEs are all that there must
be. Every patch applies; every wrong answer says what is wrong with it; names in exercise.json are those of the tests; nothing that
students get holds an answer. Prints what is not so; code 1."""
import json
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from exercises import grading, patching  # noqa: E402
from exercises.description import folder_of, load_all  # noqa: E402

ANSWERS = ROOT / "tests" / "exercises" / "answers"
FEWEST = 20
LEVELS = ("beginner", "intermediate", "advanced")
problems = []


def must(condition, words):
    if not condition:
        problems.append(words)


def tests_in(exercise):
    if exercise.kind == "lab":
        return {"values", "bounds", "races"} | {test.name for test in exercise.tests if test.counter in grading.COLUMNS}
    return {f"{suite}.{name}" for suite, name in re.findall(r"^TEST\((\w+), (\w+)\)", (exercise.folder / "test.cpp").read_text(), re.M)}


def check_description(exercise):
    name = exercise.name
    must((ROOT / "docs" / exercise.chapter).is_file(), f"{name}: there is no chapter docs/{exercise.chapter}")
    text = (exercise.folder / "text.md").read_text()
    must(text.startswith(f"# {exercise.title}\n"), f"{name}: text.md must begin with the title, # {exercise.title}")
    must("**Your task.**" in text, f"{name}: text.md states no task")
    must(level_of(exercise) in LEVELS, f"{name}: its level must be one of {', '.join(LEVELS)}")
    must(5 <= exercise.points <= 10, f"{name}: {exercise.points} points; all exercises are worth about the same")
    named = [test.name for test in exercise.tests]
    must(len(named) == len(set(named)) and set(named) >= tests_in(exercise) - {"barriers"} and set(named) <= tests_in(exercise),
         f"{name}: exercise.json names {sorted(named)}, but the tests are {sorted(tests_in(exercise))}")
    given = {path.name for path in exercise.folder.iterdir()}
    allowed = {"exercise.json", "text.md", "starter", "starter.patch", "test.cpp"} | {path.name for path in exercise.folder.glob("*.h")}
    must(given <= allowed, f"{name}: students would get {sorted(given - allowed)}")
    must(bool(exercise.tree) == (exercise.folder / "starter.patch").is_file(), f"{name}: starter.patch goes with files of the tree")


def level_of(exercise):
    return json.loads((exercise.folder / "exercise.json").read_text()).get("level", "none")


def lines_of(folder, files):
    return {file: (folder / file).read_text().splitlines() for file in files}


def check_patches(exercise):
    folder = ANSWERS / exercise.name
    wrong = sorted(folder.glob("wrong_*.patch"))
    must(len(wrong) >= 3, f"{exercise.name}: {len(wrong)} wrong answers, but three are needed")
    names = {test.name for test in exercise.tests}
    results = {}
    for patch in [None, folder / "solution.patch", *wrong]:
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place)
            try:
                exercise.starter_into(place)
                if patch:
                    patching.apply(patch.read_text(), place, str(patch.relative_to(ROOT)))
            except (patching.PatchError, OSError) as error:
                problems.append(str(error))
                continue
            missing = [file for file in exercise.files if not (place / file).is_file()]
            must(not missing, f"{exercise.name}: the starter has no {missing}")
            if missing:
                return
            results[patch.name if patch else "starter"] = lines_of(place, exercise.files)
        if patch in wrong:
            said = dict(re.findall(r"^(Mistake|Fails|Says): (.+)$", patch.read_text(), re.M))
            must(len(said) == 3, f"{patch.relative_to(ROOT)}: it must begin with Mistake:, Fails: and Says:")
            must(said.get("Fails") in names, f"{patch.relative_to(ROOT)}: there is no test {said.get('Fails')}")
    alike = [(a, b) for a in results for b in results if a < b and results[a] == results[b]]
    must(not alike, f"{exercise.name}: these are the same: {alike}")


def check_tree(exercise):
    """A solution of a file of the tree is that file again, but for comments and spaces."""
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        exercise.starter_into(place)
        patching.apply((ANSWERS / exercise.name / "solution.patch").read_text(), place, exercise.name)
        for path in exercise.tree:
            code = [re.sub(r"\s|//.*", "", (folder / path).read_text()) for folder in (ROOT, place)]
            must(code[0] == code[1], f"{exercise.name}: the solution of {path} is not the library's file")


def main():
    exercises = load_all(ROOT)
    names = [exercise.name for exercise in exercises]
    must(names == sorted(sys.argv[1:]), f"tests/exercises/CMakeLists.txt lists {sorted(sys.argv[1:])}, but there are {names}")
    must([exercise.number for exercise in exercises] == list(range(1, len(exercises) + 1)), f"numbers have gaps: {names}")
    must(len(exercises) >= FEWEST, f"{len(exercises)} exercises, but {FEWEST} are promised")
    must(sorted(path.name for path in ANSWERS.iterdir()) == names, "tests/exercises/answers/ has other folders than examples/exercises/")
    for exercise in exercises:
        check_description(exercise)
        check_patches(exercise)
        if exercise.tree:
            check_tree(exercise)
    table = (folder_of(ROOT) / "README.md").read_text()
    for exercise in exercises:
        row = f"| {exercise.number} | {exercise.title} | [{exercise.chapter}](../../docs/{exercise.chapter}) | {exercise.points} | {exercise.minutes} | {level_of(exercise)} |"
        must(row in table, f"examples/exercises/README.md needs the row: {row}")
    print("\n".join(problems) or f"{len(exercises)} exercises, {sum(exercise.points for exercise in exercises)} points, "
          f"{len(list(ANSWERS.glob('*/wrong_*.patch')))} wrong answers")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
