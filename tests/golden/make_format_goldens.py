"""Writes formats/numpy.npz and formats/h5py.h5 with NumPy and h5py, for npy_test and hdf5_test.

    pip install numpy h5py && python3 tests/golden/make_format_goldens.py

Five images of 3x4x3; pixel p (counted through one image) of image i is (11 * p + 50 * i) mod 256, its label 3 * i.
The .npz is deflated; in the .h5 the images are chunked, compressed and shuffled, the labels big-endian and contiguous.
"""

import pathlib

import h5py
import numpy as np

folder = pathlib.Path(__file__).parent / "formats"
images = (11 * np.arange(36)[None] + 50 * np.arange(5)[:, None]).astype(np.uint8).reshape(5, 3, 4, 3)
labels = 3 * np.arange(5)

np.savez_compressed(folder / "numpy.npz", x_train=images, y_train=labels.astype(np.int32))
with h5py.File(folder / "h5py.h5", "w") as file:
    file.create_dataset("train/x", data=images, chunks=(2, 2, 4, 3), compression="gzip", shuffle=True)
    file.create_dataset("train/y", data=labels.astype(">i2"))
