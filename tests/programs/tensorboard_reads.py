# TensorBoard's own reader on what a run with --logger tensorboard has written, killed and resumed included.
# tensorboard_reads.py BIN_DIR; ends with 77 where the package tensorboard cannot be imported.
import os, subprocess, sys, tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f"skipped: {error}: pip install tensorboard")
    sys.exit(77)


def train(binary, folder, *flags):
    command = [os.path.join(binary, "train_digits"), "--run-dir", folder, "--epochs", "3", "--logger", "csv,tensorboard",
               "--log-every", "10", "--threads", "1", *flags]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def main(binary):
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(scratch, "run")
        train(binary, folder, "--max-steps", "64")
        [events] = [name for name in os.listdir(folder) if "tfevents" in name]
        with open(os.path.join(folder, events), "ab") as file:
            file.write(b"half a record")
        train(binary, folder, "--resume", "auto", "--max-steps", "132")
        seen = EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0}, purge_orphaned_data=True).Reload()
        tags = seen.Tags()
        steps = [event.step for event in seen.Scalars("step/train_loss")]
        assert steps == list(range(10, 131, 10)), steps
        for tag in ("train_loss", "val_loss", "val_accuracy", "learning_rate", "images_per_s"):
            assert [event.step for event in seen.Scalars(tag)][-1] == 132, tag
        assert 0 < seen.Scalars("val_loss")[-1].value < 2.5
        weights = [tag for tag in tags["histograms"] if tag.startswith("weights/")]
        gradients = [tag for tag in tags["histograms"] if tag.startswith("gradients/")]
        assert len(weights) == len(gradients) > 3, tags["histograms"]
        for tag in weights + gradients:
            for event in seen.Histograms(tag):
                histogram = event.histogram_value
                assert sum(histogram.bucket) == histogram.num > 0
                assert list(histogram.bucket_limit) == sorted(histogram.bucket_limit)
                assert histogram.bucket_limit[-1] == histogram.max >= histogram.min
        print(f"{len(steps)} steps, {len(weights)} weights, {len(gradients)} gradients")


if __name__ == "__main__":
    main(sys.argv[1])
