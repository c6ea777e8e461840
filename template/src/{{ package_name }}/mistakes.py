"""The examples that a model does worst on, whatever its task."""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .backend import Model, inference, run_model, to_numpy, to_tensors
from .checkpoint import load_model
from .contract import BaseTask, Batch
from .errors import UserError
from .evaluate import build_split
from .loading import read_batches
from .predict import label, true_label
from .run import Checkpoint, Run
from .signature import Signature

BATCH = 64
COLUMNS = 8


class Mistake(NamedTuple):
    """An example, by its number in the split, and what the model makes of it; no array has the batch's axis."""

    number: int
    example: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]]
    loss: float


def find_mistakes(
    run: Run, split: str = "test", limit: int = 24, among: int = 2000, which: Checkpoint = "best"
) -> tuple[Signature, list[Mistake]]:
    """The `limit` examples of highest loss, the highest first, among so many that are spread over the split.

    The signature says what their arrays are.
    """
    config, task, model, _ = load_model(run, which)
    if not task.examples_are_independent:
        raise UserError("task.py: where losses compare examples, none has a loss of its own")
    examples = build_split(config, split)
    indices = np.unique(np.linspace(0, len(examples) - 1, among, dtype=np.int64))
    parts = [indices[start : start + BATCH] for start in range(0, len(indices), BATCH)]
    signature, mistakes = task.signature(), []
    with inference(model):
        batches = read_batches(examples, parts, None, config.trainer.read_workers)
        losses = [loss for arrays in batches for loss in compute_losses(task, model, arrays)]
        for place in np.argsort(losses)[::-1][:limit]:  # NaN comes first
            example = examples.read(indices[place : place + 1], None)  # alone it has its own length
            inputs = to_tensors({item.name: example[item.name] for item in signature.inputs})
            outputs = {name: to_numpy(value)[0] for name, value in task.predict(model, inputs).items()}
            arrays = {name: array[0] for name, array in example.items()}
            mistakes.append(Mistake(int(indices[place]), arrays, outputs, losses[place]))
    return signature, mistakes


def draw_mistakes(signature: Signature, mistakes: Sequence[Mistake]) -> bytes:
    """Their pictures as a PNG, each with its true label, the predicted one, and its loss."""
    from matplotlib.figure import Figure

    image = next(item for item in signature.inputs if item.kind == "image")
    rows = -(-len(mistakes) // COLUMNS)
    figure = Figure(figsize=(12, 2 * rows), layout="constrained")
    for place, mistake in enumerate(mistakes):
        axes = figure.add_subplot(rows, COLUMNS, place + 1)
        axes.set_axis_off()
        axes.imshow(mistake.example[image.name], cmap="gray", vmin=0, vmax=1)
        words = [f"loss {mistake.loss:.3g}"]
        for item in signature.outputs:
            truth = true_label(signature, item, mistake.example)
            if truth is not None and len(item.shape) == 1:
                words.insert(0, f"{truth}, predicted {label(item, mistake.outputs[item.name])}")
        axes.set_title("\n".join(words), fontsize=8)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


def compute_losses(task: BaseTask, model: Model, arrays: Batch) -> list[float]:
    """The loss of each example of a batch, as if it were alone."""
    batch = to_tensors(arrays)
    outputs = run_model(model, batch)
    losses = []
    for row in range(len(next(iter(arrays.values())))):
        alone = ({name: tensor[row : row + 1] for name, tensor in part.items()} for part in (outputs, batch))
        loss = task.compute_loss(*alone)
        losses.append(float(loss.total) / max(float(loss.count), 1e-9))
    return losses
