"""Short epochs of a set that is slow to open: bench/peers/athanor/epochs.cpp is the same in Athanor.

"restart" is a DataLoader as it comes, whose workers end with each epoch; "persistent" one with persistent_workers;
"inline" one without workers.
"""

import functools
import time

import torch

from worker import serve

SAMPLES, BATCH, SIDE, CHANNELS = 96, 8, 8, 3
OPENING_S, READING_S = 1.5, 1e-3


class SlowToOpen(torch.utils.data.Dataset):
    """Every process that reads opens the set for itself first."""

    def __init__(self):
        self.opened = False
        self.ramp = 3 * torch.arange(SIDE * SIDE * CHANNELS).reshape(SIDE, SIDE, CHANNELS)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if not self.opened:
            time.sleep(OPENING_S)
            self.opened = True
        time.sleep(READING_S)
        return (self.ramp + 7 * index).to(torch.uint8), index % 10


def prepare(workers, persistent):
    loader = torch.utils.data.DataLoader(SlowToOpen(), batch_size=BATCH, num_workers=workers,
                                         persistent_workers=persistent)

    def run():
        rows = sum(len(labels) for _, labels in loader)
        if rows != SAMPLES:
            raise RuntimeError(f"expected {SAMPLES} samples, but got {rows}")

    batches = list(loader)
    images = torch.cat([images for images, _ in batches]).reshape(-1, SIDE * SIDE * CHANNELS).to(torch.float64)
    labels = torch.cat([labels for _, labels in batches]).to(torch.float64)
    places = torch.arange(1, len(labels) + 1, dtype=torch.float64)
    bytes_ = torch.arange(1, images.shape[1] + 1, dtype=torch.float64)
    return run, [len(labels), float(labels @ places), float(places @ images @ bytes_)]


if __name__ == "__main__":
    serve({
        f"epochs/{workers}_workers":
            {"inline": functools.partial(prepare, 0, False)} if workers == 0 else
            {"restart": functools.partial(prepare, workers, False),
             "persistent": functools.partial(prepare, workers, True)}
        for workers in (0, 1, 2, 4, 6)
    })
