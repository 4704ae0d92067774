#!/usr/bin/env python3
"""Would a test notice? Changes an operator, a constant or a condition at a random place of the library, builds and runs the files of
tests nearest to it, and reports the faults that no test saw.

    scripts/mutate.py --count 150 [--seed 1] [--first 0] [--report build/mutate/report.jsonl]
    scripts/mutate.py --list --count 20            # shows the faults, builds nothing

Works in a git worktree of its own (build/mutate/tree, at HEAD), so that no working files change; there a fault is undone whatever
happens, Ctrl-C included. Fault number i depends on the seed, i and the sources alone: a run can be cut into pieces with --first.
Faults that do not compile are drawn again. Ends with 1 where more than --most percent survive.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ["kernels/cpu", "autograd", "nn", "optim", "dist", "data", "trainer"]
PASSIVE = {"OMP_WAIT_POLICY": "passive"}

# Sources are formatted, so that an operator with two operands has a space on either side, and `<` of a template has none.
OPERATORS = {
    "<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"], "==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"],
    "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"], "+=": ["=", "-="], "-=": ["=", "+="], "*=": ["=", "/="], "/=": ["*="],
}
OPERATOR = re.compile(r"(?<= )(" + "|".join(re.escape(o) for o in sorted(OPERATORS, key=len, reverse=True)) + r")(?= )")
NUMBER = re.compile(r"(?<![\w.'])(\d+(?:'\d+)*(?:\.\d+)?(?:e-?\d+)?)(?=f?\b)(?![\w.']*x)")
WORD = re.compile(r"\b(true|false)\b")
CONDITION = re.compile(r"\b(?:if|while) (\()")

Fault = collections.namedtuple("Fault", "file offset old new")


# Faults ------------------------------------------------------------------------------------------------------------------


def blank(text):
    """The text without comments, literals and preprocessor lines, every offset kept."""
    keep = lambda match: re.sub(r"[^\n]", " ", match.group())
    text = re.sub(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', keep, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*|^template [^\n]*>$|static_assert\([^;]*;", keep, text, flags=re.M)


def closing(text, at):
    """Where the parenthesis at `at` ends."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return -1


def changed_number(number):
    number = number.replace("'", "")
    if re.fullmatch(r"\d+", number):
        value = int(number)
        return ["1"] if value == 0 else ["0", "2"] if value == 1 else [str(value + 1), str(value - 1)]
    return ["1.0"] if float(number) == 0 else ["0.0", repr(float(number) * 2)]


def faults_of(file, text):
    """Every fault that can be put into a source."""
    code, found = blank(text), []
    for match in OPERATOR.finditer(code):
        found += [Fault(file, match.start(), match.group(), new) for new in OPERATORS[match.group()]]
    for match in NUMBER.finditer(code):
        found += [Fault(file, match.start(), match.group(), new) for new in changed_number(match.group())]
    for match in WORD.finditer(code):
        found.append(Fault(file, match.start(), match.group(), "false" if match.group() == "true" else "true"))
    for match in CONDITION.finditer(code):
        end = closing(code, match.start(1))
        inside = text[match.start(1) + 1:end]
        if end > 0 and ";" not in inside and not re.match(r"(const )?[\w:<>]+[&*]* \w+ =|const ", inside):
            found.append(Fault(file, match.start(1), text[match.start(1):end + 1], f"(!({inside}))"))
    return found


def draw(random_numbers, faults):
    """A file by how much there is to change in it, then a place in it, then what becomes of it."""
    places = collections.defaultdict(list)
    for fault in faults:
        places[fault.file, fault.offset].append(fault)
    return random_numbers.choice(places[random_numbers.choice(sorted(places))])


# The nearest tests -------------------------------------------------------------------------------------------------------


def unit_of(file):
    """A source and its header are one unit; kernels/cpu/F.cpp implements kernels/F.h."""
    name = re.sub(r"\.(cpp|h)$", "", file)
    return re.sub(r"^kernels/cpu/", "kernels/", name)


def include_graph(tree):
    """{unit: units whose headers it includes}, tests and their support among them."""
    graph = collections.defaultdict(set)
    for folder in {room.split("/")[0] for room in ROOMS} | {"tensor", "kernels", "tests"}:
        for file in (tree / folder).rglob("*"):
            if file.suffix in (".h", ".cpp"):
                name = str(file.relative_to(tree))
                for target in re.findall(r'^\s*#\s*include\s*"([^"]+)"', file.read_text(errors="replace"), re.M):
                        graph[unit_of(name)].add(unit_of(target))
    return graph


def distances(graph, start):
    far, queue = {start: 0}, collections.deque([start])
    while queue:
        unit = queue.popleft()
        for target in graph.get(unit, ()):
            if target not in far:
                far[target] = far[unit] + 1
                queue.append(target)
    return far


def nearest_tests(file, tests, graph, far, count):
    """Files of tests for a source: those named like it first, then those that reach it by the fewest includes."""
    unit, base = unit_of(file), pathlib.Path(file).stem
    rows = []
    for test in tests:
        name = pathlib.Path(test).name.removesuffix("_test")
        named = 0 if name == base else 1 if base.startswith(name + "_") or name.startswith(base + "_") else 2
        reach = far[test].get(unit)
        if reach is None:  # the unit of a family's further files: conv_direct belongs to conv
            family = re.sub(r"_[a-z0-9]+$", "", unit)
            reach = far[test].get(family)
        if named < 2 or reach is not None:
            rows.append((named, 99 if reach is None else reach, len(far[test]), test))
    return [row[-1] for row in sorted(rows)[:count]]


# The worktree ------------------------------------------------------------------------------------------------------------


def program_of(test):
    """The tests of a room are one program: tests/ROOM/NAME_test.cpp is in ROOM_test."""
    return test.split("/")[0] + "_test"


def hear_interrupts():
    """Tests send themselves SIGINT, which a shell has its background processes ignore: they would wait for ever."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Workshop:
    """A checkout and a build folder where faults are put in, built, tested and undone."""

    def __init__(self, folder, preset, settings, seconds):
        self.tree, self.preset, self.settings, self.seconds = folder / "tree", preset, settings, seconds
        self.build = self.tree / "build" / preset
        self.sound = {}

    def git(self, *arguments):
        subprocess.run(["git", "-C", str(self.tree), *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def prepare(self):
        head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        if not (self.tree / ".git").exists():
            self.tree.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "-C", str(ROOT), "worktree", "prune"], check=True)
            subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(self.tree), head], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.git("checkout", "--force", "--detach", head)

    def configure(self):
        log = self.tree.parent / "configure.log"
        with open(log, "w") as out:
            if subprocess.run(["cmake", "--preset", self.preset, *self.settings], cwd=self.tree, stdout=out, stderr=out).returncode:
                sys.exit(f"{self.tree} cannot be configured: {log}")
        targets = subprocess.run(["ninja", "-C", str(self.build), "-t", "targets", "all"], check=True, capture_output=True, text=True).stdout
        built = {line.split(":")[0] for line in targets.splitlines()}
        files = [f for f in (self.tree / "tests").glob("*/*_test.cpp") if f"{f.parent.name}_test" in built and not f.stem.endswith("_mpi_test")]
        return sorted(f"{f.parent.name}/{f.stem}" for f in files)

    def make(self, targets):
        """What the compiler says where it does not build, else nothing."""
        done = subprocess.run(["cmake", "--build", str(self.build), "--target", *targets], capture_output=True, text=True)
        return done.stdout + done.stderr if done.returncode else ""

    def run(self, test, seconds):
        """Why a file of tests, ROOM/NAME_test, fails; nothing where it passes."""
        suites = sorted(set(re.findall(r"^(?:TEST(?:_[FP])?|TYPED_TEST)\((\w+)", (self.tree / f"tests/{test}.cpp").read_text(), re.M)))
        command = [str(self.build / "bin" / program_of(test)), "--gtest_brief=1", "--gtest_fail_fast",
                   "--gtest_filter=" + ":".join(f"{suite}.*:*/{suite}.*" for suite in suites) + "-*.Exhaustive*"]
        try:
            done = subprocess.run(command, cwd=self.build, env={**os.environ, **PASSIVE},
                                  capture_output=True, text=True, errors="replace", timeout=seconds,
                                  preexec_fn=hear_interrupts)
        except subprocess.TimeoutExpired:
            return f"{test} hangs"
        if done.returncode == 0:
            return ""
        case = re.search(r"^\[  FAILED  \] (\S+)", done.stdout, re.M)
        return f"{test} {case.group(1) if case else f'ends with {done.returncode}'}"

    def is_sound(self, test):
        """Whether a test passes without a fault; found out once, with its seconds, while the sources are as they should be."""
        if test not in self.sound:
            log = self.make([program_of(test)])
            start = time.monotonic()
            why = f"{test} does not build" if log else self.run(test, self.seconds)
            if why:
                print(f"  skipped: without any fault, {why}", flush=True)
            self.sound[test] = 0 if why else time.monotonic() - start
        return self.sound[test] > 0

    def put_in(self, fault):
        file = self.tree / fault.file
        text = file.read_text()
        assert text[fault.offset:fault.offset + len(fault.old)] == fault.old
        file.write_text(text[:fault.offset] + fault.new + text[fault.offset + len(fault.old):])

    def undo(self, fault):
        self.git("checkout", "--force", "--", fault.file)

    def try_fault(self, fault, tests):
        """("killed", by what), ("survived", tests that passed) or ("invalid", why)."""
        tests = [test for test in tests if self.is_sound(test)]
        try:
            self.put_in(fault)
            if log := self.make(sorted({program_of(test) for test in tests})):
                return "invalid", (re.search(r"error: .*", log) or re.search(r".*", log)).group()
            for test in tests:
                if why := self.run(test, min(self.seconds, 30 + 10 * self.sound[test])):
                    return "killed", why
            return "survived", ", ".join(tests) or "no test is near it"
        finally:
            self.undo(fault)


# -------------------------------------------------------------------------------------------------------------------------


def describe(tree, fault):
    text = (tree / fault.file).read_text()
    line = text.count("\n", 0, fault.offset) + 1
    begin, end = text.rfind("\n", 0, fault.offset) + 1, text.find("\n", fault.offset)
    column = fault.offset - begin
    before = text[begin:end].rstrip()
    after = (before[:column] + fault.new + before[column + len(fault.old):]) if "\n" not in fault.old else before[:column] + fault.new
    return line, before.strip(), " ".join(after.split())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10, help="faults to try")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="+", default=ROOMS)
    parser.add_argument("--headers", action="store_true", help="also change headers, which rebuilds more")
    parser.add_argument("--tests", type=int, default=5, help="files of tests to run for a fault")
    parser.add_argument("--seconds", type=float, default=600, help="a test that takes longer counts as hanging, as does one that takes 30 s and ten times its time without a fault")
    parser.add_argument("--most", type=float, default=100, help="percentage of faults that may survive")
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings for CMake")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "mutate")
    parser.add_argument("--report", type=pathlib.Path, help="append a JSON line per fault")
    parser.add_argument("--list", action="store_true", help="show the faults without trying them")
    return parser.parse_args()


def main():
    options = arguments()
    for name in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: whatever is in the tree is undone
        signal.signal(name, signal.default_int_handler)
    shop = Workshop(options.folder.resolve(), options.preset, [f"-D{setting}" for setting in options.set], options.seconds)
    shop.prepare()
    suffixes = ("*.cpp", "*.h") if options.headers else ("*.cpp",)
    files = sorted({str(f.relative_to(shop.tree)) for room in options.rooms for suffix in suffixes for f in (shop.tree / room).rglob(suffix)})
    faults = [fault for file in files for fault in faults_of(file, (shop.tree / file).read_text())]
    print(f"{len(faults):,} faults could be put into {len(files)} files", flush=True)
    if not faults:
        sys.exit("there is nothing to change")
    tests = [] if options.list else shop.configure()
    graph = include_graph(shop.tree)
    far = {test: distances(graph, f"tests/{test}") for test in tests}
    counts, survivors = collections.Counter(), []
    try:
        for number in range(options.first, options.first + options.count):
            random_numbers = random.Random(f"{options.seed}/{number}")
            start, outcome = time.monotonic(), "invalid"
            while outcome == "invalid":
                fault = draw(random_numbers, faults)
                line, before, after = describe(shop.tree, fault)
                if options.list:
                    outcome, why = "listed", ""
                else:
                    outcome, why = shop.try_fault(fault, nearest_tests(fault.file, tests, graph, far, options.tests))
            counts[outcome] += 1
            print(f"{number:>4} {outcome:<8} {fault.file}:{line}: {before}  ->  {after}" + (f"   [{why}]" if why else ""), flush=True)
            row = {"number": number, "outcome": outcome, "file": fault.file, "line": line, "before": before, "after": after, "why": why,
                   "seconds": round(time.monotonic() - start, 1)}
            if outcome == "survived":
                survivors.append(row)
            if options.report and not options.list:
                options.report.parent.mkdir(parents=True, exist_ok=True)
                with open(options.report, "a") as out:
                    out.write(json.dumps(row) + "\n")
    except KeyboardInterrupt:
        print("stopped; the tree is unchanged")
    tried = counts["killed"] + counts["survived"]
    if options.list or not tried:
        return
    share = 100 * counts["survived"] / tried
    print(f"{tried} faults: {counts['killed']} killed, {counts['survived']} survived ({share:.1f} %)")
    for row in survivors:
        print(f"  {row['file']}:{row['line']}: {row['before']}  ->  {row['after']}")
    sys.exit(1 if share > options.most else 0)


if __name__ == "__main__":
    main()
