"""Predict files with an exported model: pictures, or .jsonl with one example a line. Needs no framework."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from .errors import UserError
from .images import SUFFIXES, ImageError, read_image
from .predictor import Predictor, encode
from .run import find_run
from .signature import Input, Output, Signature

Example = tuple[str, dict[str, Any]]
BATCH = 64


def main(args: argparse.Namespace) -> None:
    folder = args.model or find_run(None, needs="model.onnx").path
    predictor = Predictor(folder.parent if folder.is_file() else folder)
    show = print_json if args.format == "jsonl" else print_row
    problems: list[str] = []
    image = next((item for item in predictor.signature.inputs if item.kind == "image"), None)
    if image is not None and len(predictor.signature.inputs) == 1:
        files = find_files(args.paths, SUFFIXES)
        examples = read_images(tqdm(files, "predict", unit="file", disable=None, delay=1), image, problems)
    else:
        files = find_files(args.paths, frozenset({".jsonl"}))
        examples = read_lines(files, predictor.signature.inputs)
    while batch := list(islice(examples, BATCH)):
        for (name, _), outputs in zip(batch, predictor.predict_examples([e for _, e in batch]), strict=True):
            show(name, outputs, predictor.signature.outputs)
    if problems:
        raise UserError("; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if problems[5:] else ""), 1)
    print(f"predicted by the model in {folder}", file=sys.stderr)


def find_files(paths: Iterable[Path], suffixes: frozenset[str]) -> list[Path]:
    """Files as they are named, and every file with one of the suffixes inside the folders."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in suffixes)
            if not inside:
                raise UserError(f"{path}: holds no file that ends in {', '.join(sorted(suffixes))}")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"{path}: no such file or folder")
    return found


def read_images(files: Iterable[Path], item: Input, problems: list[str]) -> Iterator[Example]:
    """Pictures in the shape that the model takes; unreadable ones are named in `problems`."""
    height, width, channels = (int(size) for size in item.shape)
    for file in files:
        try:
            yield str(file), {item.name: read_image(file, (height, width, channels))}
        except ImageError as error:
            problems.append(str(error))


def read_lines(files: Iterable[Path], inputs: tuple[Input, ...]) -> Iterator[Example]:
    """One JSON object a line, with the model's inputs by name."""
    for file in files:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    example = json.loads(line)
                except ValueError as error:
                    raise UserError(f"{file}:{number}: not JSON ({error})") from None
                if not isinstance(example, dict):
                    raise UserError(f"{file}:{number}: must be an object with the model's inputs by name")
                try:
                    yield f"{file}:{number}", {item.name: encode(item, example) for item in inputs}
                except UserError as error:
                    raise UserError(f"{file}:{number}: {error}") from None


def print_json(name: str, outputs: dict[str, NDArray[Any]], signature: tuple[Output, ...]) -> None:
    line: dict[str, Any] = {"file": name}
    for item in signature:
        value = outputs[item.name]
        if item.kind == "probabilities":
            line[item.name] = dict(zip(item.names, value.tolist(), strict=True)) if value.ndim == 1 else value.tolist()
            line["label"] = label(item, value)
        else:
            line[item.name] = value.tolist()
    print(json.dumps(line, ensure_ascii=False))


def print_row(name: str, outputs: dict[str, NDArray[Any]], signature: tuple[Output, ...]) -> None:
    cells = [name]
    for item in signature:
        value = outputs[item.name]
        if item.kind == "probabilities" and value.ndim == 1:
            cells += [str(label(item, value)), f"{value.max():.1%}"]
        elif item.kind == "probabilities":
            cells.append(" ".join(label(item, value)))
        elif item.names and value.ndim == 1:
            cells.append("  ".join(f"{n}={v:.4g}" for n, v in zip(item.names, value, strict=True)))
        else:
            cells.append(np.array2string(value, precision=4, threshold=8).replace("\n", ""))
    print("  ".join(cells))


def label(item: Output, probabilities: NDArray[Any]) -> Any:
    """The most probable label, or the list of them along the other axes."""
    return name_labels(item, probabilities.argmax(-1))


def name_labels(item: Output, indices: NDArray[Any]) -> Any:
    """The label of an index, or the list of them; -1 stands for none."""
    names = item.names or tuple(map(str, range(int(indices.max(initial=0)) + 1)))
    return np.asarray((*names, "-"))[indices].tolist()


def true_label(signature: Signature, item: Output, example: Mapping[str, NDArray[Any]]) -> Any:
    """What an example says of an output of probabilities: its label or list of them; None where nothing fits."""
    taken, count = {item.name for item in signature.inputs}, len(item.names) or np.inf
    for target in (array for name, array in example.items() if name not in taken):
        fits = item.kind == "probabilities" and target.ndim == len(item.shape) - 1 and target.dtype.kind in "iu"
        if fits and target.min(initial=0) >= -1 and target.max(initial=0) < count:
            return name_labels(item, target)
    return None
