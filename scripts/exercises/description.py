"""What an exercise is: the folder examples/exercises/NN_name/ with exercise.json, text.md, starter/ and test.cpp; and a stage of the
course: examples/course/stageNN/ with stage.json, text.md, given/ and test.cpp."""
import dataclasses
import gzip
import json
import os
import pathlib
import re
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
    slow: bool = False  # the project's own tests grade planted mistakes without it


class Exercise:
    """Attributes are those of exercise.json: title, chapter, minutes, files, tests;
    kind: "cpu" (test.cpp, with GoogleTest) or "lab" (a kernel, with kernel_lab.sh); kernel: its name;
    library: whether the tests are linked with Athanor; tree: files taken from the source tree, then changed by starter.patch;
    seconds, megabytes: limits of a test."""
    all_seconds = 60  # by the clock, for all tests, once compiled
    wall_times = 3  # by the clock, a test may take this many times the seconds that it may compute

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
            copy_file(work / path, folder / path, f"restore it, or start {self.number} in another folder")
        for own in self.own_tests():
            shutil.copy(own, folder / own.name)

    def own_tests(self):
        return sorted(self.folder.glob("*.cpp")) + sorted(self.folder.glob("*.h"))

    def data_into(self, folder):
        """What the tests read, beside them."""


class Stage:
    """A stage of the course, to the grader an exercise. Its files lie in one folder with those of all other stages; it is built with
    those stages whose headers it includes.
    Attributes are those of stage.json: title, chapters, minutes, lines (of the reference solution), files (which the student writes;
    NAME_main.cpp are programs), tests; data: files of the repository that the tests read, without .gz; seconds, megabytes: limits of
    a test."""
    kind, library, tree = "cpu", False, []
    all_seconds = 600  # its tests train; other work on the machine must not cost points

    def __init__(self, root, folder):
        self.root, self.folder, self.name = root, folder, folder.name
        self.number = self.name
        data = json.loads((folder / "stage.json").read_text())
        self.title, self.chapters, self.minutes, self.lines = data["title"], data["chapters"], data["minutes"], data["lines"]
        self.files, self.own_data = data["files"], data.get("data", [])
        self.seconds, self.megabytes = data.get("seconds", 10), data.get("megabytes", 1024)
        self.tests = [Test(**test) for test in data["tests"]]

    points, wall_times = Exercise.points, Exercise.wall_times

    def given(self):
        """What the student gets and does not change: headers and programs."""
        return sorted((self.folder / "given").iterdir())

    def sources(self):
        """What the student writes of the engine, without programs."""
        return [path for path in self.files if not path.endswith("_main.cpp")]

    def used(self, work):
        """This stage and all whose headers are included by its test, or by what the student wrote in `work` and is built with it."""
        givers = {path.name: (stage, path) for stage in load_stages(self.root) for path in stage.given()}
        used, seen, waiting = {self.name: self}, set(), [self.folder / "test.cpp", *(work / path for path in self.sources())]
        while waiting:
            path = waiting.pop()
            if path in seen or not path.is_file():
                continue
            seen.add(path)
            for name in includes(path.read_bytes()):
                stage, header = givers.get(name, (None, work / name))
                waiting.append(header)
                if stage and stage.name not in used:
                    used[stage.name] = stage
                    waiting += [work / source for source in stage.sources()]
        return [used[name] for name in sorted(used)]

    def start_into(self, work):
        """Copies what is given, and that of the stages it uses where it is not there. What the student writes is left alone. Returns
        the files of those stages that are missing."""
        work.mkdir(parents=True, exist_ok=True)
        used = self.used(work)
        for stage in used:
            copies = {path.name: path for path in stage.given()} | {f"{stage.name}_test.cpp": stage.folder / "test.cpp"}
            for name, source in copies.items():
                if stage.name == self.name or not (work / name).exists():
                    shutil.copy(source, work / name)
            page = (stage.folder / "text.md").read_text().replace("../../../", os.path.relpath(self.root, work) + "/")
            (work / f"{stage.name}.md").write_text(page)
        build = work / "CMakeLists.txt"
        if not build.exists():
            build.write_text((self.folder.parent / "CMakeLists.txt").read_text().replace("@ATHANOR@", str(self.root)))
        self.data_into(work)
        return [path for stage in used if stage.name != self.name for path in stage.sources() if not (work / path).is_file()]

    def stage(self, work, folder):
        """Into an empty `folder`: the student's files and headers, and everything that is given as the course has it."""
        for path in sorted(work.glob("*.h")):
            if path.is_file() and not path.is_symlink():
                shutil.copy(path, folder / path.name)
        for stage in self.used(work):
            for path in stage.sources():
                copy_file(work / path, folder / path, f"{stage.name} has you write it")
            for path in stage.given():
                if path.suffix == ".h":
                    shutil.copy(path, folder / path.name)
        shutil.copy(self.folder / "test.cpp", folder / f"{self.name}_test.cpp")

    def data_into(self, folder):
        for stage in self.used(folder):
            for path in stage.own_data:
                packed = (self.root / path).read_bytes()
                name = pathlib.Path(path).name
                (folder / name.removesuffix(".gz")).write_bytes(gzip.decompress(packed) if name.endswith(".gz") else packed)


def includes(text):
    """The headers that a source names."""
    return [name.decode(errors="replace") for name in re.findall(rb'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.M)]


def copy_file(source, target, hint):
    if source.is_symlink() or not source.is_file():
        raise UserError(f"check: {source} must exist, as a file: {hint}")
    shutil.copy(source, target)


def folder_of(root):
    return root / "examples" / "exercises"


def stage_folders(root):
    return sorted(path.parent for path in (root / "examples" / "course").glob("stage[0-9][0-9]/stage.json"))


def load_stages(root):
    return [Stage(root, folder) for folder in stage_folders(root)]


def load_all(root):
    folders = sorted(path.parent for path in folder_of(root).glob("[0-9][0-9]_*/exercise.json"))
    return [Exercise(root, folder) for folder in folders]


def find(root, which):
    """The exercise, by number or name, or the stage of the course, by name."""
    if which.startswith("stage"):
        stages = load_stages(root)
        for stage in stages:
            if which == stage.name:
                return stage
        raise UserError(f"there is no {which}: the course has {', '.join(stage.name for stage in stages)}")
    exercises = load_all(root)
    for exercise in exercises:
        if which in (exercise.name, exercise.name[3:]) or (which.isdigit() and int(which) == exercise.number):
            return exercise
    raise UserError(f"there is no exercise {which}: scripts/exercise.sh list shows all {len(exercises)}")
