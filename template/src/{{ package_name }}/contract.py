"""The contract between your four files (settings, data, model, task) and everything else."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .backend import Model, Tensor
from .settings import DataFacts, TaskSettings
from .signature import Signature

Batch = dict[str, NDArray[Any]]
"""Arrays of shape [B, ...]; row i of each belongs to example i of the batch."""
Indices = NDArray[np.int64]
Seeds = NDArray[np.uint64]
Sums = Mapping[str, NDArray[np.float64]]


class Examples(Protocol):
    """A split of the data."""

    def __len__(self) -> int: ...

    def read(self, indices: Indices, seeds: Seeds | None) -> Batch:
        """Read a whole batch: `indices` int64[B] -> arrays [B, ...], float32 and never float64.

        `seeds` uint64[B] are for augmentation: each is a function of the run's seed, the epoch and the
        index. None means val or test: no augmentation. Padding of uneven examples is done here.
        """
        ...


class ArrayExamples:
    """Examples held in memory, read by index; `augment(batch, seeds)` is applied to training batches."""

    def __init__(self, arrays: Batch, augment: Callable[[Batch, Seeds], Batch] | None = None) -> None:
        lengths = {name: len(array) for name, array in arrays.items() if isinstance(array, np.ndarray)}
        if lengths.keys() != arrays.keys() or len(set(lengths.values())) != 1:
            raise TypeError(f"ArrayExamples takes NumPy arrays of one length, got {lengths or arrays.keys()}")
        self.arrays = arrays
        self.augment = augment

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def read(self, indices: Indices, seeds: Seeds | None) -> Batch:
        batch = {name: array[indices] for name, array in self.arrays.items()}
        return batch if seeds is None or self.augment is None else self.augment(batch, seeds)


class Datasets(NamedTuple):
    """What build_datasets returns.

    `order` gives the indices of one training epoch, int64[N'], repeats allowed (oversampling, buckets of
    equal length); without it each epoch is a permutation.
    """

    train: Examples
    val: Examples
    test: Examples
    facts: DataFacts
    order: Callable[[np.random.Generator], Indices] | None = None


@dataclass(frozen=True)
class Loss:
    """`total` is the SUM of the losses of a batch; `count` is what to divide by: examples, tokens or weights.

    A regulariser adds `penalty * count` to the total.
    """

    total: Tensor
    count: Tensor | float


class Monitor(NamedTuple):
    """The metric that chooses the best checkpoint and stops training early: "loss", or one of compute_metrics."""

    metric: str = "loss"
    mode: Literal["min", "max"] = "min"

    def improves(self, value: float, best: float | None) -> bool:
        if value != value:  # NaN never wins
            return False
        return best is None or (value < best if self.mode == "min" else value > best)


class Report(NamedTuple):
    """What `evaluate` shows beside the metrics: tables as rows of cells, pictures as PNG files."""

    tables: Mapping[str, list[dict[str, str | int | float]]] = {}
    pictures: Mapping[str, bytes] = {}


class BaseTask:
    """What is learned: the loss, the metrics, and what an exported model returns.

    `examples_are_independent = False` is for losses that compare examples with each other (contrastive ones).
    """

    monitor = Monitor()
    examples_are_independent = True

    def __init__(self, settings: TaskSettings, facts: DataFacts) -> None:
        self.settings = settings
        self.facts = facts

    def compute_loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> Loss:
        raise NotImplementedError("compute_loss")

    def compute_sums(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Additive quantities of any shape (correct, tokens, a [C, C] confusion matrix)."""
        raise NotImplementedError("compute_sums")

    def compute_metrics(self, sums: Sums) -> dict[str, float]:
        """Metrics from the sums over a whole split, which also hold "loss" and "count"."""
        raise NotImplementedError("compute_metrics")

    def build_report(self, sums: Sums) -> Report:
        return Report()

    def signature(self) -> Signature:
        raise NotImplementedError("signature")

    def predict(self, model: Model, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The function that is exported: raw inputs -> what a user reads."""
        raise NotImplementedError("predict")
