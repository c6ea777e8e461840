"""The JSON schema of configs/experiment/*.yaml, from which an editor completes keys and underlines mistakes."""

import argparse
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from .config import Config
from .files import write_json

FILE = Path("configs/experiment.schema.json")


class _WithoutTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def build_schema() -> dict[str, Any]:
    """Every key of config.py and of your settings.py."""
    schema = Config.model_json_schema(schema_generator=_WithoutTitles)
    for section in schema["properties"].values():
        if "$ref" in section:
            section.pop("default", None)  # an editor would insert the whole section
    return schema


def main(args: argparse.Namespace) -> None:
    write_json(FILE, build_schema())
    print(f"wrote {FILE}")
