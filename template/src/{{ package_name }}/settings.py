"""YOURS: the settings of your data, model and task, and what only the data knows."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from .section import Section


class DataSettings(Section):
    """Where the pictures come from."""

    source: Literal["digits", "image-folder"] = Field("digits", description="digits needs no download")
    folder: Path | None = Field(None, description="of image-folder: one folder a class, with its pictures")
    image_size: int = Field(32, ge=4, le=4096, description="of image-folder: pictures are resized to this square")
    channels: Literal[1, 3] = Field(3, description="of image-folder: 1 grey, 3 colour")
    val_fraction: float = Field(0.15, gt=0, lt=0.5, description="of image-folder: share held back for validation")
    test_fraction: float = Field(0.15, gt=0, lt=0.5, description="of image-folder: share held back for the test")
    check_files: bool = Field(True, description="of image-folder: open every picture at the start")
    strict: bool = Field(False, description="of image-folder: stop at a bad file rather than leave it out")
    shift: float = Field(1.0, ge=0, description="augmentation: move by up to so many pixels each way")
    rotation: float = Field(10.0, ge=0, le=180, description="augmentation: turn by up to so many degrees each way")
    zoom: float = Field(0.1, ge=0, lt=1, description="augmentation: stretch, shrink and slant by up to this share")

    @model_validator(mode="after")
    def _folder_is_given(self) -> "DataSettings":
        if self.source == "image-folder" and self.folder is None:
            raise ValueError("image-folder needs data.folder")
        return self


class ModelSettings(Section):
    """The size of the network."""

    width: int = Field(24, ge=4, multiple_of=4, description="channels of the first stage; each further one has twice")
    stages: int = Field(2, ge=1, le=6, description="each further one halves the picture")
    depth: int = Field(2, ge=1, description="convolutions a stage")


class TaskSettings(Section):
    """How the loss is computed."""

    label_smoothing: float = Field(0.0, ge=0, lt=1)


class DataFacts(Section):
    """What the training data says: kept in checkpoints and beside the exported model."""

    image_shape: tuple[int, int, int]
    labels: tuple[str, ...]
