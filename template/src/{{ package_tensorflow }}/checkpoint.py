"""Checkpoints: complete or absent, arrays and plain values only."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from .backend import Model, to_tensors
from .config import Config, read_config
from .contract import BaseTask
from .errors import UserError
from .model import build_model
from .progress import TrainState
from .run import Checkpoint, Run
from .settings import DataFacts
from .task import Task

SCHEMA_VERSION = 1


def save(path: Path, state: TrainState, facts: DataFacts, model: Model, optimizer: keras.optimizers.Optimizer) -> None:
    """Write a checkpoint to a temporary file and rename it; a full disk leaves the old one as it was."""
    values = {"schema_version": SCHEMA_VERSION, "state": asdict(state), "facts": facts.model_dump(mode="json")}
    arrays = {f"model/{name}": array for name, array in to_arrays(model.weights).items()}
    arrays |= {f"optimizer/{name}": array for name, array in to_arrays(optimizer.variables).items()}
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, values=np.array(json.dumps(values)), **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, ValueError) as error:
        temporary.unlink(missing_ok=True)
        kept = f"the checkpoint before it is untouched: {path}" if path.exists() else "there is none before it"
        raise UserError(f"{temporary}: cannot be written ({error}); {kept}", exit_code=1) from None


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint as arrays. Raises UserError for a missing, damaged or newer one."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        content: dict[str, Any] = json.loads(str(arrays.pop("values", "{}")))
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint") from None
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{path}: not a readable checkpoint, perhaps cut short ({reason})") from None
    if not isinstance(content, dict) or "schema_version" not in content:
        raise UserError(f"{path}: not a checkpoint of this project")
    if content["schema_version"] > SCHEMA_VERSION:
        raise UserError(f"{path}: schema_version {content['schema_version']} is newer than this code; update it")
    for part in ("model", "optimizer"):
        content[part] = {name.partition("/")[2]: a for name, a in arrays.items() if name.startswith(f"{part}/")}
    return content


def restore(path: Path, model: Model, optimizer: keras.optimizers.Optimizer) -> TrainState:
    """Put a checkpoint into the model and the optimizer, so that training goes on as if it had never stopped."""
    content = load(path)
    restore_weights(path, model, content)
    assign(path, optimizer.variables, content["optimizer"], "the optimizer of this configuration")
    return TrainState(**content["state"])


def restore_weights(path: Path, model: Model, content: dict[str, Any]) -> None:
    assign(path, model.weights, content["model"], "the model that model.py builds now")


def load_model(run: Run, which: Checkpoint) -> tuple[Config, BaseTask, Model, TrainState]:
    """Rebuild the model and task of a run from its configuration and the checkpoint's facts, without its data."""
    path = run.checkpoint(which)
    content = load(path)
    config = read_config(run.config)
    facts = DataFacts.model_validate(content["facts"])
    model, task = build_model(config.model, facts), Task(config.task, facts)
    if not model.built:  # a model written as a class makes its weights at the first call
        task.predict(model, to_tensors(task.signature().sample(1)))
    restore_weights(path, model, content)
    return config, task, model, TrainState(**content["state"])


def to_arrays(variables: Iterable[keras.Variable]) -> dict[str, NDArray[Any]]:
    """Values by place and kind, such as "3.kernel": the rest of Keras's names counts up within a process."""
    return {f"{i}.{variable.name.rpartition('_')[2]}": variable.numpy() for i, variable in enumerate(variables)}


def assign(path: Path, variables: Iterable[keras.Variable], arrays: dict[str, NDArray[Any]], what: str) -> None:
    wanted = {name: array.shape for name, array in to_arrays(variables).items()}
    got = {name: array.shape for name, array in arrays.items()}
    if wanted != got:
        name = next(name for name in [*wanted, *got] if wanted.get(name) != got.get(name))
        raise UserError(f"{path}: does not fit {what} ({name} is {got.get(name)}, not {wanted.get(name)})")
    for variable, array in zip(variables, arrays.values(), strict=True):
        variable.assign(array)
