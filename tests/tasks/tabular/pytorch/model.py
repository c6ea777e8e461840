"""YOURS: the model."""

import torch
from torch import nn

from .backend import Model, Tensor
from .settings import DataFacts, ModelSettings


class Regressor(nn.Module):
    """Two hidden layers. The columns are normalised inside; the target comes out normalised."""

    mean: Tensor
    std: Tensor

    def __init__(self, settings: ModelSettings, facts: DataFacts) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(facts.mean))
        self.register_buffer("std", torch.tensor(facts.std))
        self.layers = nn.Sequential(
            nn.Linear(len(facts.columns), settings.width),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.width, settings.width),
            nn.ReLU(),
            nn.Linear(settings.width, 1),
        )

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """columns: float32 [B, C], as measured -> target [B, 1]."""
        return {"target": self.layers((batch["columns"] - self.mean) / self.std)}


def build_model(settings: ModelSettings, facts: DataFacts) -> Model:
    return Regressor(settings, facts)
