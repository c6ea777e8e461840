"""The base class of every section of the configuration."""

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class Section(BaseModel):
    """Settings that refuse unknown keys and never change once they are made."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_of_a_literal(cls, value: Any, info: ValidationInfo) -> Any:
        """Flags and variables are text, also where a setting is Literal[1, 3]."""
        choices = get_args(cls.model_fields[info.field_name or ""].annotation)
        return next((choice for choice in choices if isinstance(choice, int) and str(choice) == value), value)
