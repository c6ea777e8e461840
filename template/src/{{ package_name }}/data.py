"""YOURS: the data, in NumPy."""

import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from .contract import ArrayExamples, Batch, Datasets, Indices, Seeds
from .errors import UserError
from .images import SUFFIXES, ImageError, read_image
from .seeds import uniforms
from .settings import DataFacts, DataSettings


def build_datasets(settings: DataSettings) -> Datasets:
    return digits(settings) if settings.source == "digits" else image_folder(settings)


def digits(settings: DataSettings) -> Datasets:
    """scikit-learn's 1,797 handwritten digits, 8 x 8 and grey; the last 360, by other writers, are the test set."""
    # Its file rather than its load_digits(): the import of scikit-learn takes two seconds.
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(str(file), delimiter=",")
    images = (rows[:, :-1].reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    labels = rows[:, -1].astype(np.int64)

    def split(start: int, end: int) -> ArrayExamples:
        arrays: Batch = {"image": images[start:end], "label": labels[start:end]}
        return ArrayExamples(arrays, lambda batch, seeds: augment(batch, seeds, settings))

    facts = DataFacts(image_shape=(8, 8, 1), labels=tuple("0123456789"))
    return Datasets(split(0, 1150), split(1150, 1437), split(1437, 1797), facts)


class Picture(NamedTuple):
    path: Path
    label: int


class FolderExamples:
    """Pictures that are read from disk, batch by batch."""

    def __init__(self, pictures: list[Picture], shape: tuple[int, int, int], settings: DataSettings) -> None:
        self.pictures = pictures
        self.shape = shape
        self.settings = settings

    def __len__(self) -> int:
        return len(self.pictures)

    def read(self, indices: Indices, seeds: Seeds | None) -> Batch:
        chosen = [self.pictures[index] for index in indices]
        try:
            images = np.stack([read_image(picture.path, self.shape) for picture in chosen])
        except ImageError as error:
            raise UserError(f"{error}; remove it, or set data.check_files: true") from None
        batch: Batch = {"image": images, "label": np.array([picture.label for picture in chosen], np.int64)}
        return batch if seeds is None else augment(batch, seeds, self.settings)


def image_folder(settings: DataSettings) -> Datasets:
    """Pictures in one folder a class. A picture's split follows from its name, so new ones move no old one."""
    folder = settings.folder or Path()
    if not folder.is_dir():
        raise UserError(f"data.folder: {folder} is not a folder")
    paths = [path.relative_to(folder) for path in sorted(folder.glob("*/**/*")) if path.suffix.lower() in SUFFIXES]
    paths = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
    labels = sorted({path.parts[0] for path in paths})
    found = [Picture(folder / path, labels.index(path.parts[0])) for path in paths]
    shape = (settings.image_size, settings.image_size, settings.channels)
    pictures = without_bad_files(found, shape, settings.strict) if settings.check_files else found
    splits: dict[str, list[Picture]] = {"train": [], "val": [], "test": []}
    for picture in pictures:
        splits[choose_split(picture.path.relative_to(folder), settings)].append(picture)
    for name, split in splits.items():
        if not split:
            raise UserError(f"data.folder: {folder} gives no {name} pictures; it must hold one folder a class")
    examples = [FolderExamples(split, shape, settings) for split in splits.values()]
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


def augment(batch: Batch, seeds: Seeds, settings: DataSettings) -> Batch:
    """Move, turn, stretch and slant each image [B, H, W, C] a little; what comes in from outside is black."""
    images: NDArray[np.float32] = batch["image"]
    _, height, width, _ = images.shape
    turn, tall, wide, slant, down, right = 2 * uniforms(seeds, 6).T - 1
    angle = np.deg2rad(settings.rotation) * turn
    tall, wide = np.exp(settings.zoom * tall), np.exp(settings.zoom * wide)
    cos, sin = np.cos(angle), np.sin(angle)
    rows = np.array([[cos * tall, -sin * tall], [sin * wide + settings.zoom * slant, cos * wide]])
    move = settings.shift * np.array([down, right])
    centre = np.array([(height - 1) / 2, (width - 1) / 2])
    grid = np.indices((height, width)).reshape(2, -1) - centre[:, None]
    source = np.einsum("ijb,jn->ibn", rows, grid) + move[:, :, None] + centre[:, None, None]
    return batch | {"image": sample(images, source[0], source[1]).reshape(images.shape)}


def sample(images: NDArray[np.float32], y: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float32]:
    """Images [B, H, W, C] at the points y, x [B, N], between the pixels: [B, N, C]."""
    count, height, width, _ = images.shape
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    y, x = np.clip(y + 1, 0, height + 0.999), np.clip(x + 1, 0, width + 0.999)
    top, left, image = y.astype(np.int64), x.astype(np.int64), np.arange(count)[:, None]
    below, beside = (y - top)[..., None].astype(np.float32), (x - left)[..., None].astype(np.float32)
    upper = padded[image, top, left] * (1 - beside) + padded[image, top, left + 1] * beside
    lower = padded[image, top + 1, left] * (1 - beside) + padded[image, top + 1, left + 1] * beside
    return (upper * (1 - below) + lower * below).astype(np.float32, copy=False)
