"""YOURS: the model."""

from torch import nn

from .backend import Model, Tensor
from .settings import DataFacts, ModelSettings


class Tagger(nn.Module):
    """A GRU that reads forwards, so that the padding behind a text changes nothing in it."""

    def __init__(self, settings: ModelSettings, facts: DataFacts) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(facts.vocabulary), settings.width, padding_idx=0)
        self.recurrent = nn.GRU(settings.width, settings.width, batch_first=True)
        self.head = nn.Linear(settings.width, len(facts.labels))

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """text: int64 [B, time], 0 is padding -> logits [B, time, labels]."""
        states, _ = self.recurrent(self.embedding(batch["text"]))
        return {"logits": self.head(states)}


def build_model(settings: ModelSettings, facts: DataFacts) -> Model:
    return Tagger(settings, facts)
