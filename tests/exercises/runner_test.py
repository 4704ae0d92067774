"""scripts/exercise.sh on a made-up exercise: what each kind of hand-in gets, and what the JSON says."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from exercises import limits  # noqa: E402

QUESTIONS = ["Is42", "Loops", "Hoards", "Leaves", "Crashes"]
EXERCISE = {"title": "Answer", "chapter": "autograd.md", "minutes": 1, "files": ["answer.cpp"], "seconds": 1, "megabytes": 100,
            "tests": [*({"name": f"Answer.{name}", "points": 2} for name in QUESTIONS), {"name": "Answer.Exists", "points": 1}]}
TEST = """#include <gtest/gtest.h>
int answer(int question);
""" + "".join(f"TEST(Answer, {name}) {{ EXPECT_EQ(answer({i}), 42) << \"the answer is another\"; }}\n" for i, name in enumerate(QUESTIONS)) + """
TEST(Answer, Exists) {}
"""
STARTER = "int answer(int question) { return 41 + (question > 0); }\n"
# All points, though it leaves a child behind. Where the network is out of reach, it must be so.
RIGHT = """#include <net/if.h>
#include <unistd.h>
int answer(int) {
  if (fork() == 0) pause();
  int count = 0;
  for (const auto* name = if_nameindex(); name->if_index != 0; ++name) ++count;
  return count <= 1 || !NO_NETWORK ? 42 : 0;
}
"""
# One thing wrong for each question, and what must be said of it. Each test is a process, so that one takes no other along.
WRONG = """#include <unistd.h>
#include <vector>
volatile bool on = true;
int* volatile null = nullptr;
int answer(int question) {
  switch (question) {
    case 0: return 41;
    case 1: while (on) {}
    case 2: { std::vector<char> v(1 << 30, 1); return v[7] + 41; }
    case 3: _exit(0);
    default: return *null;
  }
}
"""
WORDS = ["the answer is another", "it had not ended after", "more than 100 MB", "before the test had", "crashed with signal 11"]


def run(root, *arguments):
    return subprocess.run(["bash", root / "scripts" / "exercise.sh", *arguments], capture_output=True, text=True)


def expect(condition, words):
    if not condition:
        raise SystemExit(words)


def make_root(root):
    shutil.copytree(ROOT / "scripts" / "exercises", root / "scripts" / "exercises", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("exercise.sh", "exercise.py"):
        shutil.copy(ROOT / "scripts" / name, root / "scripts" / name)
    folder = root / "examples" / "exercises" / "01_answer"
    (folder / "starter").mkdir(parents=True)
    (folder / "exercise.json").write_text(json.dumps(EXERCISE))
    (folder / "text.md").write_text("# Answer\n")
    (folder / "test.cpp").write_text(TEST)
    (folder / "starter" / "answer.cpp").write_text(STARTER)


def check_commands(root):
    listed = json.loads(run(root, "list", "--json").stdout)["exercises"]
    expect(listed[0]["exercise"] == 1 and listed[0]["points"] == 11, f"list --json says {listed}")
    expect("Answer" in run(root, "list").stdout, "list must name the exercise")
    missing = run(root, "check", "1")
    expect(missing.returncode == 2 and "must exist" in missing.stderr, f"check before start: {missing}")
    started = run(root, "start", "1")
    expect(started.returncode == 0 and "answer.cpp" in started.stdout, f"start: {started}")
    again = run(root, "start", "answer")
    expect(again.returncode == 2 and "must not exist" in again.stderr, f"start must not overwrite work: {again}")
    unknown = run(root, "start", "99")
    expect(unknown.returncode == 2 and "there is no exercise 99" in unknown.stderr, f"start 99: {unknown}")


def check_starter(root, work):
    (work / "test.cpp").write_text(TEST.replace("42)", "41)"))  # a tampered test
    file = root / "results.json"
    checked = run(root, "check", "1", "--json", "--results", str(file))
    expect(checked.returncode == 1, f"the starter must lose points: {checked}")
    said = json.loads(checked.stdout)
    expect((said["exercise"], said["points"], said["of"]) == (1, 9, 11), f"the starter, with a changed test: {said}")
    expect([(test["name"], test["passed"]) for test in said["tests"]] ==
           [*((f"Answer.{name}", name != "Is42") for name in QUESTIONS), ("Answer.Exists", True)], str(said))
    expect("the answer is another" in said["tests"][0]["output"], f"the output must say what is wrong: {said}")
    results = json.loads(file.read_text())
    expect(set(results) <= {"score", "execution_time", "output", "visibility", "stdout_visibility", "extra_data", "tests", "leaderboard"},
           f"keys that Gradescope does not know: {results}")
    expect(results["score"] == 9 and results["tests"][0] == {
        "name": "Answer.Is42", "score": 0, "max_score": 2, "status": "failed", "output": said["tests"][0]["output"],
        "visibility": "visible"}, f"results.json: {results}")


def check_hand_in(root, work, text, points):
    """What is said of a hand-in that gets so many points."""
    (work / "answer.cpp").write_text(text, errors="surrogateescape")
    checked = run(root, "check", "1", "--json")
    said = json.loads(checked.stdout)
    expect(said["points"] == points and checked.returncode == (0 if points == 11 else 1), f"{text}: {points} points, but {said}")
    return [test["output"] for test in said["tests"]]


def check_hand_ins(root, work):
    check_hand_in(root, work, RIGHT.replace("NO_NETWORK", "true" if limits.no_network() else "false"), 11)
    said = check_hand_in(root, work, WRONG, 1)
    for name, words, output in zip(QUESTIONS, WORDS, said):
        expect(words in output, f"{name}: it must say '{words}', but: {output}")
        expect("[ RUN" not in output and "Running main" not in output, f"{name}: what GoogleTest prints before a test tells nobody anything: {output}")
    left = subprocess.run(["pgrep", "-f", str(root)], capture_output=True, text=True).stdout
    expect(not left, f"processes were left behind: {left}")
    said = check_hand_in(root, work, "int answer(int) { return \udcff }", 0)
    expect("answer.cpp does not compile" in said[0], f"no C++: {said}")
    (work / "answer.cpp").unlink()
    checked = run(root, "check", "1")
    expect(checked.returncode == 2 and "answer.cpp must exist, as a file" in checked.stderr, f"a missing file: {checked}")


def main():
    with tempfile.TemporaryDirectory(prefix="exercise-runner-") as name:
        root = pathlib.Path(name)
        (root / "scripts").mkdir()
        make_root(root)
        work = root / "my_exercises" / "01_answer"
        check_commands(root)
        check_starter(root, work)
        check_hand_ins(root, work)


if __name__ == "__main__":
    main()
