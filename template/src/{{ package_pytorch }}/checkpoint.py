"""Checkpoints: complete or absent, tensors and plain values only."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .backend import Model
from .config import Config, read_config
from .contract import BaseTask
from .errors import UserError
from .model import build_model
from .progress import TrainState
from .run import Checkpoint, Run
from .settings import DataFacts
from .task import Task

SCHEMA_VERSION = 1


def save(
    path: Path,
    state: TrainState,
    facts: DataFacts,
    model: Model,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
) -> None:
    """Write a checkpoint to a temporary file and rename it; a full disk leaves the old one as it was."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "state": asdict(state),
        "facts": facts.model_dump(mode="json"),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
    }
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        temporary.unlink(missing_ok=True)
        kept = f"the checkpoint before it is untouched: {path}" if path.exists() else "there is none before it"
        raise UserError(f"{temporary}: cannot be written ({error}); {kept}", exit_code=1) from None


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU. Raises UserError for a missing, damaged or newer one."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint") from None
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{path}: not a readable checkpoint, perhaps cut short ({reason})") from None
    if not isinstance(content, dict) or "schema_version" not in content:
        raise UserError(f"{path}: not a checkpoint of this project")
    if content["schema_version"] > SCHEMA_VERSION:
        raise UserError(f"{path}: schema_version {content['schema_version']} is newer than this code; update it")
    return content


def restore(path: Path, model: Model, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> TrainState:
    """Put a checkpoint into the model and the optimizer, so that training goes on as if it had never stopped."""
    content = load(path)
    restore_weights(path, model, content)
    optimizer.load_state_dict(content["optimizer"])
    scaler.load_state_dict(content["scaler"])
    return TrainState(**content["state"])


def restore_weights(path: Path, model: Model, content: dict[str, Any]) -> None:
    try:
        model.load_state_dict(content["model"])
    except RuntimeError as error:
        raise UserError(f"{path}: does not fit the model that model.py builds now ({error})") from None


def load_model(run: Run, which: Checkpoint) -> tuple[Config, BaseTask, Model, TrainState]:
    """Rebuild the model and task of a run from its configuration and the checkpoint's facts, without its data."""
    path = run.checkpoint(which)
    content = load(path)
    config = read_config(run.config)
    facts = DataFacts.model_validate(content["facts"])
    model = build_model(config.model, facts)
    restore_weights(path, model, content)
    return config, Task(config.task, facts), model, TrainState(**content["state"])
