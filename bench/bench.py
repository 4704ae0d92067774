#!/usr/bin/env python3
"""Runs the benchmarks, writes JSON and Markdown, and compares with an earlier run: scripts/bench.sh --help, bench/README.md."""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
sys.path.insert(0, str(HERE))

import decide  # noqa: E402
from interleave import Worker, WorkerError, quantile  # noqa: E402
from ratios import processor, stolen_and_all  # noqa: E402

LAUNCHES = 3  # of a run without a comparison
TURNS = 4     # of each side in a launch, in the order old new new old
MOST_STOLEN = 0.02
# Programs that print tables of their own, and how a run of all calls them. bench_cuda runs on a GPU, by scripts/gpu_visit.sh.
OWN = {"bench_collective": ["mpirun", "-n", "2", "{}", "--rounds", "5"], "bench_conv_choices": ["{}", "resnet20:128"],
       "bench_inference": ["{}", "resnet20", "1", "100"], "bench_trainer": ["{}", "5"], "bench_cuda": None}


class Binary:
    """One side of a comparison: a bench program as a worker."""

    def __init__(self, path, log, planted=0.0):
        # Threads that wait must not take the cores from the other side, whose turn it is.
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
        self.worker = Worker(f"exec '{path}' --worker {planted}", env=environment, stderr=log)
        self.rows = self.worker.about["cases"]
        self.threads = self.worker.about["threads"]

    def turn(self, row, seconds):
        """Seconds of a run: the 10th percentile, which leaves out those that other work has interrupted."""
        return quantile(self.worker.time(row, "row", seconds)["seconds"], 0.1)

    def samples(self, row, seconds):
        return self.worker.time(row, "row", seconds)["seconds"]

    def roof(self, row):
        return self.worker.time(row, "roof", 0)

    def end(self):
        self.worker.end()


def rows_of(path, pattern, log):
    binary = Binary(path, log)
    rows = {name: work for name, work in binary.rows.items() if re.search(pattern, name)}
    binary.end()
    return rows


# Measuring -----------------------------------------------------------------------------------------------------------

def measure(path, names, seconds, launches, log):
    """{row: {"median_us", "p10_us", "p90_us", "launches": [seconds], "roof"}}, or {"error"} where its result is wrong or its data is missing."""
    times, all_samples, roofs, errors = {name: [] for name in names}, {name: [] for name in names}, {}, {}
    for launch in range(launches):
        binary = Binary(path, log)
        for name in names:
            if name in errors:
                continue
            try:
                if launch == 0:
                    roofs[name] = binary.roof(name)
                samples = binary.samples(name, seconds)
            except WorkerError as error:
                errors[name] = str(error)
                continue
            times[name].append(quantile(samples, 0.1))
            all_samples[name] += samples
        binary.end()
    for name in names:
        if name in errors:
            yield name, {"error": errors[name]}
            continue
        samples = all_samples[name]
        yield name, {"median_us": statistics.median(samples) * 1e6, "p10_us": quantile(samples, 0.1) * 1e6,
                     "p90_us": quantile(samples, 0.9) * 1e6, "launches": times[name], "roof": roofs[name]}


def with_roof(row, work):
    """Adds GB/s, GFLOP/s and the larger part of a roof that the median reaches."""
    if "error" in row:
        return row
    seconds, best = row["median_us"] * 1e-6, (0, None)
    for amount, unit, name, per_second in ((work["bytes"], "gb_per_s", "copy", row["roof"]["bytes_per_s"]),
                                           (work["flops"], "gflop_per_s", "FMA", row["roof"]["flops_per_s"])):
        if amount > 0:
            row[unit] = amount / seconds * 1e-9
            best = max(best, (amount / seconds / per_second if per_second else 0, name))
    if best[1]:
        row["roof_percent"], row["roof_name"] = 100 * best[0], best[1]
    return row


# Comparing -----------------------------------------------------------------------------------------------------------

class Pair:
    """Launches of two binaries, in turns."""

    def __init__(self, old, new, seconds, log, planted=0.0, record=None):
        self.old, self.new, self.seconds, self.log, self.planted, self.record = old, new, seconds, log, planted, record

    def launch(self, names):
        old, new, found = Binary(self.old, self.log), Binary(self.new, self.log, self.planted), {}
        for name in names:
            if name not in old.rows or name not in new.rows:
                continue
            try:
                ratios = []
                for turn in range(TURNS):
                    first, second = (old, new) if turn % 2 == 0 else (new, old)
                    times = {side: side.turn(name, self.seconds) for side in (first, second)}
                    ratios.append(times[new] / times[old])
                found[name] = statistics.median(ratios)
                if self.record is not None:
                    self.record.setdefault(name, []).append(found[name])
            except WorkerError:
                continue
        old.end()
        new.end()
        return found


def compare_binaries(old, new, names, args, log, planted=0.0, record=None):
    return dict(decide.compare(list(names), Pair(old, new, args.seconds, log, planted, record).launch))


# Files ---------------------------------------------------------------------------------------------------------------

def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]


def keep(binary, folder):
    """Copies a binary to where later comparisons find it, whatever is built meanwhile. Returns its path there."""
    kept = folder / digest(binary) / binary.name
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(binary, kept.with_suffix(".part"))
        kept.with_suffix(".part").rename(kept)
    return kept


def write(path, text):
    part = pathlib.Path(f"{path}.part")
    part.write_text(text, encoding="utf-8")
    part.rename(path)


def number(value, digits=4):
    return f"{value:,.{max(0, digits - len(str(int(value))))}f}"


def markdown(report):
    about = report["machine"]
    lines = [f"# Benchmarks, {report['date']}", "", f"Machine: {about['processor']}, {about['cores']} cores, {', '.join(about['isa'])};"
             f" load {report['load']:.1f}" + (f", {report['stolen']:.0%} of the processors' time went to other machines: void"
                                             if report["stolen"] > MOST_STOLEN else "") + ".", "", f"    {report['command']}", ""]
    for binary, rows in report["benchmarks"].items():
        lines += [f"## {binary}", "", "| row | median us | p10 .. p90 | GB/s | GFLOP/s | % of roof |", "|---|---|---|---|---|---|"]
        for name, row in rows.items():
            if "error" in row:
                lines.append(f"| {name} | {row['error']} | | | | |")
                continue
            cells = [number(row["median_us"]), f"{number(row['p10_us'])} .. {number(row['p90_us'])}",
                     *(number(row[unit]) if unit in row else "-" for unit in ("gb_per_s", "gflop_per_s")),
                     f"{row['roof_percent']:.0f} {row['roof_name']}" if "roof_percent" in row else "-"]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    if report.get("changes"):
        lines += ["## Changes", "", *(f"- {line}" for line in report["changes"]), ""]
    for name, text in report.get("programs", {}).items():
        lines += [f"## {name}", "", *(f"    {line}" for line in text.rstrip().split("\n")), ""]
    return "\n".join(lines)


def summary(verdicts, how):
    """Lines about what has changed."""
    changed = {name: row for name, row in verdicts.items() if row["change"] in ("slower", "faster")}
    unsure = [name for name, row in verdicts.items() if row["change"] == "unsure"]
    lines = []
    for name, row in changed.items():
        between = f", {row['interval'][0]:.3f} .. {row['interval'][1]:.3f}" if row["interval"] else ""
        lines.append(f"{row['change']:<6} {name}: {row['ratio']:.3f} of the old time{between} ({row['launches']} launches)")
    if unsure:
        lines.append(f"too noisy to see 5 %: {', '.join(unsure)}")
    lines.append(f"{len(verdicts)} rows compared {how}: {len(changed)} changed, {len(unsure)} too noisy")
    return lines


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench.sh", description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", help="matmul, conv, ...: a bench binary without its bench_; none: all")
    parser.add_argument("--rows", default="", metavar="REGEX", help="only rows whose name matches")
    parser.add_argument("--json", metavar="FILE", help="write the results; keeps a copy of the binaries, for later comparisons")
    parser.add_argument("--markdown", metavar="FILE", help="write them as tables, with the part of the roof that each row reaches")
    parser.add_argument("--against", metavar="FILE", help="compare with an earlier --json FILE, or with a folder of bench binaries")
    parser.add_argument("--seconds", type=float, default=0.05, help="of a turn [0.05]")
    parser.add_argument("--trial", type=int, default=0, metavar="N", help="test the comparison itself: N times a build with itself, and N times"
                        " with a planted slowdown of --planted")
    parser.add_argument("--planted", type=float, default=5, metavar="PERCENT", help="[5]")
    parser.add_argument("--record", metavar="FILE", help="of a trial: the ratios of all launches, by row, as JSON")
    parser.add_argument("--list", action="store_true", help="print the sets, and the rows of those named")
    parser.add_argument("--bin", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--kept", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    args = parser.parse_args()
    with open(os.devnull, "w", encoding="utf-8") as log:
        return run(args, log)


def binaries_of(args):
    """The bench binaries that have rows, and those that print tables of their own."""
    found = sorted(path for path in args.bin.glob("bench_*") if os.access(path, os.X_OK) and path.is_file())
    if args.sets:
        missing = [name for name in args.sets if not (args.bin / f"bench_{name}").is_file()]
        if missing:
            sys.exit(f"bench: {args.bin} must have bench_{missing[0]}, but has {' '.join(path.name[6:] for path in found) or 'none'}")
        found = [args.bin / f"bench_{name}" for name in args.sets]
    return [path for path in found if path.name not in OWN], [path for path in found if OWN.get(path.name)]


def run_own(path):
    """What a program prints that has no rows."""
    settings = (line.split("=", 1) for line in (HERE.parent / "scripts/open_mpi.env").read_text(encoding="utf-8").split("\n") if line[:1].isupper())
    command = [part.format(path) for part in OWN[path.name]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**dict(settings), **os.environ})
    except OSError as error:
        return f"{shlex.join(command)}: {error}"
    return done.stdout if done.returncode == 0 else f"{shlex.join(command)} ended with {done.returncode}: {done.stderr[-500:]}"


def trial(args, rows, log):
    """How often the comparison is right, on this machine as it is now."""
    record, wrong, missed, unsure = {}, 0, 0, 0
    planted_row = [next(iter(names)) for names in rows.values()]
    for kind, planted in (("itself", 0.0), ("planted", args.planted / 100)):
        for number_of_trial in range(1, args.trial + 1):
            reported, noisy = [], 0
            for path, names in rows.items():
                names = list(names)[:1] if planted else names
                for name, row in compare_binaries(path, path, names, args, log, planted, None if planted else record).items():
                    noisy += row["change"] == "unsure"
                    if row["change"] in ("slower", "faster"):
                        reported.append(f"{name} {row['ratio']:.3f}")
            unsure += noisy
            if planted:
                missed += len([line for line in reported if any(line.startswith(f"{name} ") for name in planted_row)]) < len(planted_row)
            else:
                wrong += bool(reported)
            print(f"{kind} {number_of_trial}: load {os.getloadavg()[0]:.1f}: {'; '.join(reported) or 'nothing'}"
                  + (f"; {noisy} too noisy" if noisy else ""), flush=True)
            if args.record:
                write(args.record, json.dumps(record, indent=0) + "\n")
    print(f"a build with itself: nothing reported in {args.trial - wrong} of {args.trial} comparisons of {sum(map(len, rows.values()))} rows")
    print(f"planted {args.planted:g} % slower: reported in {args.trial - missed} of {args.trial}; too noisy, in all: {unsure}")
    return 0


def old_binaries(against, rows, earlier):
    """{new path: old path} where the old binary is still there."""
    found = {}
    for path in rows:
        kept = pathlib.Path(earlier["binaries"].get(path.name, "")) if earlier else pathlib.Path(against) / path.name
        if kept.is_file() and (not earlier or digest(kept) == kept.parent.name):
            found[path] = kept
    return found


def compare(args, rows, report, log):
    """Prints what has changed; returns the exit code: 1 where a row is slower."""
    earlier = None
    if not os.path.isdir(args.against):
        try:
            earlier = json.loads(pathlib.Path(args.against).read_text(encoding="utf-8"))
            earlier["binaries"], earlier["benchmarks"]  # noqa: B018
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"bench: --against {args.against}: must be a file of --json or a folder of binaries, but got: {error}", file=sys.stderr)
            return 2
        if earlier["machine"]["processor"] != processor()[0]:
            print(f"bench: --against {args.against}: was measured on {earlier['machine']['processor']}, but this is {processor()[0]}", file=sys.stderr)
            return 2
    found, in_turns = old_binaries(args.against, rows, earlier), {}
    for path, old in found.items():
        in_turns |= compare_binaries(old, path, rows[path], args, log)
    lines = summary(in_turns, "in turns with the old binaries") if in_turns else []
    recorded = {}
    for path, names in rows.items():
        if path not in found and earlier and path.name in earlier["benchmarks"]:
            mine = report["benchmarks"].get(path.name) or dict(measure(path, names, args.seconds, LAUNCHES, log))
            old = {name: row["launches"] for name, row in earlier["benchmarks"][path.name].items() if "launches" in row}
            recorded |= dict(decide.compare_recorded(old, {name: row["launches"] for name, row in mine.items() if "launches" in row}))
    lines += summary(recorded, "by recorded times (the old binaries are gone; 10 % and more are seen)") if recorded else []
    verdicts = in_turns | recorded
    if not verdicts:
        print(f"bench: --against {args.against}: has none of these rows", file=sys.stderr)
        return 2
    print("\n".join(lines))
    report["comparison"], report["changes"] = verdicts, lines
    return 1 if any(row["change"] == "slower" for row in verdicts.values()) else 0


def run(args, log):
    with_rows, own = binaries_of(args)
    rows = {path: names for path in with_rows if (names := rows_of(path, args.rows, log))}
    if args.list:
        for path, names in rows.items():
            print("\n".join([path.name[6:], *(f"  {name}" for name in (names if args.sets else []))]))
        return 0
    if not rows and not own:
        sys.exit(f"bench: no row matches '{args.rows}'")
    if args.trial:
        return trial(args, rows, log)
    before = stolen_and_all()
    name, isa = processor()
    report = {"date": datetime.date.today().isoformat(), "command": shlex.join(["scripts/bench.sh", *shown_arguments()]),
              "machine": {"processor": name, "isa": isa, "cores": os.cpu_count()}, "load": os.getloadavg()[0],
              "binaries": {}, "benchmarks": {}, "programs": {}}
    code = 0
    if not args.against or args.json or args.markdown:
        for path, names in rows.items():
            print(f"{path.name}: {len(names)} rows", flush=True)
            report["benchmarks"][path.name] = {row: with_roof(what, names[row])
                                               for row, what in measure(path, names, args.seconds, LAUNCHES, log)}
        for path in own if not args.rows and not args.against else []:
            print(path.name, flush=True)
            report["programs"][path.name] = run_own(path)
    if args.against:
        code = compare(args, rows, report, log)
    stolen, everything = (now - then for now, then in zip(stolen_and_all(), before))
    report["stolen"] = stolen / max(everything, 1)
    if args.json and code != 2:
        report["binaries"] = {path.name: str(keep(path, args.kept)) for path in rows}
        write(args.json, json.dumps(report, indent=1) + "\n")
    if args.markdown and code != 2:
        write(args.markdown, markdown(report))
    if not args.against and not args.markdown:
        print(markdown(report))
    return code


def shown_arguments():
    hidden = {"--bin", "--kept"}
    shown, skip = [], False
    for argument in sys.argv[1:]:
        if skip or argument in hidden:
            skip = not skip
            continue
        shown.append(argument)
    return shown


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WorkerError as error:
        sys.exit(f"bench: {error}")
