"""An exported model, ready to predict. Needs NumPy and onnxruntime, and neither the framework nor your four files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from .errors import UserError
from .signature import SCHEMA_VERSION, Input, Signature, mismatch


class Predictor:
    """Loads model.onnx and model.json from a folder.

    Raises UserError when the files are missing, damaged or newer than this code.
    """

    def __init__(self, folder: Path) -> None:
        description = _read_description(folder / "model.json")
        try:
            self.signature = Signature.from_dict(description)
        except (AttributeError, TypeError) as error:
            raise UserError(f"{folder / 'model.json'}: is not the description of a model ({error})") from None
        self.facts: dict[str, Any] = description["facts"]
        try:
            self.session = ort.InferenceSession(folder / "model.onnx", providers=ort.get_available_providers())
        except Exception as error:
            raise UserError(f"{folder / 'model.onnx'}: cannot be loaded ({error}); make it anew: export") from None

    def predict(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Arrays [B, ...] by the names of the inputs -> arrays [B, ...] by the names of the outputs."""
        feed = {}
        for item in self.signature.inputs:
            if item.name not in inputs:
                raise UserError(f"input {item.name}: missing; the model takes {_names(self.signature.inputs)}")
            array = np.asarray(inputs[item.name]).astype(item.dtype, copy=False)
            if mismatch(array, item.shape):
                raise UserError(f"input {item.name}: shape must be [batch, {_shape(item)}], got {list(array.shape)}")
            feed[item.name] = array
        names = [item.name for item in self.signature.outputs]
        return dict(zip(names, self.session.run(names, feed), strict=True))

    def predict_examples(self, examples: Sequence[Mapping[str, Any]]) -> list[dict[str, NDArray[Any]]]:
        """Examples one by one, each with the length it came with: padding is added and cut again here."""
        if not examples:
            return []
        inputs: dict[str, NDArray[Any]] = {}
        lengths: dict[str, list[int]] = {}
        for item in self.signature.inputs:
            rows = [encode(item, example) for example in examples]
            for position, axis in enumerate(item.shape):
                if isinstance(axis, str):
                    lengths[axis] = [row.shape[position] for row in rows]
            inputs[item.name] = _pad(rows)
        outputs = self.predict(inputs)
        results: list[dict[str, NDArray[Any]]] = []
        for row in range(len(examples)):
            cut = {}
            for out in self.signature.outputs:
                ends = [slice(lengths[axis][row] if isinstance(axis, str) else None) for axis in out.shape]
                cut[out.name] = outputs[out.name][row][tuple(ends)]
            results.append(cut)
        return results


def encode(item: Input, example: Mapping[str, Any]) -> NDArray[Any]:
    """One example's value for one input: words become tokens, columns by name become a row of numbers."""
    if item.name not in example:
        raise UserError(f"input {item.name}: missing; got {_names_of(example)}")
    value = example[item.name]
    if item.kind == "tokens" and isinstance(value, str | list) and not _all_numbers(value):
        known = {token: index for index, token in enumerate(item.names)}
        value = [known.get(token, 1) for token in value]
    if item.kind == "numbers" and isinstance(value, Mapping):
        missing = [name for name in item.names if name not in value]
        if missing:
            raise UserError(f"input {item.name}: missing columns {', '.join(missing)}")
        value = [value[name] for name in item.names]
    try:
        array = np.asarray(value, dtype=item.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"input {item.name}: not {item.dtype} numbers ({error})") from None
    if mismatch(array[None], item.shape):
        raise UserError(f"input {item.name}: shape must be [{_shape(item)}], got {list(array.shape)}")
    return array


def _read_description(file: Path) -> dict[str, Any]:
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{file}: no such file; make it with: python -m {__package__} export") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({error})") from None
    if not isinstance(description, dict) or not {"schema_version", "inputs", "outputs", "facts"} <= description.keys():
        raise UserError(f"{file}: is not the description of a model")
    if description["schema_version"] > SCHEMA_VERSION:
        raise UserError(f"{file}: schema_version {description['schema_version']} is newer than this code; update it")
    return description


def _pad(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    # At least 1: a layer over an empty axis ends the whole process in onnxruntime.
    sizes = tuple(max(1, *(row.shape[axis] for row in rows)) for axis in range(rows[0].ndim))
    padded = np.zeros((len(rows), *sizes), rows[0].dtype)
    for target, row in zip(padded, rows, strict=True):
        target[tuple(slice(size) for size in row.shape)] = row
    return padded


def _all_numbers(value: str | list[Any]) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) for item in value)


def _names(items: Sequence[Input]) -> str:
    return ", ".join(item.name for item in items)


def _names_of(example: Mapping[str, Any]) -> str:
    return ", ".join(map(str, example)) or "nothing"


def _shape(item: Input) -> str:
    return ", ".join(map(str, item.shape))
