"""YOURS: a label for each character."""

from torch.nn import functional

from .backend import Model, Tensor, run_model
from .contract import BaseTask, Loss, Monitor, Report, Sums
from .data import NO_LABEL
from .signature import Input, Output, Signature


class Task(BaseTask):
    """Cross-entropy over the characters that are there; accuracy over them, and recall by label."""

    monitor = Monitor("accuracy", "max")

    def compute_loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> Loss:
        logits, labels = outputs["logits"].flatten(0, 1), batch["label"].flatten()
        smoothing = self.settings.label_smoothing
        total = functional.cross_entropy(
            logits, labels, reduction="sum", ignore_index=NO_LABEL, label_smoothing=smoothing
        )
        return Loss(total, (labels != NO_LABEL).sum())

    def compute_sums(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, Tensor]:
        count = len(self.facts.labels)
        there = batch["label"] != NO_LABEL
        labels, guesses = batch["label"][there], outputs["logits"].argmax(2)[there]
        return {
            "correct": labels[labels == guesses].bincount(minlength=count),
            "tokens": labels.bincount(minlength=count),
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
        return {"labels": run_model(model, inputs)["logits"].softmax(2)}
