"""Export a trained model, and compare what it returns with the original."""

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from .backend import Model, Tensor, to_numpy, to_tensors
from .checkpoint import load_model
from .contract import BaseTask
from .errors import UserError
from .files import write_json
from .predictor import Predictor
from .run import Run, find_run
from .signature import SCHEMA_VERSION, Signature
from .tracking import keep_up

TOLERANCE = 1e-4
Arrays = dict[str, NDArray[Any]]


class Prediction(tf.Module):
    """Task.predict as a graph: tensors by the names of the signature's inputs and outputs."""

    def __init__(self, task: BaseTask, model: Model, signature: Signature) -> None:
        super().__init__()
        self.model = model
        self.specs = [
            tf.TensorSpec([None, *(a if isinstance(a, int) else None for a in item.shape)], item.dtype, item.name)
            for item in signature.inputs
        ]

        def predict(*inputs: Tensor) -> dict[str, Tensor]:
            named = {item.name: value for item, value in zip(signature.inputs, inputs, strict=True)}
            outputs = task.predict(model, named)
            return {item.name: outputs[item.name] for item in signature.outputs}

        self.predict = tf.function(predict, input_signature=self.specs, autograph=False)


def main(args: argparse.Namespace) -> None:
    run = find_run(args.run, needs=Run.checkpoint_name(args.checkpoint))
    config, task, model, state = load_model(run, args.checkpoint)
    signature = task.signature()
    prediction = Prediction(task, model, signature)
    write, file = {
        "onnx": (write_onnx, run.model),
        "savedmodel": (write_savedmodel, run.path / "savedmodel"),
    }[args.format]
    write_json(run.path / "model.json", describe(task, signature))
    try:
        predict = write(prediction, file)
    except (ValueError, TypeError, NotImplementedError, RuntimeError, tf.errors.OpError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"--format {args.format}: TensorFlow cannot export this model ({reason})", 1) from None
    difference = compare(task, model, predict, signature)
    if not difference <= TOLERANCE:
        remove(file)
        raise UserError(f"{file}: differs from the model by {difference:.1e}, more than {TOLERANCE}; removed", 1)
    print(f"{file} ({args.checkpoint} checkpoint, step {state.step}; differs from the model by {difference:.0e})")
    keep_up(run, config.tracking)


def describe(task: BaseTask, signature: Signature) -> dict[str, Any]:
    """The content of model.json."""
    return {"schema_version": SCHEMA_VERSION, **signature.to_dict(), "facts": task.facts.model_dump(mode="json")}


def write_onnx(prediction: Prediction, file: Path) -> Callable[[Arrays], Arrays]:
    import tf2onnx

    tf2onnx.convert.from_function(prediction.predict, prediction.specs, opset=18, output_path=str(file))
    return Predictor(file.parent).predict


def write_savedmodel(prediction: Prediction, folder: Path) -> Callable[[Arrays], Arrays]:
    remove(folder)
    tf.saved_model.save(prediction, str(folder), signatures=prediction.predict)
    loaded = tf.saved_model.load(str(folder)).signatures["serving_default"]
    return lambda inputs: {name: to_numpy(value) for name, value in loaded(**to_tensors(inputs)).items()}


def compare(task: BaseTask, model: Model, predict: Callable[[Arrays], Arrays], signature: Signature) -> float:
    """The largest difference on made-up inputs of other sizes, relative to outputs that are larger than 1."""
    inputs = signature.sample(5, axis=7)
    expected = {name: to_numpy(value) for name, value in task.predict(model, to_tensors(inputs)).items()}
    got = predict(inputs)
    pairs = [(expected[item.name], got[item.name]) for item in signature.outputs]
    return max(float(np.abs(b - a).max() / max(1, np.abs(a).max())) for a, b in pairs)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
