"""What the Trainer does around a step of the user's, and what the user does, in the order of trainer/loop.cpp."""

from svg import begin, rect, text

WIDTH, LANE, BOX, GAP, LEFT = 984, 74, 128, 12, 106
RULES = """\
    .yours { fill: $c0 } .trainers { fill: $soft } .on_blue { fill: $paper; font-size: 11px } .inside { font-size: 11px }
    .wire { stroke: $muted; stroke-width: 1.5; fill: none }
"""
# The one who does it, and the lines in the box.
ROWS = (
    ("a batch", (("trainer", "reads, shuffles,", "divides among ranks"), ("trainer", "copies ahead,", "normalises, augments"),
                     ("you", "training_step():", "from fields to a loss"), ("trainer", "scales the loss,", "runs it backward"))),
    ("an update", (("trainer", "sums gradients over", "ranks, by buckets"), ("trainer", "norm, clipping; skips", "overflows, outliers"),
                      ("trainer", "learning rate,", "optimizer"), ("trainer", "running average", "(--ema)"),
                      ("trainer", "weights to all ranks,", "during the next step"), ("trainer", "signals, limits; a", "checkpoint, if due"))),
    ("an epoch", (("trainer", "averaged weights,", "norms in evaluation"), ("you", "validation_step():", "log(), images()"),
                     ("trainer", "sums over batches", "and ranks"), ("trainer", "early stopping,", "callbacks"),
                     ("trainer", "report, JSON line,", "hash of weights"), ("trainer", "checkpoint", "of everything"))),
)


def box(x, y, who, lines):
    yours = who == "you"
    out = rect(x, y, BOX, 46, "yours" if yours else "trainers")
    for i, words in enumerate(lines):
        out += text(x + BOX / 2, y + 20 + 15 * i, "on_blue" if yours else "inside", "middle", words)
    return out


def draw(_):
    height = 84 + len(ROWS) * LANE + 34
    out = begin(WIDTH, height, "What the Trainer does around a step", "Blue is yours. With several optimizers, minimize() runs from \"scales the loss\" to \"weights to all ranks\" at once.",
                rules=RULES)
    for i, (head, boxes) in enumerate(ROWS):
        y = 84 + i * LANE
        out += text(LEFT - 14, y + 28, "head", "end", head)
        for k, (who, *lines) in enumerate(boxes):
            x = LEFT + k * (BOX + GAP)
            if k > 0:
                out += f'<path d="M{x - GAP:.1f} {y + 23:.1f} h{GAP}" class="wire"/>\n'
            out += box(x, y, who, lines)
    out += text(24, height - 16, "muted", "start",
                "Nothing in the first two rows waits for the device: losses, norms and overflows stay there until they are read; a checkpoint reads them.")
    table = "".join(f"{head}: {'; '.join(' '.join(lines) for _, *lines in boxes)}\n" for head, boxes in ROWS)
    return out + "</svg>\n", table
