"""Whether a row has become slower or faster, from ratios new / old of launches: pairs of fresh processes that had turns.

Two processes of the same binary differ, too: by where their memory lies, and by what else the machine does. So the unit is the launch,
not the run, and a launch gives one number, the median of its pairs of turns.

1. Every row gets SCREEN launches. It is suspected if their median is off by more than SUSPECTED.
2. A suspected row gets new launches, until the interval of their median is narrow or MOST launches are made. It has changed if the whole
   interval is off by more than CHANGED. Earlier launches do not count here: they were chosen for being off.

The interval comes from the order of the values alone (ratios.interval), so a few wild launches move it little. It misses the median in
one of a thousand cases, and a row must be off twice; a comparison of a hundred rows seldom reports one for nothing.
tests/scripts/bench_rule.py counts how often, on noise that was recorded and on noise that is made up."""
import math
import statistics

from ratios import interval

SCREEN = 5            # launches of every row
SUSPECTED = 0.015     # part by which their median must be off
LEAST, MOST = 12, 60  # launches of a suspected row
STEP = 6              # launches between two looks at the interval's width
NARROW = 0.0175       # half of the width that is wanted
OUTSIDE = 0.001       # probability that the interval misses the median
CHANGED = 0.01        # what does not count, beyond the interval


def suspected(launches):
    return abs(math.log(statistics.median(launches))) > math.log1p(SUSPECTED)


def enough(launches):
    """Whether a suspected row needs no more launches. Looks at the width of the interval alone, not at where it is."""
    if len(launches) < LEAST or (len(launches) - LEAST) % STEP:
        return False
    low, high = interval(launches, OUTSIDE)
    return len(launches) >= MOST or math.log(high / low) / 2 <= NARROW


def verdict(launches):
    """{"change": "slower", "faster", "none" or "unsure", "ratio", "interval"} of a suspected row. "unsure": nothing is proven, and a change
    of 5 % might hide."""
    low, high = interval(launches, OUTSIDE)
    change = "none"
    if math.log(low) > math.log1p(CHANGED):
        change = "slower"
    elif math.log(high) < -math.log1p(CHANGED):
        change = "faster"
    elif math.log(high / low) / 2 > NARROW:
        change = "unsure"
    return {"change": change, "ratio": statistics.median(launches), "interval": [low, high], "launches": len(launches)}


def compare(row_names, launch):
    """Verdicts of rows. launch(names) makes one launch and returns {name: ratio}; a name may be missing (no such row, a wrong result).
    Yields (name, verdict): first the rows that are not suspected, in order, then the others as they are decided."""
    first = [launch(row_names) for _ in range(SCREEN)]
    pending = []
    for name in row_names:
        ratios = [ratios[name] for ratios in first if name in ratios]
        if len(ratios) < SCREEN:
            continue
        if suspected(ratios):
            pending.append(name)
        else:
            yield name, {"change": "none", "ratio": statistics.median(ratios), "interval": None, "launches": SCREEN}
    launches = {name: [] for name in pending}
    while pending:
        found = launch(pending)
        for name in list(pending):
            if name in found:
                launches[name].append(found[name])
            if name not in found or enough(launches[name]):
                pending.remove(name)
                if len(launches[name]) >= LEAST:
                    yield name, verdict(launches[name])


# Without the old binary there are only its recorded times. The machine may have become slower or faster meanwhile, all rows alike; what
# one row differs from the others must be large.
RECORDED = 0.10


def compare_recorded(old, new):
    """(name, verdict) of rows that both have: {name: [seconds of each launch]}. Needs 5 of them to know what the machine does."""
    both = [name for name in new if name in old]
    ratios = {name: statistics.median(new[name]) / statistics.median(old[name]) for name in both}
    machine = statistics.median(ratios.values()) if len(both) >= 5 else 1.0
    for name in both:
        ratio = ratios[name] / machine
        apart_slower = min(new[name]) / machine > max(old[name])
        apart_faster = max(new[name]) / machine < min(old[name])
        change = "none"
        if ratio > 1 + RECORDED and apart_slower:
            change = "slower"
        elif ratio < 1 / (1 + RECORDED) and apart_faster:
            change = "faster"
        yield name, {"change": change, "ratio": ratio, "interval": None, "launches": len(new[name])}
