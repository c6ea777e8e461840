"""The JSON schemas of what lies in configs/, from which an editor completes keys and underlines mistakes."""

import argparse
import importlib
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from .cli import ENGINES
from .config import Config
from .files import write_json


class _WithoutTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def build_schemas() -> dict[Path, dict[str, Any]]:
    """Every key of config.py and of your settings.py, by the file it is kept in."""
    schema = _build(Config)
    for section in schema["properties"].values():
        if "$ref" in section:
            section.pop("default", None)  # an editor would insert the whole section
    schemas = {Path("configs/experiment.schema.json"): schema}
    if ENGINES:
        space = importlib.import_module(".search.space", __package__)
        schemas[Path("configs/search.schema.json")] = space.complete(_build(space.Space))
    return schemas


def _build(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(schema_generator=_WithoutTitles)


def main(args: argparse.Namespace) -> None:
    for file, schema in build_schemas().items():
        write_json(file, schema)
        print(f"wrote {file}")
