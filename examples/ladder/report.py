"""The ladder's result as a dict for JSON, and as text: a table in Markdown, what the articles say, the commands."""

import shlex
import statistics

from runs import Factor, text_of
from tricks import ARTICLES, IN_MEMORY, TRICKS

PEER = "naive PyTorch"
FILES = "pixels are changed on the device anyway; a set of files does not stay there"
NEEDS_GPU = "needs a GPU, and there is none here"


def epoch_part(on):
    """The tricks of a rung that leave its work the same."""
    return on - {trick.key for trick in TRICKS if trick.stage == "target"}


def json_of(factor):
    return factor.json() if factor else None


def row_of(ladder, rung, naive, alone):
    """What was measured of a rung."""
    trick, on = rung.trick, rung.on
    whole, reached = ladder.whole(on), ladder.to_target(on)
    seconds = ladder.seconds_of(on)
    row = {"key": trick.key if trick else "naive", "title": trick.title if trick else "naive", "stage": trick.stage if trick else "epoch",
           "kept": rung.kept, "command": shlex.join([str(ladder.program), *text_of(ladder.flags_of(on) | {"--epochs": ladder.epochs})]),
           "epoch_s": statistics.median(seconds), "epoch_s_of": seconds, "projected": ladder.plan(on).projected,
           "memory_bytes": ladder.memory_of(on), "accuracy": statistics.fmean(run.accuracy for run in whole),
           "accuracy_of": [run.accuracy for run in whole], "weights": ladder.check(on)[0], "epochs_run": [run.epochs for run in whole],
           "epochs_to_target": reached}
    row["run_s"] = statistics.fmean(row["epochs_run"]) * row["epoch_s"]
    row["to_target_s"] = statistics.fmean(reached) * row["epoch_s"] if reached else None
    if trick:
        row |= {"factor": json_of(ladder.epoch_factor(rung.parent, on)), "from_naive": json_of(ladder.epoch_factor(naive, on)),
                "target_factor": json_of(ladder.target_factor(rung.parent, on)),
                "target_from_naive": json_of(ladder.target_factor(naive, on)), "same_weights": row["weights"] == ladder.check(rung.parent)[0],
                "alone": json_of(ladder.epoch_factor(naive, alone) if trick.stage == "epoch" else ladder.target_factor(naive, alone))}
        row["pays"] = pays(ladder, rung)
    return row


def pays(ladder, rung):
    """Whether the trick is faster here, as far as the repeats can tell; a trick may save memory instead of time."""
    factor = ladder.target_factor if rung.trick.stage == "target" else ladder.epoch_factor
    found = factor(rung.parent, rung.on)
    return bool(found and found.gains())


def verdict(trick, row):
    """A trick's line, `row` being what was measured of it."""
    factor = row["target_factor" if trick.stage == "target" else "factor"]
    if factor is None:
        return "does not reach the target here"
    what = "" if trick.stage == "epoch" else " in the run's time" if trick.key == "early-stop" else " to the target"
    return f"{shown(factor)} times{what}" if row["pays"] else f"not worth it here, because {trick.because} ({shown(factor)})"


def collect(ladder, rungs, full, naive, alone, without):
    rows = [row_of(ladder, rung, naive, alone[rung.trick.key] if rung.trick else None) for rung in rungs]
    measured = {row["key"]: row for row in rows}
    claims = []
    for trick in TRICKS:
        row = measured.get(trick.key)
        here = (verdict(trick, row) if row else trick.apart or (NEEDS_GPU if trick.gpu and not ladder.has_gpu else
                f"{ladder.data.program} has no such flag" if not ladder.knows(trick) else FILES if trick.key == "resident" else f"nothing to gain here: {IN_MEMORY}"))
        if trick.key == "vectorised" and ladder.looped:
            here = f"{number(ladder.looped)} times, for a sum of a million numbers (bench_vectorise); no layer here loops over elements"
        claims.append({"key": trick.key, "title": trick.title, "claim": trick.claim, "here": here, "measured": row is not None})
    last = epoch_part(full)
    total = {"naive_s": statistics.median(ladder.seconds_of(naive)), "full_s": statistics.median(ladder.seconds_of(last)),
             "tricks": [trick.key for trick in TRICKS if trick.key in last], "factor": json_of(ladder.epoch_factor(naive, last)),
             "to_target": json_of(ladder.target_factor(naive, full - {"early-stop"}))}
    result = {"program": ladder.data.program, "model": ladder.flags_of(naive).get("--model", "digits_cnn"), "images": ladder.sizes.train, "all_images": ladder.all_images, "held_out": ladder.sizes.val, "epochs": ladder.epochs,
              "target": ladder.target, "repeats": ladder.args.repeats, "seeds": ladder.seeds, "packing": ladder.packing, "total": total,
              "rows": rows, "claims": claims, "without": [], "peer": None}
    for key, on in without.items():
        result["without"].append({"key": key, "title": measured[key]["title"], "epoch_s": statistics.median(ladder.seconds_of(on)),
                                  "loses": json_of(ladder.epoch_factor(on, last))})
    if ladder.peer:
        times = [run.epoch_s for run in ladder.timed[PEER]]
        theirs = lambda on: json_of(Factor.of(times, ladder.seconds_of(on)))
        result["peer"] = {"title": PEER, "command": shlex.join([*ladder.peer_command(), "--epochs", str(ladder.epochs)]),
                          "epoch_s": statistics.median(times), "epoch_s_of": times, "projected": ladder.peer_plan.projected,
                          "memory_bytes": max(run.memory for run in ladder.timed[PEER]), "to_naive": theirs(naive), "to_full": theirs(last)}
    return result


# Text ---------------------------------------------------------------------------------------------------------------------


def number(value, digits=3):
    """With so many significant digits, and no exponent."""
    if value is None:
        return "-"
    value, decimals = float(f"{value:.{digits}g}"), 0  # 0.9999 is 1.00
    while decimals < 5 and value and abs(value) < 10 ** (digits - 1 - decimals):
        decimals += 1
    return f"{value:,.{decimals}f}"


def shown(factor):
    if not factor:
        return "-"
    text = number(factor["factor"])
    return text if not factor["interval"] else f"{text} ({number(factor['interval'][0])} .. {number(factor['interval'][1])})"


def table(head, rows):
    """Aligned, so that it reads well on a terminal, too."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    line = lambda cells: "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |"
    return "\n".join([line(head), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows)]) + "\n"


def name_of(row):
    return row["title"] if row["key"] == "naive" else f"{'+' if row['kept'] else '(+)'} {row['title']}"


def epoch_cells(row):
    return [name_of(row), ("~" if row["projected"] else "") + number(row["epoch_s"]), shown(row.get("factor")), shown(row.get("from_naive")),
            shown(row.get("alone")), f"{row['memory_bytes'] / 2**20:,.0f}", f"{row['accuracy']:.1%}{'=' if row.get('same_weights') else ''}"]


def target_cells(row, name):
    sign, reached = "~" if row["projected"] else "", row["epochs_to_target"]
    stage = row["stage"] == "target"
    return [name, f"{statistics.fmean(reached):.1f}" if reached else "-", sign + number(row["to_target_s"]) if reached else "never",
            sign + number(row["run_s"]), shown(row["target_factor"]) if stage else "-", shown(row.get("target_from_naive")),
            shown(row["alone"]) if stage else "-", f"{row['accuracy']:.1%}"]


def target_rows(result):
    """The naive rung, the last of equal work, and those whose tricks change the work."""
    last = [row for row in result["rows"] if row["stage"] == "epoch" and row["kept"]][-1]
    others = [row for row in result["rows"] if row["stage"] == "target"]
    return [target_cells(result["rows"][0], "naive"), target_cells(last, "all tricks above"), *(target_cells(row, name_of(row)) for row in others)]


def tables(result):
    """An epoch of equal work, the way to the target, and what both amount to."""
    total, peer = result["total"], result["peer"]
    rows = [epoch_cells(row) for row in result["rows"] if row["stage"] == "epoch"]
    if peer:
        sign = "~" if peer["projected"] else ""
        rows.insert(0, [PEER, sign + number(peer["epoch_s"]), "-", "-", "-", f"{peer['memory_bytes'] / 2**20:,.0f}", "-"])
    out = "An epoch of equal work, with its validation:\n\n"
    out += table(["rung", "s/epoch", "factor", "from naive", "alone", "MiB", "accuracy"], rows)
    out += ("\n`~`: projected from fewer steps. `(+)`: measured, but left out of the rungs below. `alone`: the trick on the naive rung.\n"
            "`=`: the same weights as the rung before, bit for bit.\n\n")
    out += f"To an accuracy of {result['target']:.0%}, where other work counts, too:\n\n"
    out += table(["rung", "epochs", "s to target", "s of the run", "factor", "from naive", "alone", "accuracy"], target_rows(result))
    out += "\nSeconds are epochs times the seconds of an epoch. The factor of early stopping is that of the whole run.\n\n"
    out += f"**An epoch of equal work: {shown(total['factor'])} times faster than the naive rung"
    out += f", and {shown(peer['to_full'])} times faster than {PEER}" if peer else ""
    out += f".** Time to the target: {shown(total['to_target'])} times.\n"
    return out + (f"The naive rung against {PEER}: {shown(peer['to_naive'])} times.\n" if peer else "")


def quoted(result):
    """The part of docs/the_ladder.md that a published result replaces."""
    return ("\n![Seconds per epoch, from the naive rung to the full one](img/ladder.svg)\n\n"
            f"`{result['command']}` on {result['date']}. [The whole result](../bench/results/ladder.md) names the machine, and has the articles'\n"
            f"claims and the commands.\n\n{tables(result)}\n")


def images_of(result):
    images, of = result["images"], result.get("all_images", result["images"])
    return f"{images:,} images to train on" if images == of else f"{images:,} of {of:,} images to train on in each epoch"


def text(result):
    machine, peer = result["machine"], result["peer"]
    out = (f"# The ladder: {result['data']}\n\n    {result['command']}\n\n{result['date']}; {machine['cores']} cores of {machine['processor']} "
           f"({', '.join(machine['isa'])}).\nLoad of the machine: {machine['load_before']:.1f} before, {machine['load_after']:.1f} after; other "
           f"machines on the host took {machine['stolen']:.0%}. {result['minutes']:.1f} minutes.\n\n{images_of(result)}, "
           f"{result['held_out']:,} to test. Times and factors are of {result['repeats']} repeats in turns, with their 95 % interval.\n"
           f"Accuracies are {'those of one seed' if result['seeds'] == 1 else 'means of %d seeds' % result['seeds']} after {result['epochs']} epochs.\n\n" + tables(result))
    out += "\n" + table(["trick", "the articles", "here"], [[c["title"], c["claim"], c["here"]] for c in result["claims"]])
    out += "\n" + "".join(f"- [{key}] {title}\n" for key, title in ARTICLES.items())
    if result["without"]:
        out += "\nThe full rung without one of its tricks:\n\n"
        out += table(["without", "s/epoch", "slower by"], [[r["title"], number(r["epoch_s"]), shown(r["loses"])] for r in result["without"]])
    out += "\nThe commands:\n\n"
    for row in result["rows"]:
        out += f"    {row['command']}\n"
    for pack in result["packing"]:
        out += f"    {pack['command']}    # once, {pack['seconds']:.1f} s\n"
    return out + (f"    {peer['command']}\n" if peer else "")
