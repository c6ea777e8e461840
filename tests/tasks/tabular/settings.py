"""YOURS: the settings of your data, model and task, and what only the data knows."""

from pydantic import Field

from .section import Section


class DataSettings(Section):
    """scikit-learn's study of 442 patients with diabetes."""

    noise: float = Field(0.1, ge=0, description="augmentation: at most so many standard deviations of a column")


class ModelSettings(Section):
    """The size of the network."""

    width: int = Field(32, ge=1, description="units of a hidden layer")
    dropout: float = Field(0.1, ge=0, lt=1)


class TaskSettings(Section):
    """How the loss is computed."""

    huber_delta: float = Field(2.0, gt=0, description="errors beyond it, in standard deviations, count linearly")


class DataFacts(Section):
    """What the training data says: kept in checkpoints and beside the exported model."""

    columns: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    target: str
    target_mean: float
    target_std: float
