"""What a search varies: settings by their names, and what each may be. Values for a grid or at random."""

import math
import random
from collections.abc import Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from ..config import Config, check_secrets, explained, nearest, origin, set_values, setting_names
from ..errors import UserError
from ..files import read_yaml
from ..section import Section

NOT_SEARCHED = ("schema_version", "name", "runs_dir", "tracking.")
Value = bool | int | float | str | None


class Kind(BaseModel):
    """What a setting may be."""

    model_config = Section.model_config


class Discrete(Kind):
    """Values that can be counted."""

    def all(self) -> Sequence[Value]:
        raise NotImplementedError

    def draw(self, source: random.Random) -> Value:
        return source.choice(self.all())


class Range(Kind):
    """Numbers from low to high: evenly spread (float), or their orders of magnitude (log)."""

    type: Literal["float", "log"]
    low: float
    high: float

    @model_validator(mode="after")
    def _is_a_range(self) -> "Range":
        if not self.low < self.high:
            raise ValueError("low must be below high")
        if self.type == "log" and self.low <= 0:
            raise ValueError("low must be above 0 for log")
        return self

    def draw(self, source: random.Random) -> Value:
        if self.type == "float":
            return source.uniform(self.low, self.high)
        drawn = math.exp(source.uniform(math.log(self.low), math.log(self.high)))
        return min(max(drawn, self.low), self.high)

    def examples(self) -> Sequence[Value]:
        return self.low, self.high, self.draw(random.Random(0))


class Integers(Discrete):
    """Whole numbers from low to high."""

    type: Literal["int"]
    low: int
    high: int
    step: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _is_a_range(self) -> "Integers":
        if not self.low < self.high or (self.high - self.low) % self.step:
            raise ValueError("high must be some steps above low")
        return self

    def examples(self) -> Sequence[Value]:
        return self.low, self.high, self.low + self.step

    def all(self) -> Sequence[int]:
        return range(self.low, self.high + 1, self.step)


class Choice(Discrete):
    """One of the values."""

    type: Literal["choice"]
    values: tuple[Value, ...] = Field(min_length=1)

    @field_validator("values")
    @classmethod
    def _are_different(cls, values: tuple[Value, ...]) -> tuple[Value, ...]:
        if len({(type(value), value) for value in values}) < len(values):
            raise ValueError("a value is there twice")
        return values

    def examples(self) -> Sequence[Value]:
        return self.values

    def all(self) -> Sequence[Value]:
        return self.values


Parameter = Annotated[Range | Integers | Choice, Field(discriminator="type")]


class Space(Section):
    """What a search varies around an experiment."""

    schema_version: Literal[1] = 1
    experiment: Path = Field(Path("configs/experiment/baseline.yaml"), description="what all trials share")
    sampler: Literal["tpe", "random", "grid"] = Field("tpe", description="what to try next; tpe learns from the scores")
    pruning: bool = Field(True, description="stop trials early that do worse than the others did by then")
    seed: int = Field(0, ge=0, lt=2**31, description="of the sampler; each trial trains with the experiment's")
    parameters: dict[str, Parameter] = Field(min_length=1, description="the settings to vary, such as model.width")

    @model_validator(mode="after")
    def _is_a_grid(self) -> "Space":
        for key, parameter in self.parameters.items():
            if self.sampler == "grid" and isinstance(parameter, Range):
                raise ValueError(f"a grid needs {key} to be an int or a choice, not a {parameter.type}")
        return self

    @property
    def grid(self) -> list[Sequence[Value]]:
        """Of each setting all values, where they can be counted."""
        return [each.all() for each in self.parameters.values() if isinstance(each, Discrete)]

    @property
    def size(self) -> int | None:
        """How many trials a grid has."""
        return math.prod(map(len, self.grid)) if self.sampler == "grid" else None

    def draw(self, number: int) -> dict[str, Value]:
        """The parameters of a trial of a grid, or of one at random."""
        if self.sampler == "grid":
            return dict(zip(self.parameters, next(islice(product(*self.grid), number, None)), strict=True))
        source = random.Random(f"{self.seed}/{number}")
        return {key: parameter.draw(source) for key, parameter in self.parameters.items()}


def searched_names() -> list[str]:
    return [name for name in setting_names() if not name.startswith(NOT_SEARCHED)]


def complete(schema: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a space, with the settings that can be searched."""
    parameters = schema["properties"]["parameters"]
    schema["$defs"]["Parameter"] = parameters.pop("additionalProperties")
    parameters["properties"] = {name: {"$ref": "#/$defs/Parameter"} for name in searched_names()}
    parameters["additionalProperties"] = False
    return schema


def read_space(file: Path) -> Space:
    """Read a space; every problem is a UserError that names the key."""
    with explained(file, Space):
        return Space.model_validate(read_yaml(file))


def check_space(space: Space, file: Path, config: Config) -> None:
    """The bounds, and a value between them, must be values that the experiment may have."""
    names = searched_names()
    listed = ", ".join(names)
    for key, parameter in space.parameters.items():
        if key not in names:
            raise UserError(
                f"{file}: parameters.{key}: cannot be searched{nearest(key, names) or f'; these can: {listed}'}"
            )
        if set_by := origin(key):
            raise UserError(f"{set_by}: is searched by {file}; leave one out")
        for value in parameter.examples():
            try:
                check_secrets(Config.model_validate(set_values(config, {key: value})))
            except ValidationError as error:
                raise UserError(f"{file}: parameters.{key}: {value!r}: {error.errors()[0]['msg']}") from None


def describe(parameters: Mapping[str, Value]) -> str:
    """Short enough for a line."""
    pairs = ((key.rpartition(".")[2], value) for key, value in parameters.items())
    return "  ".join(f"{name} {f'{value:.4g}' if isinstance(value, float) else value}" for name, value in pairs)
