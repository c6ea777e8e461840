"""One tiny batch through all of the owner's code: a broken contract is one line, before the first step."""

import argparse
import json
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from . import data, model, task
from .backend import Device, Model, Tensor, inference, place, run_model, to_numpy, to_tensors, without_gradient
from .config import Config
from .contract import BaseTask, Batch, Datasets, Examples, Indices, Loss, Monitor, Report, Sums
from .errors import UserError
from .loading import epoch_order
from .seeds import example_seeds
from .settings import DataFacts
from .signature import Signature, mismatch

ROWS = 8
Tensors = dict[str, Tensor]


def main(args: argparse.Namespace) -> None:
    datasets = data.build_datasets(args.config.data)
    build(args.config, datasets, "cpu", report=True)
    sizes = ", ".join(f"{name} {len(getattr(datasets, name))}" for name in ("train", "val", "test"))
    print(f"settings.py, data.py, model.py and task.py keep the contract ({sizes} examples)")


def build(config: Config, datasets: Datasets, device: Device, report: bool = False) -> tuple[Model, BaseTask]:
    """Build the model, on the device, and the task for the data, and check all of them together.

    `report` includes the tables and pictures, which training does not need and which take a moment to draw.
    """
    _check_datasets(datasets)
    built = model.build_model(config.model, datasets.facts)
    _require_type(built, Model, "model.py: build_model")
    built = place(built, device)
    made = task.Task(config.task, datasets.facts)
    _require_type(made, BaseTask, "task.py: Task")
    train, val = (_check_reading(getattr(datasets, name), name) for name in ("train", "val"))
    kinds = [{name: (array.dtype.name, array.ndim) for name, array in batch.items()} for batch in (train, val)]
    _require(kinds[0] == kinds[1], "data.py: train.read", f"give what val.read gives, {kinds[1]}", str(kinds[0]))
    _check_reading(datasets.test, "test")
    _check_order(datasets)
    with inference(built):
        batch = to_tensors(val, device)
        outputs = run_model(built, batch)
        _require_dict(outputs, Tensor, "model.py: the model")
        sums = _check_task(made, outputs, batch)
        if report:
            _check_report(made, sums)
        _check_prediction(made, built, datasets.val, device)
    unused = without_gradient(built, made, train)
    _require(not unused, "model.py: the model", "use all its weights in the loss", f"no gradient for {unused[:5]}")
    return built, made


def _check_datasets(datasets: Datasets) -> None:
    where = "data.py: build_datasets"
    _require_type(datasets, Datasets, where)
    for name in ("train", "val"):
        _require(len(getattr(datasets, name)) > 0, where, f"give {name} examples", "none")
    facts = datasets.facts
    _require(isinstance(facts, DataFacts), where, "give facts of type DataFacts", type(facts).__name__)
    again = DataFacts.model_validate_json(facts.model_dump_json())
    _require(again == facts, "settings.py: DataFacts", "be equal after a round trip through JSON", repr(again))


def _check_reading(examples: Examples, split: str) -> Batch:
    """Read a few examples in several ways, which must agree."""
    where, indices = f"data.py: {split}.read", np.arange(min(ROWS, len(examples)), dtype=np.int64)
    if len(indices) == 0:
        return {}
    seeds = example_seeds(0, 0, indices) if split == "train" else None
    batch = examples.read(indices, seeds)
    _require_dict(batch, np.ndarray, where)
    batch = {name: array.copy() for name, array in batch.items()}
    examples.read(indices, None if seeds is None else seeds + np.uint64(1))
    again = examples.read(indices, seeds)
    examples.read(np.array([len(examples) - 1]), None if seeds is None else seeds[:1])
    alone = [examples.read(indices[i : i + 1], None if seeds is None else seeds[i : i + 1]) for i in indices]
    for name, array in batch.items():
        right = array.dtype.kind in "biuf" and array.dtype != np.float64
        _require(right, where, f"give float32 for {name!r}", str(array.dtype))
        _require(array.shape[:1] == indices.shape, where, f"give {len(indices)} rows of {name!r}", str(array.shape))
        finite = array.dtype.kind != "f" or bool(np.isfinite(array).all())
        _require(finite, where, f"give finite numbers for {name!r}", "NaN or infinity")
        _require(np.array_equal(array, again[name]), where, f"give the same {name!r} for the same seeds", "others")
        for row, one in zip(array, alone, strict=True):
            same = np.array_equal(_without_padding(row, one[name][0]), one[name][0])
            _require(same, where, f"give the same {name!r} for an example alone and among others", "others")
    return batch


def _check_order(datasets: Datasets) -> None:
    where, size = "data.py: order", len(datasets.train)
    order: Indices = epoch_order(datasets, 0, 0)
    inside = (
        order.dtype == np.int64 and order.ndim == 1 and 0 <= order.min(initial=size) <= order.max(initial=-1) < size
    )
    _require(inside, where, f"give int64 indices in [0, {size})", f"{order.dtype} {order}"[:60])
    same = np.array_equal(order, epoch_order(datasets, 0, 0))
    _require(same, where, "give the same order for the same generator", "another")


def _check_task(made: BaseTask, outputs: Tensors, batch: Tensors) -> Sums:
    sums = _sums(made, outputs, batch)
    if made.examples_are_independent:
        rows = range(len(next(iter(batch.values()))))
        parts = [_sums(made, *({k: v[i : i + 1] for k, v in d.items()} for d in (outputs, batch))) for i in rows]
        for name, whole in sums.items():
            where = "task.py: compute_loss" if name in ("loss", "count") else "task.py: compute_sums"
            shapes = {part[name].shape for part in parts} | {whole.shape}
            _require(len(shapes) == 1, where, f"give {name!r} one shape, whatever the rows", str(shapes))
            added = np.sum([part[name] for part in parts], axis=0)
            expected = f"give sums: {name!r} of all rows is that of each row added up"
            _require(np.allclose(whole, added, rtol=1e-3, atol=1e-5), where, expected, f"{whole} and {added}")
    metrics = made.compute_metrics(sums)
    where = "task.py: compute_metrics"
    _require_type(metrics, dict, where)
    _require(all(np.ndim(value) == 0 for value in metrics.values()), where, "return a dict of numbers", str(metrics))
    _require("loss" not in metrics, where, 'leave the name "loss" free', ", ".join(metrics))
    _require_type(made.monitor, Monitor, "task.py: monitor")
    names, (metric, mode) = ["loss", *metrics], made.monitor
    _require(metric in names, "task.py: monitor", f"be one of {', '.join(names)}", metric)
    _require(mode in ("min", "max"), "task.py: monitor", 'be "min" or "max"', mode)
    return sums


def _check_report(made: BaseTask, sums: Sums) -> None:
    report, where = made.build_report(sums), "task.py: build_report"
    _require_type(report, Report, where)
    _require(_is_json(report.tables), where, "give tables of text and Python's own numbers", str(report.tables)[:60])
    pictures = all(isinstance(picture, bytes) for picture in report.pictures.values())
    _require(pictures, where, "give pictures as the bytes of a PNG", str(report.pictures)[:60])


def _sums(made: BaseTask, outputs: Tensors, batch: Tensors) -> Sums:
    loss, where = made.compute_loss(outputs, batch), "task.py: compute_loss"
    _require(isinstance(loss, Loss), where, "return Loss(total, count)", type(loss).__name__)
    _require_type(loss.total, Tensor, where + ": total")
    total, count = to_numpy(loss.total), np.asarray(float(loss.count) if np.ndim(loss.count) == 0 else np.nan)
    _require(total.ndim == 0, where, "give a scalar total", str(total.shape))
    _require(bool(np.isfinite(total)), where, "give a finite total on the first batch", str(total))
    _require(bool(count > 0), where, "give a count above 0, as a scalar", str(loss.count))
    sums, where = made.compute_sums(outputs, batch), "task.py: compute_sums"
    _require_dict(sums, Tensor, where)
    _require(sums.keys().isdisjoint(("loss", "count")), where, 'leave the names "loss" and "count" free', str([*sums]))
    arrays = {name: to_numpy(value) for name, value in sums.items()} | {"loss": total, "count": count}
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def _check_prediction(made: BaseTask, built: Model, examples: Examples, device: Device) -> None:
    signature, where = made.signature(), "task.py: signature"
    _require_type(signature, Signature, where)
    axes = {axis for item in signature.inputs for axis in item.shape}
    for out in signature.outputs:
        fits = not out.names or out.shape[-1:] == (len(out.names),)
        _require(fits, where, f"give {out.name!r} as many names as its last axis is long", str(len(out.names)))
        known = all(isinstance(axis, int) or axis in axes for axis in out.shape)
        _require(known, where, f"give {out.name!r} varying axes that an input has", str(out.shape))
    indices = np.arange(min(ROWS, len(examples)), dtype=np.int64)
    together = _predict(made, built, signature, examples.read(indices, None), device)
    for index in indices:
        alone = _predict(made, built, signature, examples.read(indices[index : index + 1], None), device)
        for name, value in together.items():
            same = np.allclose(_without_padding(value[index], alone[name][0]), alone[name][0], rtol=1e-3, atol=1e-4)
            wanted = f"give the same {name!r} for an example alone and among others"
            _require(same, "model.py: the model", wanted, "others")


def _predict(made: BaseTask, built: Model, signature: Signature, batch: Batch, device: Device) -> Batch:
    where = "task.py: signature"
    for item in signature.inputs:
        _require(item.name in batch, where, f"name inputs among {', '.join(batch)}", item.name)
        array = batch[item.name]
        fits = not mismatch(array, item.shape)
        _require(fits, where, f"give {item.name!r} the shape of the data, {array.shape[1:]}", str(item.shape))
        right = str(array.dtype) == item.dtype
        _require(right, where, f"give {item.name!r} the dtype of the data, {array.dtype}", item.dtype)
        size = array.max(initial=0) + 1 if item.kind == "tokens" else array.shape[-1]
        enough = not item.names or (len(item.names) >= size if item.kind == "tokens" else len(item.names) == size)
        _require(enough, where, f"give {item.name!r} a name for each of {size}", str(len(item.names)))
    outputs = made.predict(built, to_tensors({item.name: batch[item.name] for item in signature.inputs}, device))
    where = "task.py: predict"
    _require_dict(outputs, Tensor, where)
    arrays = {name: to_numpy(value) for name, value in outputs.items()}
    for out in signature.outputs:
        _require(out.name in arrays, where, f"return {out.name!r}, which the signature names", ", ".join(arrays))
        shape = arrays[out.name].shape
        _require(not mismatch(arrays[out.name], out.shape), where, f"give {out.name!r} [B, *{out.shape}]", str(shape))
    return {out.name: arrays[out.name] for out in signature.outputs}


def _without_padding(row: NDArray[np.generic], alone: NDArray[np.generic]) -> NDArray[np.generic]:
    """The part of a row that an example read alone, with less padding, has too."""
    return row[tuple(slice(size) for size in alone.shape)] if row.ndim == alone.ndim else row


def _is_json(value: Mapping[str, object]) -> bool:
    try:
        json.dumps(dict(value))
    except (TypeError, ValueError):
        return False
    return True


def _require_dict(value: object, kind: type, where: str) -> None:
    fits = isinstance(value, dict) and bool(value) and all(isinstance(item, kind) for item in value.values())
    got = {k: type(v).__name__ for k, v in value.items()} if isinstance(value, dict) else type(value).__name__
    _require(fits, where, f"return a dict of {kind.__name__}", str(got))


def _require_type(value: object, kind: type, where: str) -> None:
    _require(isinstance(value, kind), where, f"return {kind.__name__}", type(value).__name__)


def _require(holds: bool, where: str, expected: str, got: str) -> None:
    if not holds:
        raise UserError(f"{where} must {expected}, got {got}")
