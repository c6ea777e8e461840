"""Export a trained model, and compare what it returns with the original."""

import argparse
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .backend import Model, Tensor, inference, to_numpy, to_tensors
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


class Prediction(nn.Module):
    """Task.predict as a module: tensors in the order of the signature."""

    def __init__(self, task: BaseTask, model: Model, signature: Signature) -> None:
        super().__init__()
        self.task = task
        self.model = model
        self.signature = signature

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        named = {item.name: value for item, value in zip(self.signature.inputs, inputs, strict=True)}
        outputs = self.task.predict(self.model, named)
        return tuple(outputs[item.name] for item in self.signature.outputs)


def main(args: argparse.Namespace) -> None:
    run = find_run(args.run, needs=Run.checkpoint_name(args.checkpoint))
    config, task, model, state = load_model(run, args.checkpoint)
    signature = task.signature()
    prediction = Prediction(task, model, signature).eval()
    sample = tuple(to_tensors(signature.sample(2)).values())
    write, file = {
        "onnx": (write_onnx, run.model),
        "pt2": (write_pt2, run.path / "model.pt2"),
        "torchscript": (write_torchscript, run.path / "model.torchscript.pt"),
    }[args.format]
    write_json(run.path / "model.json", describe(task, signature))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch's own parts among each other
            predict = write(prediction, sample, file)
    except (RuntimeError, torch.onnx.OnnxExporterError, torch._dynamo.exc.UserError) as error:
        reason = str(error.__cause__ or error).strip().split("\n")[0]
        raise UserError(f"--format {args.format}: PyTorch cannot export this model ({reason})", 1) from None
    difference = compare(prediction, predict, signature)
    if not difference <= TOLERANCE:
        file.unlink()
        raise UserError(f"{file}: differs from the model by {difference:.1e}, more than {TOLERANCE}; removed", 1)
    print(f"{file} ({args.checkpoint} checkpoint, step {state.step}; differs from the model by {difference:.0e})")
    keep_up(run, config.tracking)


def describe(task: BaseTask, signature: Signature) -> dict[str, Any]:
    """The content of model.json."""
    return {"schema_version": SCHEMA_VERSION, **signature.to_dict(), "facts": task.facts.model_dump(mode="json")}


def write_onnx(prediction: Prediction, sample: tuple[Tensor, ...], file: Path) -> Callable[[Arrays], Arrays]:
    signature = prediction.signature
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns that torchvision is not installed
    program = torch.onnx.export(
        prediction,
        sample,
        dynamo=True,
        verbose=False,
        input_names=[item.name for item in signature.inputs],
        output_names=[item.name for item in signature.outputs],
        dynamic_shapes=dynamic_shapes(signature),
    )
    assert program is not None
    for node in program.model.graph:
        for value in node.outputs:
            value.shape = None  # recurrent layers leave the sample's length here, where an axis varies
    program.save(file, external_data=False)
    return Predictor(file.parent).predict


def write_pt2(prediction: Prediction, sample: tuple[Tensor, ...], file: Path) -> Callable[[Arrays], Arrays]:
    torch.export.save(
        torch.export.export(prediction, sample, dynamic_shapes=dynamic_shapes(prediction.signature)), file
    )
    return _call(torch.export.load(file).module(), prediction.signature)


def write_torchscript(prediction: Prediction, sample: tuple[Tensor, ...], file: Path) -> Callable[[Arrays], Arrays]:
    print("note: PyTorch deprecates TorchScript; prefer --format onnx or pt2")
    torch.jit.save(torch.jit.trace(prediction, sample), file)  # type: ignore[no-untyped-call]
    return _call(torch.jit.load(file), prediction.signature)  # type: ignore[no-untyped-call]


def dynamic_shapes(signature: Signature) -> tuple[tuple[dict[int, Any], ...]]:
    """The batch and every named axis vary."""
    batch = torch.export.Dim("batch")
    axes: dict[str, Any] = {}
    shapes = []
    for item in signature.inputs:
        varying = {
            i: axes.setdefault(a, torch.export.Dim(a)) for i, a in enumerate(item.shape, 1) if isinstance(a, str)
        }
        shapes.append({0: batch, **varying})
    return (tuple(shapes),)


def compare(prediction: Prediction, predict: Callable[[Arrays], Arrays], signature: Signature) -> float:
    """The largest difference on made-up inputs of other sizes, relative to outputs that are larger than 1."""
    inputs = signature.sample(5, axis=7)
    with inference(prediction):
        expected = [to_numpy(value) for value in prediction(*to_tensors(inputs).values())]
    got = predict(inputs)
    pairs = zip(signature.outputs, expected, strict=True)
    return max(float(np.abs(got[item.name] - value).max() / max(1, np.abs(value).max())) for item, value in pairs)


def _call(module: Callable[..., Any], signature: Signature) -> Callable[[Arrays], Arrays]:
    def predict(inputs: Arrays) -> Arrays:
        with torch.inference_mode():
            outputs = module(*to_tensors(inputs).values())
        return {item.name: to_numpy(value) for item, value in zip(signature.outputs, outputs, strict=True)}

    return predict
