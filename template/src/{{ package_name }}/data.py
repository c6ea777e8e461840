"""YOURS: the data, in NumPy."""

import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from tqdm import tqdm

from .contract import ArrayExamples, Batch, Datasets, Indices, Seeds
from .errors import UserError
from .images import SUFFIXES, ImageError, read_image
from .settings import DataFacts, DataSettings


def build_datasets(settings: DataSettings) -> Datasets:
    return digits(settings) if settings.source == "digits" else image_folder(settings)


def digits(settings: DataSettings) -> Datasets:
    """scikit-learn's 1,797 handwritten digits, 8 x 8 and grey; the last 360, by other writers, are the test set."""
    bunch = load_digits()
    images = (bunch.images[..., None] / 16).astype(np.float32)
    labels = bunch.target.astype(np.int64)

    def split(start: int, end: int) -> ArrayExamples:
        arrays = {"image": images[start:end], "label": labels[start:end]}
        return ArrayExamples(arrays, lambda batch, seeds: shift(batch, seeds, settings.max_shift))

    facts = DataFacts(image_shape=(8, 8, 1), labels=tuple(map(str, bunch.target_names)))
    return Datasets(split(0, 1150), split(1150, 1437), split(1437, 1797), facts)


class Picture(NamedTuple):
    path: Path
    label: int


class FolderExamples:
    """Pictures that are read from disk, batch by batch."""

    def __init__(self, pictures: list[Picture], shape: tuple[int, int, int], max_shift: int) -> None:
        self.pictures = pictures
        self.shape = shape
        self.max_shift = max_shift

    def __len__(self) -> int:
        return len(self.pictures)

    def read(self, indices: Indices, seeds: Seeds | None) -> Batch:
        chosen = [self.pictures[index] for index in indices]
        try:
            images = np.stack([read_image(picture.path, self.shape) for picture in chosen])
        except ImageError as error:
            raise UserError(f"{error}; remove it, or set data.check_files: true") from None
        batch: Batch = {"image": images, "label": np.array([picture.label for picture in chosen], np.int64)}
        return batch if seeds is None else shift(batch, seeds, self.max_shift)


def image_folder(settings: DataSettings) -> Datasets:
    """Pictures in one folder a class. A picture's split follows from its name, so new ones move no old one."""
    folder = settings.folder or Path()
    if not folder.is_dir():
        raise UserError(f"data.folder: {folder} is not a folder")
    labels = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = [
        Picture(path, label)
        for label, name in enumerate(labels)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in SUFFIXES
    ]
    shape = (settings.image_size, settings.image_size, settings.channels)
    pictures = without_bad_files(found, shape, settings.strict) if settings.check_files else found
    splits: dict[str, list[Picture]] = {"train": [], "val": [], "test": []}
    for picture in pictures:
        splits[choose_split(picture.path.relative_to(folder), settings)].append(picture)
    for name, split in splits.items():
        if not split:
            raise UserError(f"data.folder: {folder} gives no {name} pictures; it must hold one folder a class")
    examples = [FolderExamples(split, shape, settings.max_shift) for split in splits.values()]
    return Datasets(examples[0], examples[1], examples[2], DataFacts(image_shape=shape, labels=tuple(labels)))


def without_bad_files(pictures: list[Picture], shape: tuple[int, int, int], strict: bool) -> list[Picture]:
    """Leave out what cannot be read, and name it; with `strict`, stop instead."""

    def problem(picture: Picture) -> str | None:
        try:
            read_image(picture.path, shape)
        except ImageError as error:
            return str(error)
        return None

    with ThreadPoolExecutor() as pool:
        checks = pool.map(problem, pictures)
        problems = list(tqdm(checks, "check", len(pictures), unit="file", disable=None, delay=2, leave=False))
    bad = [text for text in problems if text]
    if bad and strict:
        raise UserError(f"data.strict: {len(bad)} unreadable files: {'; '.join(bad[:5])}")
    for text in bad:
        print(f"warning: left out: {text}", file=sys.stderr)
    return [picture for picture, text in zip(pictures, problems, strict=True) if not text]


def choose_split(path: Path, settings: DataSettings) -> str:
    place = int(sha256(path.as_posix().encode()).hexdigest()[:8], 16) / 2**32
    if place < settings.test_fraction:
        return "test"
    return "val" if place < settings.test_fraction + settings.val_fraction else "train"


def shift(batch: Batch, seeds: Seeds, distance: int) -> Batch:
    """Move each image by up to `distance` pixels along both axes; what comes in from outside is black."""
    images: NDArray[np.float32] = batch["image"]
    rows, height, width, _ = images.shape
    padded = np.pad(images, ((0, 0), (distance, distance), (distance, distance), (0, 0)))
    span = np.uint64(2 * distance + 1)
    top = (seeds % span).astype(np.int64)[:, None, None]
    left = (seeds // span % span).astype(np.int64)[:, None, None]
    y, x = np.arange(height)[None, :, None], np.arange(width)[None, None, :]
    return batch | {"image": padded[np.arange(rows)[:, None, None], top + y, left + x]}
