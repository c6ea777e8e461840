"""The base class of every section of the configuration."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Settings that refuse unknown keys and never change once they are made."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
