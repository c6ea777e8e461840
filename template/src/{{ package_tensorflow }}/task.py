"""YOURS: classification of images."""

import io

import numpy as np
import tensorflow as tf

from .backend import Model, Tensor, run_model
from .contract import BaseTask, Loss, Monitor, Report, Sums
from .signature import Input, Output, Signature


class Task(BaseTask):
    """Cross-entropy; accuracy from a confusion matrix, whose rows are the true labels."""

    monitor = Monitor("loss", "min")

    def compute_loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> Loss:
        smoothing, count = self.settings.label_smoothing, len(self.facts.labels)
        targets = tf.one_hot(batch["label"], count) * (1 - smoothing) + smoothing / count
        losses = tf.nn.softmax_cross_entropy_with_logits(targets, outputs["logits"])
        return Loss(tf.reduce_sum(losses), tf.size(losses))

    def compute_sums(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, Tensor]:
        count = len(self.facts.labels)
        return {"confusion": tf.math.confusion_matrix(batch["label"], tf.argmax(outputs["logits"], 1), count)}

    def compute_metrics(self, sums: Sums) -> dict[str, float]:
        confusion = sums["confusion"]
        return {"accuracy": float(confusion.trace() / max(1, confusion.sum()))}

    def build_report(self, sums: Sums) -> Report:
        confusion = sums["confusion"]
        correct, true, guessed = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
        rows: list[dict[str, str | int | float]] = [
            {
                "label": label,
                "examples": int(true[i]),
                "precision": float(correct[i] / max(1, guessed[i])),
                "recall": float(correct[i] / max(1, true[i])),
                "f1": float(2 * correct[i] / max(1, true[i] + guessed[i])),
            }
            for i, label in enumerate(self.facts.labels)
        ]
        return Report({"per class": rows}, {"confusion_matrix": draw_confusion(confusion, self.facts.labels)})

    def signature(self) -> Signature:
        image = Input("image", "image", self.facts.image_shape)
        labels = self.facts.labels
        return Signature((image,), (Output("probabilities", "probabilities", (len(labels),), labels),))

    def predict(self, model: Model, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"probabilities": tf.nn.softmax(run_model(model, inputs)["logits"])}


def draw_confusion(confusion: np.ndarray, labels: tuple[str, ...]) -> bytes:
    """The matrix as a PNG; numbers are examples, colours are shares of the true label."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.add_subplot(xlabel="predicted", ylabel="true")
    axes.imshow(confusion / np.maximum(1, confusion.sum(1, keepdims=True)), cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=90)
    axes.set_yticks(range(len(labels)), labels)
    if len(labels) <= 20:
        for (row, column), value in np.ndenumerate(confusion):
            colour = "white" if value > confusion[row].sum() / 2 else "black"
            axes.text(column, row, str(int(value)) if value else "", ha="center", va="center", color=colour)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()
