#!/usr/bin/env python3
"""Makes the tables of bench/results/scale_smpi.md from what the programs printed, and checks them.

bench/scale/table.py ROWS.tsv NETWORK TABLE.md

Ends with 1 where ZeRO-1 differs from DDP, where the flat ring is not within 5 % of its model, or where the hierarchical ring does
not win past one node.
"""

import sys

NODE = 8
TOLERANCE = 0.05
MIB = 1 << 20


def read(path):
    """Lists of rows by kind. Each row ends with the node size and the seconds of its run."""
    rows = {"train": [], "all_reduce": [], "step": []}
    with open(path, encoding="utf-8") as file:
        for line in file:
            kind, *cells = line.rstrip("\n").split("\t")
            rows[kind].append(cells)
    return rows


class Line:
    """The alpha-beta model of a flat ring, T = 2 (P - 1) (alpha + n / (P B))."""

    def __init__(self, alpha_us, bytes_per_us):
        self.alpha, self.rate = alpha_us, bytes_per_us

    @classmethod
    def through(cls, small, large):
        """From two measured (ranks, bytes, us)."""
        (x1, y1), (x2, y2) = ((n / p, us / (2 * (p - 1))) for p, n, us in (small, large))
        slope = (y2 - y1) / (x2 - x1)
        return cls(y1 - slope * x1, 1 / slope)

    def us(self, ranks, size):
        return 2 * (ranks - 1) * (self.alpha + size / (ranks * self.rate))


def step_by_model(line, ranks, buckets, alone, update):
    """ms of a step whose buckets "bytes@ms" go around the ring one after the other, each from when it is complete."""
    done = alone - update
    free = 0.0
    for bucket in buckets.split(","):
        size, complete = bucket.split("@")
        free = max(free, float(complete)) + line.us(ranks, int(size)) * 1e-3
    return max(done, free) + update


def table(head, rows):
    out = "| " + " | ".join(head) + " |\n|" + "---|" * len(head) + "\n"
    return out + "".join("| " + " | ".join(str(cell) for cell in row) + " |\n" for row in rows) + "\n"


class Report:
    def __init__(self):
        self.failed = []

    def check(self, holds, words):
        if not holds:
            self.failed.append(words)
        return "yes" if holds else "**no**"


def train_table(rows, report):
    out = []
    for ranks, algorithm, ddp, zero1, loss, skipped, equal, _, seconds in rows:
        report.check(skipped == "skipped", f"{algorithm} on {ranks} ranks: the infinite pixel's step must be skipped")
        holds = report.check(equal == "equal", f"{algorithm} on {ranks} ranks: ZeRO-1 must equal DDP")
        out.append([ranks, algorithm, f"`{ddp}`", f"`{zero1}`", loss, holds])
    return table(["ranks", "algorithm", "DDP", "ZeRO-1", "loss", "equal"], out)


def model_table(rows, report):
    """Where all hops are alike, the formula with the network's own numbers; over nodes, fitted at 64 ranks."""
    out = []
    alike = Line(7, 50e3)
    for ranks, algorithm, mib, us, size, _ in rows:
        if size != "1":
            continue
        model = alike.us(int(ranks), float(mib) * MIB)
        holds = report.check(abs(float(us) / model - 1) <= TOLERANCE, f"ring of {ranks}, {mib} MiB: {us} us is not within 5 % of {model:.0f}")
        out.append([ranks, "alike", mib, f"{float(us):,.0f}", f"{model:,.0f}", f"{float(us) / model - 1:+.1%}", holds])
    ring = {(int(ranks), float(mib)): float(us) for ranks, algorithm, mib, us, size, _ in rows if size == str(NODE) and algorithm == "ring"}
    fit = Line.through((64, MIB, ring[64, 1]), (64, 4 * MIB, ring[64, 4]))
    for (ranks, mib), us in sorted(ring.items()):
        if ranks <= 64 or ranks * 65536 < mib * MIB:
            continue  # the fit's own points, and pieces larger than those it was made from
        model = fit.us(ranks, mib * MIB)
        holds = report.check(abs(us / model - 1) <= TOLERANCE, f"ring of {ranks} over nodes, {mib} MiB: {us} us is not within 5 % of {model:.0f}")
        out.append([ranks, "nodes of 8", mib, f"{us:,.0f}", f"{model:,.0f}", f"{us / model - 1:+.1%}", holds])
    return fit, table(["ranks", "hops", "MiB", "simulated us", "model us", "off by", "within 5 %"], out)


def all_reduce_table(rows, fit, report):
    times = {}
    for ranks, algorithm, mib, us, size, _ in rows:
        if size == str(NODE) and mib in ("1", "25"):
            times.setdefault((int(ranks), float(mib)), {})[algorithm] = float(us)
    out = []
    for (ranks, mib), of in sorted(times.items()):
        flat = f"{of['ring']:,.0f}" if "ring" in of else f"{fit.us(ranks, mib * MIB):,.0f} (model)"
        ring = of.get("ring", fit.us(ranks, mib * MIB))
        if ranks > NODE:
            report.check(of["hierarchical"] < ring, f"{ranks} ranks, {mib} MiB: the hierarchical ring must win past one node")
        order = f"{of['rank_order']:,.0f}" if "rank_order" in of else "-"
        out.append([f"{ranks:,}", f"{mib:g}", flat, f"{of['hierarchical']:,.0f}", f"{ring / of['hierarchical']:.1f}x", order])
    return table(["ranks", "MiB", "ring us", "hierarchical us", "ring / hierarchical", "rank_order us"], out)


def step_table(rows, fit, report):
    out, checks = [], []
    for ranks, algorithm, strategy, overlap, mib, buckets, alone, step, exposed, _, _ in rows:
        shown = "hierarchical, no overlap" if overlap == "none" else algorithm
        out.append([int(ranks), shown, strategy, float(mib), len(buckets.split(",")), float(alone), float(step), float(exposed), ""])
        if algorithm == "ring" and strategy == "ddp" and int(ranks) > NODE and all(int(b.split("@")[0]) / int(ranks) < 2e5 for b in buckets.split(",")):
            model = step_by_model(fit, int(ranks), buckets, float(alone), float(alone) - float(buckets.split("@")[-1]))
            checks.append((int(ranks), mib, float(step), model))
    for ranks, mib, step, model in checks:
        report.check(abs(step / model - 1) <= TOLERANCE, f"step of {ranks} ranks, {mib} MiB buckets: {step:.2f} ms is not within 5 % of the model's {model:.2f}")
    flat = {row[0] for row in rows if row[1] == "ring"}
    for ranks, algorithm, strategy, overlap, mib, buckets, alone, *_ in rows:
        if ranks in flat or strategy != "ddp" or overlap == "none":
            continue
        model = step_by_model(fit, int(ranks), buckets, float(alone), float(alone) - float(buckets.split("@")[-1]))
        out.append([int(ranks), "ring", "ddp", float(mib), len(buckets.split(",")), float(alone), model, model - float(alone), " (model)"])
    out.sort(key=lambda row: (row[0], row[1] != "ring", row[1], row[2], row[3]))
    cells = [[f"{r:,}", a, s, f"{m:g}", n, f"{t:.2f}{mark}", f"{e:.2f}", f"{alone / t:.1%}"] for r, a, s, m, n, alone, t, e, mark in out]
    modelled = ""
    if any(mark for *_, mark in out) and checks:
        worst = max(abs(step / model - 1) for _, _, step, model in checks)
        modelled = f""" "(model)" is the flat ring past 256 ranks by the fit above, which is within {worst:.1%}
of the {len(checks)} simulated steps of flat rings in the range of the fit."""
    return modelled, table(["ranks", "algorithm", "strategy", "bucket MiB", "buckets", "step ms", "exposed ms", "efficiency"], cells)


def main():
    if len(sys.argv) != 4:
        sys.exit("table: expected ROWS.tsv NETWORK TABLE.md")
    rows, report = read(sys.argv[1]), Report()
    with open(sys.argv[2], encoding="utf-8") as file:
        network = file.read().strip()
    fit, model = model_table(rows["all_reduce"], report)
    modelled, steps = step_table(rows["step"], fit, report)
    text = f"""# Past one machine, simulated

    scripts/simulate_scale.sh

SimGrid SMPI 3.32 simulates ranks that run the library's own collectives, buckets and training step. Nothing here was measured on a
network or calibrated to one: the numbers show growth with P and the better algorithm, not absolute times.
[Past one machine](../../docs/past_one_machine.md) explains how to read them, and their limits.

Every table: **{network}**.

## With data

The digits' CNN in bf16 with f32 masters, AdamW and clipping. One rank has an infinite pixel in the third step, which all ranks skip. The hashes cover all
masters at the end. "equal" also means that all ranks had the same weights after every step, and that an all-reduce of whole numbers gave their sum.
**Uncalibrated network**: bits do not depend on it.

{train_table(rows["train"], report)}## An all-reduce

**Uncalibrated network.** "(model)" marks values of the alpha-beta model of the next table, for flat rings that are not simulated.

{all_reduce_table(rows["all_reduce"], fit, report)}## The flat ring and its model

T = 2 (P - 1) (alpha + n / (P B)). If all hops are alike (nodes of one rank), alpha = 7 us and B = 50 GB/s are the network's values. Over nodes of {NODE}
most hops are short, and two messages are in flight at a time: alpha = {fit.alpha:.2f} us and B = {fit.rate * 1e-3:.1f} GB/s are fitted to 1 and 4 MiB on 64 ranks,
and hold for pieces of up to 64 KiB. **Uncalibrated network.**

{model}## A training step

ResNet-50: 25.6 M gradients in bf16, 32 samples per rank at a sustained 40 TFLOP/s. Forward and backward take {3 * 2 * 4.089 * 32 / 40:.1f} ms. The update reads and writes 28
bytes per parameter at 3 TB/s (ZeRO-1: its shard). The first bucket has 1 MiB. Exposed time is outside computation and update. Efficiency is the time of a
step on one rank divided by that of this one. It may exceed 100 % because ZeRO-1 divides the update. ZeRO-1's weights are gathered during the next forward pass,
which waits for each bucket. Past 64 ranks the agreement on norm and overflow is not simulated, but counted as 7 us + 200 P bytes at 50 GB/s.{modelled} **Uncalibrated network.**

{steps}"""
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        file.write(text.rstrip() + "\n")
    for words in report.failed:
        print(f"table: {words}", file=sys.stderr)
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
