"""YOURS: a label for each character."""

import tensorflow as tf

from .backend import Model, Tensor, run_model
from .contract import BaseTask, Loss, Monitor, Report, Sums
from .data import NO_LABEL
from .signature import Input, Output, Signature


class Task(BaseTask):
    """Cross-entropy over the characters that are there; accuracy over them, and recall by label."""

    monitor = Monitor("accuracy", "max")

    def compute_loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> Loss:
        smoothing, count = self.settings.label_smoothing, len(self.facts.labels)
        there = tf.cast(batch["label"] != NO_LABEL, tf.float32)
        targets = tf.one_hot(batch["label"], count) * (1 - smoothing) + smoothing / count
        losses = tf.nn.softmax_cross_entropy_with_logits(targets, outputs["logits"])
        return Loss(tf.reduce_sum(losses * there), tf.reduce_sum(there))

    def compute_sums(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, Tensor]:
        count = len(self.facts.labels)
        there = batch["label"] != NO_LABEL
        right = batch["label"] == tf.argmax(outputs["logits"], 2)
        labels = tf.cast(batch["label"], tf.int32)
        return {
            "correct": tf.math.bincount(tf.boolean_mask(labels, there & right), minlength=count),
            "tokens": tf.math.bincount(tf.boolean_mask(labels, there), minlength=count),
        }

    def compute_metrics(self, sums: Sums) -> dict[str, float]:
        return {"accuracy": float(sums["correct"].sum() / sums["tokens"].sum())}

    def build_report(self, sums: Sums) -> Report:
        pairs = zip(self.facts.labels, sums["tokens"], sums["correct"], strict=True)
        rows: list[dict[str, str | int | float]] = [
            {"label": label, "tokens": int(tokens), "recall": float(correct / max(1, tokens))}
            for label, tokens, correct in pairs
        ]
        return Report({"per label": rows})

    def signature(self) -> Signature:
        labels = self.facts.labels
        text = Input("text", "tokens", ("time",), "int64", self.facts.vocabulary)
        return Signature((text,), (Output("labels", "probabilities", ("time", len(labels)), labels),))

    def predict(self, model: Model, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"labels": tf.nn.softmax(run_model(model, inputs)["logits"])}
