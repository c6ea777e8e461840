"""The configuration of a run, and where its values come from.

Precedence: command line > environment (<PACKAGE>__TRAINER__MAX_EPOCHS) > experiment file > default.
"""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, WithJsonSchema, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    CliSuppress,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from .errors import CREDENTIALS, UserError, secrets
from .files import dump_yaml, flatten, read_yaml
from .framework import STRATEGIES
from .section import Section
from .settings import DataSettings, ModelSettings, TaskSettings
from .tracking import AVAILABLE

ENV_PREFIX = f"{__package__.upper()}__"
CLOSED = ("losswise", "sigopt")  # services of this kind that ended
NAMED_SECRET = re.compile(r"(api|access|auth|secret)_?(key|token)|passw(or)?d|secret", re.IGNORECASE)


Beta = Annotated[float, Field(ge=0, lt=1)]


class TrainerSettings(Section):
    """How the model is trained."""

    max_epochs: int = Field(20, ge=1, description="passes over the training data")
    max_steps: int | None = Field(None, ge=1, description="stop after so many steps")
    global_batch_size: int = Field(64, ge=1, description="examples a step, over all processes together")
    accumulation_steps: int = Field(1, ge=1, description="parts a process cuts its batch into, to save memory")
    max_grad_norm: float | None = Field(None, gt=0, description="clip the gradient to this norm")
    patience: int | None = Field(None, ge=1, description="stop after so many epochs without a better model")
    strategy: Annotated[str, WithJsonSchema({"enum": [*STRATEGIES], "type": "string"})] = Field(
        "auto", description="how several processes train one model"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field("auto", description="arithmetic of the forward pass")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="where to train")
    compile: bool = Field(False, description="compile the model before training")
    deterministic: bool = Field(False, description="the same bits every time on a GPU too, at some speed")
    read_workers: int = Field(0, ge=0, description="threads that read data ahead; 0 for data in memory")
    log_every: int = Field(20, ge=1, description="steps between two lines of training metrics")
    checkpoint_every: int | None = Field(None, ge=1, description="steps between checkpoints within an epoch")
    overfit_one_batch: bool = Field(False, description="train on the first batch alone, to see that it can be learned")
    profile: bool = Field(False, description="profile the first steps and write a trace")

    @field_validator("strategy")
    @classmethod
    def _offered(cls, name: str) -> str:
        if name not in STRATEGIES:
            raise ValueError(f"no such strategy in this project, which has: {', '.join(STRATEGIES)}")
        return name


class OptimizerSettings(Section):
    """How the weights are updated."""

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = Field(1e-3, gt=0, description="the highest learning rate of the schedule")
    weight_decay: float = Field(0.01, ge=0, description="of matrices and kernels; decoupled for adamw")
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd")
    betas: tuple[Beta, Beta] = Field((0.9, 0.999), description="of adamw")
    schedule: Literal["constant", "cosine", "linear"] = Field("cosine", description="after the warm-up")
    warmup_steps: int = Field(0, ge=0, description="steps over which the learning rate rises")


class TrackingSettings(Section):
    """Where metrics go beside the run directory."""

    trackers: tuple[Annotated[str, WithJsonSchema({"enum": [*AVAILABLE]})], ...] = Field(
        AVAILABLE, description=f"any of: {', '.join(AVAILABLE) or 'none'}"
    )
    required: bool = Field(True, description="refuse to train where one of them does not start")
    tags: dict[str, str] = Field({}, description="what to find the run by, such as team: vision")

    @field_validator("trackers")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name in CLOSED:
                raise ValueError(f"{name} is closed; this project has: {', '.join(AVAILABLE) or 'none'}")
            if name not in AVAILABLE:
                raise ValueError(f"no tracker {name!r} in this project, which has: {', '.join(AVAILABLE) or 'none'}")
        return names


class Config(Section):
    """Everything that decides how a run turns out."""

    schema_version: CliSuppress[Literal[1]] = 1
    name: str = Field("", pattern=r"^\w[\w.-]*$", description="of the experiment (default: the file's)")
    runs_dir: Path = Field(Path("runs"), description="folder of all runs")
    seed: int = Field(0, ge=0, lt=2**32, description="decides initial weights, order of the data and augmentation")
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    task: TaskSettings = TaskSettings()
    trainer: TrainerSettings = TrainerSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    tracking: TrackingSettings = TrackingSettings()


class _Sources(Config, BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", nested_model_default_partial_update=True
    )

    @classmethod
    def settings_customise_sources(cls, *_: Any, **sources: Any) -> tuple[PydanticBaseSettingsSource, ...]:
        return sources["env_settings"], sources["init_settings"]


def add_flags(parser: argparse.ArgumentParser) -> CliSettingsSource[Any]:
    """Add one flag a setting, such as --trainer.max-epochs."""
    return CliSettingsSource(
        _Sources,
        root_parser=parser,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_exit_on_error=False,
    )


def load_config(file: Path, flags: CliSettingsSource[Any], args: argparse.Namespace) -> Config:
    """Resolve the configuration of a command; every problem is a UserError that names the key."""
    values = {"name": file.stem, **read_yaml(file)}
    _check_environment()
    with explained(file):
        source = flags(parsed_args=args)
        loaded = _Sources(_cli_settings_source=source, **values)  # type: ignore[call-arg, unused-ignore]
    config = Config.model_construct(**{name: getattr(loaded, name) for name in Config.model_fields})
    check_secrets(config)
    return config


def read_config(file: Path) -> Config:
    """A configuration as it stands in a file, such as the one that a run was started with."""
    with explained(file):
        return Config.model_validate({"name": file.stem, **read_yaml(file)})


def check_batch(config: Config, world_size: int) -> None:
    size, pieces = config.trainer.global_batch_size, config.trainer.accumulation_steps
    world_size = 1 if config.trainer.strategy == "tensor" else world_size
    if size % (world_size * pieces):
        parts = f"{world_size} processes x {pieces} accumulation steps"
        raise UserError(f"trainer.global_batch_size: {size} does not divide by {parts}")


def dump_config(config: Config) -> str:
    return dump_yaml(config.model_dump(mode="json"))


def set_values(config: Config, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a file with the configuration would hold, with some settings changed: {"model.width": 8}."""
    content: dict[str, Any] = config.model_dump(mode="json")
    for key, value in values.items():
        *sections, name = key.split(".")
        reduce(dict.__getitem__, sections, content)[name] = value
    return content


def setting_names() -> list[str]:
    """Every setting, such as "trainer.max_epochs"."""
    paths = [".".join(path) for path in _paths(Config)]
    return [path for path in paths if not any(other.startswith(f"{path}.") for other in paths)]


def origin(key: str) -> str | None:
    """The flag or the environment variable that sets a setting, as it is called there."""
    flag, variable = "--" + key.replace("_", "-"), ENV_PREFIX + key.replace(".", "__").upper()
    if any(word.split("=")[0] in (flag, flag.replace("--", "--no-", 1)) for word in sys.argv):
        return flag
    return f"environment variable {variable}" if variable in map(str.upper, os.environ) else None


def check_secrets(config: Config) -> None:
    """A configuration is written to the run's directory and shown to every service."""
    known = secrets()
    for key, value in flatten(config.model_dump(mode="json")).items():
        variable = next((name for name, secret in known.items() if secret in str(value)), None)
        named = isinstance(value, str) and value and NAMED_SECRET.search(key.rpartition(".")[2])
        if variable or named or CREDENTIALS.search(str(value)):
            found = f"the secret in the environment variable {variable}" if variable else "a secret"
            raise UserError(f"{key}: holds {found}, which every run would record; read it from the environment instead")


def _check_environment() -> None:
    known = {ENV_PREFIX + "__".join(path).upper() for path in _paths(Config)}
    for name in os.environ:
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in known:
            raise UserError(f"environment variable {name}: no such setting{nearest(name.upper(), known)}")


def _paths(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _paths(field.annotation, (*above, name))
        yield (*above, name)


def nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.8)
    return f"; did you mean {near[0]}?" if near else ""


@contextmanager
def explained(file: Path, model: type[BaseModel] = Config) -> Iterator[None]:
    """Problems of a file with the settings of `model` become a UserError."""
    try:
        yield
    except ValidationError as error:
        raise UserError(_explain(error.errors()[0], file, model)) from None
    except SettingsError as error:
        names = ", ".join(sorted(name for name in os.environ if name.upper().startswith(ENV_PREFIX)))
        raise UserError(f"environment ({names}): {error}; a list is written as JSON, such as '[\"a\"]'") from None


def _explain(first: ErrorDetails, file: Path, model: type[BaseModel]) -> str:
    """One line for pydantic's first error: where the value came from, what is allowed, what was given."""
    key = ".".join(part for part in first["loc"] if isinstance(part, str))
    where = (origin(key) if model is Config else None) or ": ".join(filter(None, (str(file), key)))
    if first["type"] == "extra_forbidden":
        section = key.rpartition(".")[0]
        allowed = sorted(".".join(path) for path in _paths(model) if ".".join(path[:-1]) == section)
        return f"{where}: no such key{nearest(key, allowed)}{'; allowed: ' if allowed else ''}{', '.join(allowed)}"
    got = "" if isinstance(first["input"], Mapping) else f" (got {first['input']!r})"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}{got}"
