"""Checkpoints: complete or absent, tensors and plain values only; of a sharded model, a file a rank beside them."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from .backend import Model, Tensor
from .config import Config, read_config
from .contract import BaseTask
from .distributed import Runtime
from .errors import UserError
from .model import build_model
from .progress import TrainState
from .run import Checkpoint, Run
from .settings import DataFacts
from .task import Task

SCHEMA_VERSION = 1
SHARD = "shard"  # marks a part of a tensor, and its axis


@dataclass
class Shards:
    """A tensor as the ranks of a run saved it: cut along one axis."""

    axis: int
    parts: list[Tensor]

    def whole(self) -> Tensor:
        return self.part(0, 1)

    def part(self, rank: int, world_size: int) -> Tensor:
        """What a rank of so many holds of it; of files that are mapped into memory, nothing else is read."""
        size = sum(part.shape[self.axis] for part in self.parts)
        share = -(-size // world_size)
        start, stop = min(rank * share, size), min(rank * share + share, size)
        found = []
        for part in self.parts:
            length = part.shape[self.axis]
            first, last = min(max(start, 0), length), min(max(stop, 0), length)
            found.append(part.narrow(self.axis, first, last - first))
            start, stop = start - length, stop - length
        return torch.cat(found, self.axis)


def save(
    runtime: Runtime,
    path: Path,
    state: TrainState,
    facts: DataFacts,
    model: Model,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
) -> None:
    """Write a checkpoint, on every rank; whatever fails leaves the old one as it was."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "state": asdict(state),
        "facts": facts.model_dump(mode="json"),
        "scaler": scaler.state_dict(),
    }
    weights: dict[str, Any] = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    shards: list[str] = []
    if runtime.is_sharded:
        shard = path.with_name(f"{path.stem}-{state.step}-{runtime.rank}-of-{runtime.world_size}{path.suffix}")
        shards = runtime.on_each(lambda: write(shard, map_leaves(own_part, weights)))
        weights = {"shards": shards}

    def complete() -> None:
        write(path, content | weights)
        for old in path.parent.glob(f"{path.stem}-*-of-*{path.suffix}"):
            if old.name not in shards:
                old.unlink()

    runtime.on_main(complete)


def write(path: Path, content: dict[str, Any]) -> str:
    """Write a temporary file, and rename it when it is whole; returns the name. A full disk leaves the old one."""
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
    return path.name


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU, with whole tensors. Raises UserError for a missing, damaged or newer one."""
    content: dict[str, Any] = map_leaves(fitted, read(path))
    return content


def read(path: Path) -> dict[str, Any]:
    """The same with Shards for the tensors of a sharded model."""
    content = read_file(path)
    if "schema_version" not in content:
        raise UserError(f"{path}: not a checkpoint of this project")
    if content["schema_version"] > SCHEMA_VERSION:
        raise UserError(f"{path}: schema_version {content['schema_version']} is newer than this code; update it")
    if "shards" in content:
        content |= map_leaves(join, *(read_file(path.with_name(name), mapped=True) for name in content["shards"]))
    return content


def read_file(path: Path, mapped: bool = False) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint") from None
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{path}: not a readable checkpoint, perhaps cut short ({reason})") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: not a checkpoint of this project")
    return content


def restore(path: Path, model: Model, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> TrainState:
    """Put a checkpoint into the model and the optimizer, so that training goes on as if it had never stopped."""
    content = read(path)
    restore_weights(path, model, content)
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for index, values in content["optimizer"]["state"].items():
        content["optimizer"]["state"][index] = {key: fitted(value, weights[index]) for key, value in values.items()}
    for saved, own in zip(content["optimizer"]["param_groups"], optimizer.param_groups, strict=True):
        saved |= {key: own[key] for key in ("fused", "foreach")}  # which a sharded model may not have
    optimizer.load_state_dict(content["optimizer"])
    scaler.load_state_dict(content["scaler"])
    return TrainState(**content["state"])


def restore_weights(path: Path, model: Model, content: dict[str, Any]) -> None:
    now = model.state_dict()
    try:
        model.load_state_dict({name: fitted(value, now.get(name)) for name, value in content["model"].items()})
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


def map_leaves(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Apply a function to what stands at the same place in trees of dicts and lists."""
    if isinstance(first, dict):
        return {key: map_leaves(function, value, *(other[key] for other in others)) for key, value in first.items()}
    if isinstance(first, list):
        return [map_leaves(function, *values) for values in zip(first, *others, strict=True)]
    return function(first, *others)


def own_part(value: Any) -> Any:
    """What this rank saves of a value."""
    if not is_distributed(value):
        return value
    local, (placement,) = value.to_local().cpu().clone(), value.placements
    return (SHARD, placement.dim, local) if placement.is_shard() else local


def join(first: Any, *others: Any) -> Any:
    is_cut = isinstance(first, tuple) and first[0] == SHARD
    return Shards(first[1], [part[2] for part in (first, *others)]) if is_cut else first


def fitted(value: Any, like: Any = None) -> Any:
    """A checkpoint's value as the weight is that it belongs to: whole, or this rank's part."""
    is_weight = isinstance(value, Shards) or (isinstance(value, Tensor) and value.ndim > 0)
    if not is_distributed(like) or not is_weight:
        return value.whole() if isinstance(value, Shards) else value
    (placement,), mesh = like.placements, like.device_mesh
    if placement.is_shard():
        if not isinstance(value, Shards) or value.axis != placement.dim:
            value = Shards(placement.dim, [fitted(value)])
        local = value.part(mesh.get_local_rank(), mesh.size())
    else:
        local = fitted(value)
    return type(like).from_local(local.to(like.device), mesh, like.placements, shape=like.shape, stride=like.stride())


def is_distributed(value: object) -> bool:
    """Whether it is a DTensor, the import of which would cost `evaluate` half a second."""
    return isinstance(value, Tensor) and hasattr(value, "placements")
