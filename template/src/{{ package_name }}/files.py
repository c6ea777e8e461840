"""Small text files, read with clear errors and written whole or not at all."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .errors import UserError


def read_yaml(file: Path) -> dict[str, Any]:
    """Read a mapping from a YAML file."""
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        near = ", ".join(sorted(path.as_posix() for path in file.parent.glob("[!.]*.yaml")))
        raise UserError(f"{file}: no such file in {Path.cwd()}{f'; there are: {near}' if near else ''}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        raise UserError(f"{file}: not valid YAML ({error})") from None
    if not isinstance(values, dict):
        raise UserError(f"{file}: must hold keys and values, such as 'seed: 1'")
    return {str(key): value for key, value in values.items() if value is not None}  # None: all keys commented out


def flatten(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """{"trainer": {"max_epochs": 3}} -> {"trainer.max_epochs": 3}"""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{above}{key}.") if isinstance(value, Mapping) else {above + key: value}
    return flat


def read_json(file: Path) -> dict[str, Any]:
    """A mapping that a command wrote; empty where there is none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_text(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.{secrets.token_hex(3)}.tmp")  # others may write it too
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)


def dump_yaml(data: object) -> str:
    return yaml.safe_dump(data, sort_keys=False)


def write_json(file: Path, data: object) -> None:
    write_text(file, json.dumps(data, indent=2, ensure_ascii=False) + "\n")
