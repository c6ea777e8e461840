"""YOURS: the data, in NumPy."""

from importlib.metadata import distribution

import numpy as np

from .contract import ArrayExamples, Batch, Datasets, Seeds
from .seeds import uniforms
from .settings import DataFacts, DataSettings


def build_datasets(settings: DataSettings) -> Datasets:
    """Ten measurements of a patient, and how far the illness had gone a year later."""
    folder = str(distribution("scikit-learn").locate_file("sklearn/datasets/data"))
    rows = np.loadtxt(f"{folder}/diabetes_data_raw.csv.gz", np.float32)
    targets = np.loadtxt(f"{folder}/diabetes_target.csv.gz", np.float32)[:, None]
    mean, std = rows[:300].mean(0), rows[:300].std(0)

    def add_noise(batch: Batch, seeds: Seeds) -> Batch:
        noise = settings.noise * (2 * uniforms(seeds, len(std)) - 1)
        return batch | {"columns": batch["columns"] + noise.astype(np.float32) * std}

    def split(start: int, end: int) -> ArrayExamples:
        return ArrayExamples({"columns": rows[start:end], "target": targets[start:end]}, add_noise)

    facts = DataFacts(
        columns=("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"),
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
        target="progression",
        target_mean=float(targets[:300].mean()),
        target_std=float(targets[:300].std()),
    )
    return Datasets(split(0, 300), split(300, 369), split(369, 442), facts)
