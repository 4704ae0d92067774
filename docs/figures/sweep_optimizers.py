#!/usr/bin/env python3
"""Trains the digits with four optimizers at five learning rates, and with five schedules: sweep_optimizers.py [BIN], which is
build/cpu/bin by default.

Writes data/optimizers_and_schedules.json, for docs/figures/draw.py: rows of rate, seed and test accuracy after ten epochs. 100
runs take a minute on a quiet machine.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

BIN = sys.argv[1] if len(sys.argv) > 1 else "build/cpu/bin"
SGD_RATES, ADAM_RATES = (1e-3, 1e-2, 3e-2, 1e-1, 1.0), (1e-4, 1e-3, 3e-3, 1e-2, 1e-1)
OPTIMIZERS = {
    "SGD": (("--optimizer", "sgd", "--momentum", "0", "--nesterov", "off"), SGD_RATES),
    "SGD, momentum 0.9": (("--optimizer", "sgd"), SGD_RATES),
    "AdamW": (("--optimizer", "adamw"), ADAM_RATES),
    "Muon": (("--optimizer", "muon"), SGD_RATES),
}
SCHEDULES = {
    "constant": ("--schedule", "constant"), "step:3:0.3": ("--schedule", "step:3:0.3"), "cosine": ("--schedule", "cosine"),
    "cosine, warm-up of 2 epochs": ("--schedule", "cosine", "--warmup", "2e"), "one-cycle": ("--schedule", "one-cycle"),
}


def accuracy(flags):
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "m.jsonl"
        subprocess.run([f"{BIN}/train_digits", "--epochs", "10", "--run-dir", "none", "--metrics", metrics, *flags],
                       check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    end = [row for row in rows if row.get("event") == "end"]
    return round(end[0].get("test_accuracy", 0.1), 4) if end else 0.1  # a run that diverged guesses


def main():
    out = {"accuracy": {}, "schedules": {}}
    for name, (flags, rates) in OPTIMIZERS.items():
        out["accuracy"][name] = [[rate, seed, accuracy((*flags, "--schedule", "cosine", "--lr", str(rate), "--seed", str(seed)))]
                                 for rate in rates for seed in (0, 1, 2)]
    for name, flags in SCHEDULES.items():
        out["schedules"][name] = [[0.1, seed, accuracy((*flags, "--lr", "0.1", "--seed", str(seed)))] for seed in range(8)]
    path = pathlib.Path(__file__).resolve().parent / "data/optimizers_and_schedules.json"
    path.write_text(json.dumps(out).replace('], "', '],\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
