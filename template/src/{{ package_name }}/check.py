"""One tiny batch through all of the owner's code: a broken contract is one line, before the first step."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from . import data, model, task
from .backend import Model, Tensor, inference, run_model, to_numpy, to_tensors
from .config import Config, load_config
from .contract import BaseTask, Batch, Datasets, Examples, Loss, Report
from .errors import UserError
from .loading import epoch_order
from .seeds import example_seeds
from .settings import DataFacts, DataSettings
from .signature import Signature, mismatch

ROWS = 8
Tensors = dict[str, Tensor]
Sums = dict[str, NDArray[np.float64]]


def main(args: argparse.Namespace) -> None:
    config = load_config(args.experiment, args.flags, args)
    datasets = build_datasets(config.data)
    build(config, datasets)
    sizes = ", ".join(f"{name} {len(getattr(datasets, name))}" for name in ("train", "val", "test"))
    print(f"settings.py, data.py, model.py and task.py keep the contract ({sizes} examples)")


def build_datasets(settings: DataSettings) -> Datasets:
    """Call the owner's build_datasets; an exception names it."""
    with _owner("data.py: build_datasets"):
        return data.build_datasets(settings)


def build(config: Config, datasets: Datasets) -> tuple[Model, BaseTask]:
    """Build the model and the task for the data, and check all of them together."""
    _check_datasets(datasets)
    with _owner("model.py: build_model"):
        built = model.build_model(config.model, datasets.facts)
    with _owner("task.py: Task"):
        made = task.Task(config.task, datasets.facts)
    for name in ("train", "val", "test"):
        _check_reading(getattr(datasets, name), name)
    _check_order(datasets)
    batch = to_tensors(datasets.val.read(np.arange(min(ROWS, len(datasets.val))), None))
    with inference(built):
        with _owner("model.py: the model"):
            outputs = run_model(built, batch)
        _check_dict(outputs, Tensor, "model.py: the model")
        _check_task(made, outputs, batch)
        _check_prediction(made, built, datasets.val)
    return built, made


def _check_datasets(datasets: Datasets) -> None:
    where = "data.py: build_datasets"
    _require(isinstance(datasets, Datasets), where, "return Datasets", type(datasets).__name__)
    for name in ("train", "val"):
        _require(len(getattr(datasets, name)) > 0, where, f"give {name} examples", "none")
    facts = datasets.facts
    _require(isinstance(facts, DataFacts), where, "give facts of type DataFacts", type(facts).__name__)
    again = DataFacts.model_validate_json(facts.model_dump_json())
    _require(again == facts, "settings.py: DataFacts", "be equal after a round trip through JSON", repr(again))


def _check_reading(examples: Examples, split: str) -> None:
    where, indices = f"data.py: {split}.read", np.arange(min(ROWS, len(examples)), dtype=np.int64)
    if len(indices) == 0:
        return
    seeds = example_seeds(0, 0, indices) if split == "train" else None
    with _owner(where):
        batch, again = examples.read(indices, seeds), examples.read(indices, seeds)
        alone = [examples.read(indices[i : i + 1], None if seeds is None else seeds[i : i + 1]) for i in indices]
    _check_dict(batch, np.ndarray, where)
    for name, array in batch.items():
        _require(array.dtype != np.float64, where, f"give float32 for {name!r}", "float64")
        _require(array.shape[:1] == indices.shape, where, f"give {len(indices)} rows of {name!r}", str(array.shape))
        _require(np.array_equal(array, again[name]), where, f"give the same {name!r} for the same seeds", "others")
        for row, one in zip(array, alone, strict=True):
            same = np.array_equal(_without_padding(row, one[name][0]), one[name][0])
            _require(same, where, f"give the same {name!r} for an example alone and among others", "others")


def _check_order(datasets: Datasets) -> None:
    with _owner("data.py: order"):
        order = epoch_order(datasets, 0, 0)
    inside = order.ndim == 1 and len(order) > 0 and order.min() >= 0 and order.max() < len(datasets.train)
    _require(inside, "data.py: order", f"give int64 indices in [0, {len(datasets.train)})", str(order)[:60])


def _check_task(made: BaseTask, outputs: Tensors, batch: Tensors) -> None:
    sums = _sums(made, outputs, batch)
    if made.examples_are_independent:
        rows = range(len(next(iter(batch.values()))))
        parts = [_sums(made, *({k: v[i : i + 1] for k, v in d.items()} for d in (outputs, batch))) for i in rows]
        for name, whole in sums.items():
            where = "task.py: compute_loss" if name in ("loss", "count") else "task.py: compute_sums"
            added = sum(part[name] for part in parts)
            additive = np.shape(added) == whole.shape and np.allclose(whole, added, rtol=1e-3, atol=1e-5)
            _require(
                additive, where, f"give sums: {name!r} of all rows is that of each row added up", f"{whole}, {added}"
            )
    with _owner("task.py: compute_metrics"):
        metrics = made.compute_metrics(sums)
    _require(isinstance(metrics, dict), "task.py: compute_metrics", "return a dict of numbers", type(metrics).__name__)
    names = ["loss", *metrics]
    _require(made.monitor.metric in names, "task.py: monitor", f"be one of {', '.join(names)}", made.monitor.metric)
    with _owner("task.py: build_report"):
        report = made.build_report(sums)
    _require(isinstance(report, Report), "task.py: build_report", "return a Report", type(report).__name__)


def _sums(made: BaseTask, outputs: Tensors, batch: Tensors) -> Sums:
    where = "task.py: compute_loss"
    with _owner(where):
        loss = made.compute_loss(outputs, batch)
    _require(isinstance(loss, Loss), where, "return Loss(total, count)", type(loss).__name__)
    _require(np.ndim(to_numpy(loss.total)) == 0, where, "give a scalar total", str(loss.total.shape))
    total, count = float(loss.total), float(loss.count)
    _require(bool(np.isfinite(total)), where, "give a finite total on the first batch", str(total))
    _require(count > 0, where, "give a count above 0", str(count))
    where = "task.py: compute_sums"
    with _owner(where):
        sums = made.compute_sums(outputs, batch)
    _check_dict(sums, Tensor, where)
    _require(
        sums.keys().isdisjoint(("loss", "count")), where, 'leave the names "loss" and "count" free', ", ".join(sums)
    )
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
        same = np.allclose(_without_padding(value[0], alone[name][0]), alone[name][0], rtol=1e-3, atol=1e-4)
        _require(same, "model.py: the model", f"give the same {name!r} for an example alone and among others", "others")


def _predict(made: BaseTask, built: Model, signature: Signature, batch: Batch) -> Batch:
    where = "task.py: signature"
    for item in signature.inputs:
        _require(item.name in batch, where, f"name inputs among {', '.join(batch)}", item.name)
        shape, dtype = batch[item.name].shape, str(batch[item.name].dtype)
        fits = not mismatch(batch[item.name], item.shape)
        _require(fits, where, f"give {item.name!r} the shape of the data, {shape[1:]}", str(item.shape))
        _require(dtype == item.dtype, where, f"give {item.name!r} the dtype of the data, {dtype}", item.dtype)
    where = "task.py: predict"
    with _owner(where):
        outputs = made.predict(built, to_tensors({item.name: batch[item.name] for item in signature.inputs}))
    _check_dict(outputs, Tensor, where)
    arrays = {name: to_numpy(value) for name, value in outputs.items()}
    for out in signature.outputs:
        _require(out.name in arrays, where, f"return {out.name!r}, which the signature names", ", ".join(arrays))
        shape = arrays[out.name].shape
        _require(not mismatch(arrays[out.name], out.shape), where, f"give {out.name!r} [B, *{out.shape}]", str(shape))
    return arrays


def _without_padding(row: NDArray[np.generic], alone: NDArray[np.generic]) -> NDArray[np.generic]:
    """The part of a row that an example read alone, with less padding, has too."""
    return row[tuple(slice(size) for size in alone.shape)] if row.ndim == alone.ndim else row


def _check_dict(value: object, kind: type, where: str) -> None:
    fits = isinstance(value, dict) and bool(value) and all(isinstance(item, kind) for item in value.values())
    got = {k: type(v).__name__ for k, v in value.items()} if isinstance(value, dict) else type(value).__name__
    _require(fits, where, f"return a dict of {kind.__name__}", str(got))


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
