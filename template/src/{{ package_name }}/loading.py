"""Which examples make which batch, and reading them ahead of the model. Every order is a function of its seed."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256

import numpy as np

from .contract import Batch, Datasets, Examples, Indices
from .seeds import example_seeds


def epoch_order(datasets: Datasets, seed: int, epoch: int) -> Indices:
    """The indices of one training epoch, int64[N]."""
    generator = np.random.default_rng([seed, epoch])
    if datasets.order is not None:
        return np.asarray(datasets.order(generator))
    return generator.permutation(len(datasets.train)).astype(np.int64)


def read_batches(
    examples: Examples, parts: Iterable[Indices], seed_of_epoch: tuple[int, int] | None, workers: int
) -> Iterator[Batch]:
    """Read each part in turn, `workers` threads ahead; (seed, epoch) switches augmentation on."""

    def read(part: Indices) -> Batch:
        return examples.read(part, None if seed_of_epoch is None else example_seeds(*seed_of_epoch, part))

    if workers == 0:
        yield from map(read, parts)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="read") as pool:
        waiting: deque[Future[Batch]] = deque()
        try:
            for part in parts:
                waiting.append(pool.submit(read, part))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def batch_parts(order: Indices, steps: range, size: int, pieces: int, rank: int, world_size: int) -> list[Indices]:
    """The indices that a rank reads, `pieces` arrays a step: its contiguous share of each global batch of `size`."""
    share = size // world_size
    piece = share // pieces
    starts = [step * size + rank * share + offset for step in steps for offset in range(0, share, piece)]
    return [order[start : start + piece] for start in starts]


def data_version(datasets: Datasets) -> str:
    """A fingerprint of the data: sizes, facts, and up to 64 examples of each split, evenly spaced."""
    digest = sha256(datasets.facts.model_dump_json().encode())
    for examples in (datasets.train, datasets.val, datasets.test):
        digest.update(str(len(examples)).encode())
        if len(examples):
            batch = examples.read(np.unique(np.linspace(0, len(examples) - 1, 64, dtype=np.int64)), None)
            for name in sorted(batch):
                digest.update(name.encode() + np.ascontiguousarray(batch[name]).tobytes())
    return digest.hexdigest()[:16]
