"""run_answers.py NAME...: for each exercise, the starter and every wrong answer must lose points, the solution none; a wrong
answer's test must fail and name its mistake, as the patch says. Prints a line for each; code 1 if one is not so."""
import copy
import pathlib
import re
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from exercises import grading, patching  # noqa: E402
from exercises.description import find  # noqa: E402

ANSWERS = ROOT / "tests" / "exercises" / "answers"


def on_a_busy_machine(exercise):
    """The exercise; what its tests compute counts, not how long that takes beside other work."""
    result = copy.copy(exercise)
    result.wall_times, result.all_seconds = 60, 10 * exercise.all_seconds
    return result


def grade(exercise, patch):
    with tempfile.TemporaryDirectory(prefix="answer-") as name:
        work = pathlib.Path(name)
        exercise.starter_into(work)
        if patch:
            patching.apply(patch.read_text(), work, str(patch.relative_to(ROOT)))
        return grading.grade(ROOT, on_a_busy_machine(exercise), work)


def said(patch):
    return dict(re.findall(r"^(Mistake|Fails|Says): (.*)$", patch.read_text(), re.M))


def failures(graded):
    return {outcome.name: outcome.output for outcome in graded.outcomes if not outcome.passed}


def problem(exercise, patch, graded):
    """What is not as it must be; empty where all is right."""
    failed = failures(graded)
    everything = "\n".join(f"{name}: {output}" for name, output in failed.items())
    if patch and patch.name == "solution.patch":
        return everything
    if not patch and failed:
        return "it does not compile" if "does not compile" in everything else ""
    return unnoticed(patch, graded)


def unnoticed(patch, graded):
    """Why a wrong answer was not noticed, or its mistake not named; empty where it was."""
    failed = failures(graded)
    everything = "\n".join(f"{name}: {output}" for name, output in failed.items())
    if not failed:
        return "it has all points"
    expected = said(patch)
    if expected["Fails"] not in failed:
        return f"{expected['Fails']} must fail, but it passes; failed:\n{everything}"
    if expected["Says"] not in failed[expected["Fails"]]:
        return f"{expected['Fails']} must say \"{expected['Says']}\", but says:\n{failed[expected['Fails']]}"
    return ""


def main():
    bad = 0
    for name in sys.argv[1:]:
        exercise = find(ROOT, name)
        for patch in [None, *sorted((ANSWERS / exercise.name).glob("*.patch"))]:
            begin = time.monotonic()
            graded = grade(exercise, patch)
            why = problem(exercise, patch, graded)
            print(f"{'BAD ' if why else 'ok  '} {exercise.name} {patch.stem if patch else 'starter':<32} "
                  f"{graded.points} of {exercise.points}, {time.monotonic() - begin:.1f} s", flush=True)
            if why:
                print("     " + why.replace("\n", "\n     "), flush=True)
            bad += bool(why)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
