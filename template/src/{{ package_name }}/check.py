"""One tiny batch through all of the owner's code: a broken contract is one line, before the first step."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import data, model, task
from .backend import Model, Tensor, inference, run_model, to_numpy, to_tensors
from .config import Config, load_config
from .contract import BaseTask, Datasets, Examples, Loss, Report
from .errors import UserError
from .loading import epoch_order, example_seeds
from .settings import DataFacts, DataSettings
from .signature import Signature, mismatch

ROWS = 8


def build_datasets(settings: DataSettings) -> Datasets:
    """Call the owner's build_datasets; an exception names it."""
    with _owner("data.py: build_datasets"):
        return data.build_datasets(settings)


def build(config: Config, datasets: Datasets) -> tuple[Model, BaseTask]:
    """Build the model and the task for the data, and check all of them together."""
    _check_datasets(datasets, config)
    with _owner("model.py: build_model"):
        built = model.build_model(config.model, datasets.facts)
    with _owner("task.py: Task"):
        made = task.Task(config.task, datasets.facts)
    for name in ("train", "val", "test"):
        _check_reading(getattr(datasets, name), name)
    _check_order(datasets)
    batch = to_tensors(datasets.val.read(np.arange(min(ROWS, len(datasets.val))), None))
    with inference(built):
        outputs = _check_model(built, batch)
        _check_task(made, outputs, batch)
        _check_prediction(made, built, datasets.val)
    return built, made


def main(args: argparse.Namespace) -> None:
    config = load_config(args.experiment or Path("configs/experiment/baseline.yaml"), args.flags, args)
    datasets = build_datasets(config.data)
    build(config, datasets)
    sizes = ", ".join(f"{name} {len(getattr(datasets, name))}" for name in ("train", "val", "test"))
    print(f"settings.py, data.py, model.py and task.py keep the contract ({sizes} examples)")


def _check_datasets(datasets: Datasets, config: Config) -> None:
    _require(isinstance(datasets, Datasets), "data.py: build_datasets", "return Datasets", type(datasets).__name__)
    for name in ("train", "val"):
        _require(len(getattr(datasets, name)) > 0, "data.py: build_datasets", f"give {name} examples", "none")
    facts, where = datasets.facts, "data.py: build_datasets"
    _require(isinstance(facts, DataFacts), where, "give facts of type DataFacts", type(facts).__name__)
    again = DataFacts.model_validate_json(facts.model_dump_json())
    _require(again == facts, "settings.py: DataFacts", "be equal after a round trip through JSON", repr(again))


def _check_reading(examples: Examples, split: str) -> None:
    where = f"data.py: {split}.read"
    indices = np.arange(min(ROWS, len(examples)), dtype=np.int64)
    if len(indices) == 0:
        return
    seeds = example_seeds(0, 0, indices) if split == "train" else None
    with _owner(where):
        batch, again = examples.read(indices, seeds), examples.read(indices, seeds)
        alone = [examples.read(indices[i : i + 1], None if seeds is None else seeds[i : i + 1]) for i in indices]
    _require(isinstance(batch, dict) and bool(batch), where, "return a dict of arrays", type(batch).__name__)
    for name, array in batch.items():
        _require(isinstance(array, np.ndarray), where, f"give an array for {name!r}", type(array).__name__)
        _require(array.dtype != np.float64, where, f"give float32 for {name!r}", "float64")
        _require(array.shape[:1] == indices.shape, where, f"give {len(indices)} rows of {name!r}", str(array.shape))
        _require(np.array_equal(array, again[name]), where, f"give the same {name!r} for the same seeds", "others")
        same = all(_same_row(array[i], one[name][0]) for i, one in enumerate(alone))
        _require(same, where, f"give row i of {name!r} for example i alone, whatever else is read", "others")


def _same_row(row: NDArray[Any], alone: NDArray[Any]) -> bool:
    """Whether a row equals the example read alone, which has less padding."""
    if row.ndim != alone.ndim or any(a < b for a, b in zip(row.shape, alone.shape, strict=True)):
        return False
    return np.array_equal(row[tuple(slice(size) for size in alone.shape)], alone)


def _check_order(datasets: Datasets) -> None:
    with _owner("data.py: order"):
        order = epoch_order(datasets, 0, 0)
    inside = order.ndim == 1 and len(order) > 0 and order.min() >= 0 and order.max() < len(datasets.train)
    _require(inside, "data.py: order", f"give int64 indices in [0, {len(datasets.train)})", str(order)[:60])


def _check_model(built: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    where = "model.py: the model"
    with _owner(where):
        outputs = run_model(built, batch)
    _require(isinstance(outputs, dict) and bool(outputs), where, "return a dict of tensors", type(outputs).__name__)
    for name, value in outputs.items():
        _require(isinstance(value, Tensor), where, f"give a tensor for {name!r}", type(value).__name__)
    return outputs


def _check_task(made: BaseTask, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> None:
    sums = _sums(made, outputs, batch)
    if made.examples_are_independent:
        rows = range(len(next(iter(batch.values()))))
        parts = [_sums(made, _rows(outputs, i), _rows(batch, i)) for i in rows]
        for name, whole in sums.items():
            function = "compute_loss" if name in ("loss", "count") else "compute_sums"
            added = sum(part[name] for part in parts)
            additive = np.shape(added) == whole.shape and np.allclose(whole, added, rtol=1e-3, atol=1e-5)
            _require(
                additive,
                f"task.py: {function}",
                f"give a sum for {name!r}: all rows = row by row",
                f"{whole} and {added}",
            )
    with _owner("task.py: compute_metrics"):
        metrics = made.compute_metrics(sums)
    _require(isinstance(metrics, dict), "task.py: compute_metrics", "return a dict of numbers", type(metrics).__name__)
    allowed = ", ".join(["loss", *metrics])
    _require(made.monitor.metric in {"loss", *metrics}, "task.py: monitor", f"be one of {allowed}", made.monitor.metric)
    with _owner("task.py: build_report"):
        report = made.build_report(sums)
    _require(isinstance(report, Report), "task.py: build_report", "return a Report", type(report).__name__)


def _sums(made: BaseTask, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    with _owner("task.py: compute_loss"):
        loss = made.compute_loss(outputs, batch)
    _require(isinstance(loss, Loss), "task.py: compute_loss", "return Loss(total, count)", type(loss).__name__)
    _require(np.ndim(to_numpy(loss.total)) == 0, "task.py: compute_loss", "give a scalar total", str(loss.total.shape))
    total, count = float(loss.total), float(loss.count)
    _require(bool(np.isfinite(total)), "task.py: compute_loss", "give a finite total on the first batch", str(total))
    _require(count > 0, "task.py: compute_loss", "give a count above 0", str(count))
    with _owner("task.py: compute_sums"):
        sums = made.compute_sums(outputs, batch)
    where = "task.py: compute_sums"
    _require(isinstance(sums, dict), where, "return a dict of tensors", type(sums).__name__)
    for name, value in sums.items():
        _require(isinstance(value, Tensor), where, f"give a tensor for {name!r}", type(value).__name__)
        _require(name not in ("loss", "count"), where, 'leave the names "loss" and "count" free', name)
    arrays = {name: to_numpy(value).astype(np.float64) for name, value in sums.items()}
    return arrays | {"loss": np.asarray(total), "count": np.asarray(count)}


def _check_prediction(made: BaseTask, built: Model, examples: Examples) -> None:
    with _owner("task.py: signature"):
        signature = made.signature()
    _require(isinstance(signature, Signature), "task.py: signature", "return a Signature", type(signature).__name__)
    indices = np.arange(min(ROWS, len(examples)), dtype=np.int64)
    together = _predict(made, built, signature, examples.read(indices, None))
    alone = _predict(made, built, signature, examples.read(indices[:1], None))
    for name, value in together.items():
        cut = value[0][tuple(slice(size) for size in alone[name].shape[1:])]
        same = np.allclose(cut, alone[name][0], rtol=1e-3, atol=1e-4)
        _require(same, "model.py: the model", f"give the same {name!r} for an example alone and among others", "others")


def _predict(
    made: BaseTask, built: Model, signature: Signature, batch: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    where, inputs = "task.py: signature", {}
    for item in signature.inputs:
        _require(item.name in batch, where, f"name inputs among {', '.join(batch)}", item.name)
        array = batch[item.name]
        _require(
            not mismatch(array, item.shape), where, f"give {item.name!r} its shape", f"{item.shape} for {array.shape}"
        )
        _require(str(array.dtype) == item.dtype, where, f"give {item.name!r} its dtype {array.dtype}", item.dtype)
        inputs[item.name] = array
    with _owner("task.py: predict"):
        outputs = made.predict(built, to_tensors(inputs))
    arrays = {}
    for out in signature.outputs:
        _require(out.name in outputs, "task.py: predict", f"return {out.name!r}", ", ".join(outputs))
        array = arrays[out.name] = to_numpy(outputs[out.name])
        wanted = f"give {out.name!r} the shape [B, {', '.join(map(str, out.shape))}]"
        _require(not mismatch(array, out.shape), "task.py: predict", wanted, str(array.shape))
    return arrays


def _rows(tensors: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    return {name: tensor[row : row + 1] for name, tensor in tensors.items()}


def _require(holds: bool, where: str, expected: str, got: str) -> None:
    if not holds:
        raise UserError(f"{where} must {expected}, got {got}")


@contextmanager
def _owner(where: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{where} must run, got {type(error).__name__}: {error}", cause_matters=True) from error
