"""YOURS: the data, in NumPy."""

import numpy as np

from .contract import Batch, Datasets, Indices, Seeds
from .settings import DataFacts, DataSettings

LABELS = ("outside", "open", "inside", "close")
NO_LABEL = -1


def build_datasets(settings: DataSettings) -> Datasets:
    """Text of letters and brackets, of any length."""
    quarter = max(1, settings.examples // 4)
    texts = [make_texts(seed, size, settings) for seed, size in enumerate((settings.examples, quarter, quarter))]
    vocabulary = ("<padding>", "<unknown>", *sorted({character for text in texts[0] for character in text}))
    train, val, test = (TextExamples(split, vocabulary, settings.unknown_fraction) for split in texts)

    def order(generator: np.random.Generator) -> Indices:
        """Neighbours are about as long as each other, so that little is padded."""
        shuffled = generator.permutation(len(train))
        buckets = np.split(shuffled, range(settings.bucket_size, len(shuffled), settings.bucket_size))
        return np.concatenate([bucket[np.argsort(train.lengths[bucket], kind="stable")] for bucket in buckets])

    return Datasets(train, val, test, DataFacts(vocabulary=vocabulary, labels=LABELS), order)


class TextExamples:
    """Texts of different lengths; a batch is padded to its longest."""

    def __init__(self, texts: list[str], vocabulary: tuple[str, ...], unknown_fraction: float) -> None:
        known = {character: token for token, character in enumerate(vocabulary)}
        self.tokens = [np.array([known.get(character, 1) for character in text], np.int64) for text in texts]
        self.labels = [np.array([LABELS.index(label) for label in label_characters(text)], np.int64) for text in texts]
        self.lengths = np.array([len(text) for text in texts])
        self.letters = [token for token, character in enumerate(vocabulary) if character.isalpha()]
        self.unknown_fraction = unknown_fraction

    def __len__(self) -> int:
        return len(self.tokens)

    def read(self, indices: Indices, seeds: Seeds | None) -> Batch:
        shape = (len(indices), int(self.lengths[indices].max()))
        tokens, labels = np.zeros(shape, np.int64), np.full(shape, NO_LABEL)
        for row, index in enumerate(indices):
            length = self.lengths[index]
            tokens[row, :length], labels[row, :length] = self.tokens[index], self.labels[index]
            if seeds is not None:
                unreadable = np.random.default_rng(seeds[row]).random(length) < self.unknown_fraction
                tokens[row, :length][unreadable & np.isin(self.tokens[index], self.letters)] = 1
        return {"text": tokens, "label": labels}


def make_texts(seed: int, size: int, settings: DataSettings) -> list[str]:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, settings.max_length, size, endpoint=True)
    return ["".join(generator.choice(list("abcdef[]]"), length)) for length in lengths]


def label_characters(text: str) -> list[str]:
    """A bracket counts only where it opens or closes one: "]a[b[c]" is outside 2, open, inside 3, close."""
    labels, inside = [], False
    for character in text:
        if character == ("]" if inside else "["):
            inside = not inside
            labels.append("open" if inside else "close")
        else:
            labels.append("inside" if inside else "outside")
    return labels
