#!/usr/bin/env python3
"""bench_rule.py SOURCE [RECORDED.json]: how often the rule of bench/decide.py is right.

Made-up noise: a launch differs by a factor that is drawn anew for it; for most rows about 1 %, for some 3 %; one launch in twenty is hit
by other work, up to twice as slow; the machine drifts. Recorded noise: the ratios of launches of one binary with itself, on a busy
machine with two cores (scripts/bench.sh softmax --trial 20 --record FILE), drawn with replacement."""
import json
import math
import pathlib
import random
import sys

COMPARISONS, ROWS = 20, 100


def comparisons(decide, draw, names, planted, chance):
    """Rows that are reported, in each of some comparisons, and rows that are too noisy, in all."""
    reported, unsure = [], 0
    for _ in range(COMPARISONS):
        found = dict(decide.compare(names, lambda asked: {name: draw(name, chance) * (1 + planted) for name in asked}))
        reported.append([name for name, row in found.items() if row["change"] in ("slower", "faster")])
        unsure += sum(row["change"] == "unsure" for row in found.values())
        assert len(found) == len(names)
    return reported, unsure


def made_up(name, chance):
    spread = 0.03 if int(name) % 10 == 0 else 0.01
    ratio = math.exp(chance.gauss(0, spread) + 0.003 * math.sin(chance.random() * 7))
    if chance.random() < 0.05:
        ratio *= (1 + chance.random()) ** chance.choice((1, -1))
    return ratio


def main():
    source = pathlib.Path(sys.argv[1])
    sys.path[:0] = [str(source / "bench"), str(source / "bench/peers")]
    import decide
    noises = [("made up", made_up, [str(i) for i in range(ROWS)])]
    if len(sys.argv) > 2 and pathlib.Path(sys.argv[2]).stat().st_size > 10:
        recorded = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
        noises.append(("recorded", lambda name, chance: chance.choice(recorded[name]), sorted(recorded)))
    wrong = 0
    for title, draw, names in noises:
        chance = random.Random(1)
        nothing, unsure = comparisons(decide, draw, names, 0, chance)
        quiet = sum(not rows for rows in nothing)
        print(f"{title}: {len(names)} rows: a build with itself: nothing reported in {quiet} of {COMPARISONS}, {unsure} rows too noisy")
        wrong += quiet < COMPARISONS
        seen = {name: 0 for name in names}
        for planted, better in ((0.05, "slower"), (1 / 1.05 - 1, "faster")):
            rows, unsure = comparisons(decide, draw, names, planted, chance)
            for name in names:
                seen[name] = sum(name in found for found in rows)
            worst = min(seen, key=seen.get)
            at_least = sum(count >= 19 for count in seen.values())
            print(f"{title}: 5 % {better}: in at least 19 of {COMPARISONS} for {at_least} of {len(names)} rows; fewest: {seen[worst]} for {worst}")
            wrong += at_least < 0.95 * len(names)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
