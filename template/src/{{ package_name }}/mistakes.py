"""The examples that a model does worst on, whatever its task: for the demo and for notebooks."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import data
from .backend import Tensor, inference, run_model, to_numpy, to_tensors
from .checkpoint import load_model
from .contract import Batch, Examples
from .errors import UserError
from .loading import read_batches
from .run import Checkpoint, Run

BATCH = 64


class Mistake(NamedTuple):
    """An example by its number in the split, without the batch's axis: what the model takes, the rest, the answer."""

    number: int
    inputs: dict[str, NDArray[Any]]
    targets: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]]
    loss: float


def find_mistakes(
    run: Run, split: str = "test", limit: int = 24, among: int = 2000, which: Checkpoint = "best"
) -> list[Mistake]:
    """The `limit` examples of highest loss, the highest first, among so many that are spread over the split."""
    config, task, model, _ = load_model(run, which)
    if not task.examples_are_independent:
        raise UserError("task.py: where losses compare examples, none has a loss of its own")
    examples: Examples = getattr(data.build_datasets(config.data), split)
    if len(examples) == 0:
        raise UserError(f"data: the {split} split is empty")
    indices = np.unique(np.linspace(0, len(examples) - 1, among, dtype=np.int64))
    parts = [indices[start : start + BATCH] for start in range(0, len(indices), BATCH)]
    losses: list[float] = []
    with inference(model):
        for arrays in read_batches(examples, parts, None, config.trainer.read_workers):
            batch = to_tensors(arrays)
            outputs = run_model(model, batch)
            for row in range(len(next(iter(arrays.values())))):
                loss = task.compute_loss(_only(outputs, row), _only(batch, row))
                losses.append(float(loss.total) / max(float(loss.count), 1e-9))
        worst = np.argsort(losses)[::-1][:limit]  # NaN comes first
        inputs = {item.name for item in task.signature().inputs}
        mistakes = []
        for place in worst:
            example = examples.read(indices[place : place + 1], None)  # anew: alone it has its own length
            predicted = task.predict(model, to_tensors({name: example[name] for name in inputs}))
            own, rest = (_first(example, keep) for keep in (inputs, example.keys() - inputs))
            answer = _first({name: to_numpy(value) for name, value in predicted.items()})
            mistakes.append(Mistake(int(indices[place]), own, rest, answer, losses[place]))
    return mistakes


def _only(tensors: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    return {name: tensor[row : row + 1] for name, tensor in tensors.items()}


def _first(batch: Batch, names: set[str] | None = None) -> dict[str, NDArray[Any]]:
    return {name: array[0] for name, array in batch.items() if names is None or name in names}
