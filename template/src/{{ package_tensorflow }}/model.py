"""YOURS: the model."""

import keras
from keras import layers

from .backend import Model
from .settings import DataFacts, ModelSettings


def build_model(settings: ModelSettings, facts: DataFacts) -> Model:
    """Convolutions with GroupNorm, which, unlike BatchNorm, gives the same result on any number of processes.

    image: float32 [B, H, W, C] in [0, 1] -> logits [B, labels].
    """
    image = keras.Input(facts.image_shape, name="image")
    features = layers.Rescaling(2.0, offset=-1.0)(image)
    for stage in range(settings.stages):
        width = settings.width * 2**stage
        for level in range(settings.depth):
            stride = 2 if stage > 0 and level == 0 else 1
            features = layers.Conv2D(width, 3, stride, padding="same", use_bias=False)(features)
            features = layers.GroupNormalization(4, epsilon=1e-5)(features)
            features = layers.ReLU()(features)
    logits = layers.Dense(len(facts.labels))(layers.GlobalAveragePooling2D()(features))
    return keras.Model({"image": image}, {"logits": logits})
