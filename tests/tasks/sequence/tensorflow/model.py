"""YOURS: the model."""

import keras
from keras import layers

from .backend import Model, Tensor
from .settings import DataFacts, ModelSettings


class Tagger(keras.Model):
    """A GRU that reads forwards, so that the padding behind a text changes nothing in it."""

    def __init__(self, settings: ModelSettings, facts: DataFacts) -> None:
        super().__init__()
        self.embedding = layers.Embedding(len(facts.vocabulary), settings.width)
        self.recurrent = layers.GRU(settings.width, return_sequences=True)
        self.head = layers.Dense(len(facts.labels))

    def call(self, batch: dict[str, Tensor], training: bool = False) -> dict[str, Tensor]:
        """text: int64 [B, time], 0 is padding -> logits [B, time, labels]."""
        return {"logits": self.head(self.recurrent(self.embedding(batch["text"])))}


def build_model(settings: ModelSettings, facts: DataFacts) -> Model:
    return Tagger(settings, facts)
