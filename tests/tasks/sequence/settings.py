"""YOURS: the settings of your data, model and task, and what only the data knows."""

from pydantic import Field

from .section import Section


class DataSettings(Section):
    """Text made by a rule, with a label for each character."""

    examples: int = Field(1200, ge=10, description="of training; a quarter as many for validation and for the test")
    max_length: int = Field(30, ge=1, description="characters of the longest text")
    unknown_fraction: float = Field(0.1, ge=0, lt=1, description="augmentation: letters that are made unreadable")
    bucket_size: int = Field(200, ge=1, description="so many examples are sorted by length")


class ModelSettings(Section):
    """The size of the network."""

    width: int = Field(32, ge=1, description="numbers for a character")


class TaskSettings(Section):
    """How the loss is computed."""

    label_smoothing: float = Field(0.0, ge=0, lt=1)


class DataFacts(Section):
    """What the training data says: kept in checkpoints and beside the exported model."""

    vocabulary: tuple[str, ...]
    labels: tuple[str, ...]
