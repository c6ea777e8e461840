"""YOURS: the model."""

import keras
from keras import layers

from .backend import Model
from .settings import DataFacts, ModelSettings


def build_model(settings: ModelSettings, facts: DataFacts) -> Model:
    """Two hidden layers. The columns are normalised inside; the target comes out normalised.

    columns: float32 [B, C], as measured -> target [B, 1].
    """
    columns = keras.Input((len(facts.columns),), name="columns")
    offset = [-mean / std for mean, std in zip(facts.mean, facts.std, strict=True)]
    features = layers.Rescaling([1 / std for std in facts.std], offset)(columns)
    features = layers.Dense(settings.width, "relu")(features)
    features = layers.Dropout(settings.dropout)(features)
    features = layers.Dense(settings.width, "relu")(features)
    return keras.Model({"columns": columns}, {"target": layers.Dense(1)(features)})
