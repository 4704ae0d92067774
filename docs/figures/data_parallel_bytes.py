"""What a step sends, counted: one rank that sends everything and collects, and ranks that are equal."""

from chart import Axis, curve, end_labels, frame
from svg import begin, text

WEIGHTS_MB = 11_689_512 * 4e-6  # ResNet-18 in f32
IMAGES_MB = 32 * 224 * 224 * 3e-6 * 4  # 32 images in f32
X, Y = Axis(2, 64, 86, 646, log=True), Axis(50, 10_000, 392, 92, log=True)
TICKS = ((50, "50 MB"), (100, "100 MB"), (200, "200 MB"), (500, "500 MB"), (1000, "1 GB"), (2000, "2 GB"), (5000, "5 GB"),
         (10_000, "10 GB"))
SCHEMES = (("one", "l3", "one rank sends all"), ("chain", "l1", "along a chain"), ("equals", "l0", "DDP: every rank"))


def of_ranks(traffic):
    return [w * WEIGHTS_MB + i * IMAGES_MB for w, i in zip(traffic["weights"], traffic["images"])]


def mb(traffic):
    """Of the rank that has most."""
    return max(of_ranks(traffic))


def check(row):
    """What must have been counted: rank 0 and each of the others have a formula."""
    others, one, chain = row["ranks"] - 1, row["one"], row["chain"]
    holds = one["weights"] == [2 * others] + [2] * others and one["images"] == [others] + [1] * others
    holds = holds and chain["weights"] == [2] + [4] * (others - 1) + [2] and chain["images"] == one["images"]
    if not holds or any(abs(w - 4 * others / row["ranks"]) >= 1e-12 for w in row["equals"]["weights"]):
        raise ValueError(f"what {row['ranks']} ranks send is not what the formula says")


def draw(rows):
    table = "| ranks | one rank sends all | along a chain | images, of rank 0 in both | DDP, every rank |\n|---|---|---|---|---|\n"
    for row in rows:
        check(row)
        images = max(row["one"]["images"]) * IMAGES_MB
        table += (f"| {row['ranks']} | {mb(row['one']):.0f} MB | {mb(row['chain']):.0f} MB | {images:.0f} MB | "
                  f"{mb(row['equals']):.0f} MB |\n")
    out = begin(856, 480, "Bytes in and out of the busiest rank, per step",
                "ResNet-18 in f32 (46.8 MB of weights), 32 images of 224 x 224 in f32 per rank; both axes logarithmic")
    out += frame(X, Y, "ranks", x_ticks=[(row["ranks"], str(row["ranks"])) for row in rows], y_ticks=TICKS)
    # A rank in the middle of a chain moves more, as long as images are few.
    bend = next(row["ranks"] for row in rows if row["ranks"] > 2 and of_ranks(row["chain"])[0] == mb(row["chain"]))
    out += text(24, 462, "muted", "start",
                f"Along a chain, rank 0 is the busiest from {bend} ranks on: it sends the images of every other rank. With {bend // 2}, "
                "a rank in the middle is.")
    for scheme, style, _ in SCHEMES:
        out += curve(X, Y, [(row["ranks"], mb(row[scheme])) for row in rows], style, dots=3.5)
    return out + end_labels(660, [(Y(mb(rows[-1][scheme])), label, "") for scheme, _, label in SCHEMES], 18) + "</svg>\n", table
