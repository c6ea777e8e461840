"""What a trained model takes and returns, as written to model.json. NumPy only: the predictor reads it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

SCHEMA_VERSION = 1
Axis = int | str
"""A fixed size, or the name of an axis that varies, such as "time"."""


@dataclass(frozen=True)
class Input:
    """One input of the model; `shape` leaves out the batch.

    `names` are the columns of numbers or the vocabulary of tokens (0 is padding, 1 is unknown).
    An image is float32, height x width x channels, in [0, 1].
    """

    name: str
    kind: Literal["image", "numbers", "tokens", "array"]
    shape: tuple[Axis, ...]
    dtype: str = "float32"
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Output:
    """One output of the model; `names` are the labels or columns of its last axis."""

    name: str
    kind: Literal["probabilities", "numbers", "image", "array"]
    shape: tuple[Axis, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of an exported model."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Signature":
        return cls(
            inputs=tuple(Input(**_tuples(item)) for item in data["inputs"]),
            outputs=tuple(Output(**_tuples(item)) for item in data["outputs"]),
        )

    def sample(self, rows: int, axis: int = 4) -> dict[str, NDArray[Any]]:
        """Made-up inputs of the right shapes and dtypes; every varying axis gets the size `axis`."""
        generator = np.random.default_rng(0)
        arrays: dict[str, NDArray[Any]] = {}
        for item in self.inputs:
            shape = (rows, *(size if isinstance(size, int) else axis for size in item.shape))
            if item.kind == "tokens":
                arrays[item.name] = generator.integers(1, max(2, len(item.names)), shape).astype(item.dtype)
            else:
                arrays[item.name] = generator.random(shape).astype(item.dtype)
        return arrays


def mismatch(array: NDArray[Any], shape: tuple[Axis, ...]) -> bool:
    """Whether an array [B, ...] contradicts a shape that leaves out the batch."""
    return array.ndim != len(shape) + 1 or any(
        isinstance(want, int) and want != have for want, have in zip(shape, array.shape[1:], strict=True)
    )


def _tuples(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}
