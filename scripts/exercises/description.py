"""What an exercise is: the folder examples/exercises/NN_name/ with exercise.json, text.md, starter/ and test.cpp."""
import dataclasses
import json
import pathlib
import shutil

from . import patching


class UserError(Exception):
    """What the caller must change, in one line."""


@dataclasses.dataclass
class Test:
    name: str
    points: int
    counter: str = ""   # kernels: a column of kernel_lab.sh --table,
    at_most: int = 0    # which must not be larger;
    says: str = ""      # else this is said


class Exercise:
    """Attributes are those of exercise.json: title, chapter, minutes, files, tests;
    kind: "cpu" (test.cpp, with GoogleTest) or "lab" (a kernel, with kernel_lab.sh); kernel: its name;
    library: whether the tests are linked with Athanor; tree: files taken from the source tree, then changed by starter.patch;
    seconds, megabytes: limits of a test."""

    def __init__(self, root, folder):
        self.root, self.folder, self.name = root, folder, folder.name
        self.number = int(folder.name[:2])
        data = json.loads((folder / "exercise.json").read_text())
        self.title, self.chapter, self.minutes = data["title"], data["chapter"], data["minutes"]
        self.kind, self.library = data.get("kind", "cpu"), data.get("library", False)
        self.kernel = data.get("kernel", "")
        self.files, self.tree = data["files"], data.get("tree", [])
        self.seconds, self.megabytes = data.get("seconds", 10), data.get("megabytes", 1024)
        self.tests = [Test(**test) for test in data["tests"]]

    @property
    def points(self):
        return sum(test.points for test in self.tests)

    def starter_into(self, folder):
        """Copies the files to change, as they are at the start."""
        given = self.folder / "starter"
        if given.is_dir():
            shutil.copytree(given, folder, dirs_exist_ok=True)
        packed = given.is_dir() and all((given / path).is_file() for path in self.tree)
        if not self.tree or packed:  # the tarball has them as they are at the start
            return
        for path in self.tree:
            target = folder / pathlib.Path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.root / path, target)
        patching.apply((self.folder / "starter.patch").read_text(), folder, f"{self.name}/starter.patch")

    def stage(self, work, folder):
        """Into an empty `folder`: the student's files, and everything else as the exercise has it."""
        self.starter_into(folder)
        for path in self.files:
            source = work / path
            if source.is_symlink() or not source.is_file():
                raise UserError(f"check: {source} must exist, as a file: restore it, or start {self.number} in another folder")
            shutil.copy(source, folder / path)
        for own in self.own_tests():
            shutil.copy(own, folder / own.name)

    def own_tests(self):
        return sorted(self.folder.glob("*.cpp")) + sorted(self.folder.glob("*.h"))


def folder_of(root):
    return root / "examples" / "exercises"


def load_all(root):
    folders = sorted(path.parent for path in folder_of(root).glob("[0-9][0-9]_*/exercise.json"))
    return [Exercise(root, folder) for folder in folders]


def find(root, which):
    exercises = load_all(root)
    for exercise in exercises:
        if which in (exercise.name, exercise.name[3:]) or (which.isdigit() and int(which) == exercise.number):
            return exercise
    raise UserError(f"there is no exercise {which}: scripts/exercise.sh list shows all {len(exercises)}")
