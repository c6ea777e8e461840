"""YOURS: regression."""

import keras
import tensorflow as tf

from .backend import Model, Tensor, run_model
from .contract import BaseTask, Loss, Monitor, Sums
from .signature import Input, Output, Signature


class Task(BaseTask):
    """Huber loss on the normalised target; R2 and the mean absolute error from sums."""

    monitor = Monitor("r2", "max")

    def compute_loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> Loss:
        target, delta = self.normalise(batch["target"]), self.settings.huber_delta
        return Loss(tf.reduce_sum(keras.losses.huber(target, outputs["target"], delta)), tf.size(target))

    def compute_sums(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, Tensor]:
        target = self.normalise(batch["target"])
        error = outputs["target"] - target
        moments = {"target": tf.reduce_sum(target), "target_squared": tf.reduce_sum(target**2)}
        return moments | {"error": tf.reduce_sum(abs(error)), "error_squared": tf.reduce_sum(error**2)}

    def compute_metrics(self, sums: Sums) -> dict[str, float]:
        count = sums["count"]
        spread = float(sums["target_squared"] - sums["target"] ** 2 / count)
        return {
            "r2": 1 - float(sums["error_squared"]) / max(spread, 1e-9),
            "mae": float(sums["error"] / count) * self.facts.target_std,
        }

    def signature(self) -> Signature:
        columns = self.facts.columns
        inputs = (Input("columns", "numbers", (len(columns),), names=columns),)
        return Signature(inputs, (Output("target", "numbers", (1,), (self.facts.target,)),))

    def predict(self, model: Model, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        target = run_model(model, inputs)["target"]
        return {"target": target * self.facts.target_std + self.facts.target_mean}

    def normalise(self, target: Tensor) -> Tensor:
        return (target - self.facts.target_mean) / self.facts.target_std
