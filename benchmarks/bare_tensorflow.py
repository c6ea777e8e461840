"""The floor: a training loop with nothing in it that training does not need; one tf.function a step.

Same model, data, augmentation and optimizer as the project's loop. Runs in a project's environment.
"""

import keras
import numpy as np
import tensorflow as tf
from my_model.config import Config
from my_model.contract import ArrayExamples
from my_model.data import build_datasets
from my_model.distributed import Runtime
from my_model.model import build_model
from my_model.settings import DataSettings, ModelSettings
from my_model.train import build_optimizer


class BareLoop:
    """Train on the digits."""

    def __init__(self, width: int, batch_size: int) -> None:
        datasets = build_datasets(DataSettings())
        assert isinstance(datasets.train, ArrayExamples) and datasets.train.augment
        self.images, self.labels = datasets.train.arrays["image"], datasets.train.arrays["label"]
        self.augment = datasets.train.augment
        self.generator = np.random.default_rng(0)
        self.batch_size = batch_size
        self.steps = len(self.labels) // batch_size
        keras.utils.set_random_seed(0)
        self.model = build_model(ModelSettings(width=width), datasets.facts)
        self.optimizer = build_optimizer(Config(), self.model, Runtime(0, 1, "cpu", "fp32", compiled=False))
        specs = (tf.TensorSpec([None, *datasets.facts.image_shape]), tf.TensorSpec([None], tf.int64))
        self.graph = tf.function(self.update, input_signature=specs, autograph=False)

    def update(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = self.model({"image": images}, training=True)["logits"]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        weights = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    def train_one_epoch(self) -> float:
        order, total = self.generator.permutation(len(self.labels)), 0.0
        for step in range(self.steps):
            total += self.train_step(order[step * self.batch_size : (step + 1) * self.batch_size])
        return total

    def train_step(self, rows: np.ndarray) -> float:
        seeds = self.generator.integers(2**64, size=len(rows), dtype=np.uint64)
        batch = self.augment({"image": self.images[rows], "label": self.labels[rows]}, seeds)
        return float(self.graph(batch["image"], batch["label"]))
