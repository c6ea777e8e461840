"""YOURS: classification of images."""

import io

import numpy as np
from torch.nn import functional

from .backend import Model, Tensor, run_model
from .contract import BaseTask, Loss, Monitor, Report, Sums
from .signature import Input, Output, Signature


class Task(BaseTask):
    """Cross-entropy; accuracy from a confusion matrix, whose rows are the true labels."""

    monitor = Monitor("loss", "min")

    def compute_loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> Loss:
        smoothing = self.settings.label_smoothing
        labels = batch["label"]
        total = functional.cross_entropy(outputs["logits"], labels, reduction="sum", label_smoothing=smoothing)
        return Loss(total, len(labels))

    def compute_sums(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, Tensor]:
        count = len(self.facts.labels)
        pairs = batch["label"] * count + outputs["logits"].argmax(1)
        return {"confusion": pairs.bincount(minlength=count * count).reshape(count, count)}

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
        return {"probabilities": run_model(model, inputs)["logits"].softmax(1)}


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
