"""Train for two epochs; print which examples were read, with which seeds. Runs in a project's environment."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

package, batch_size, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
config = import_module(f"{package}.config").read_config(Path("configs/experiment/baseline.yaml"))
trainer = config.trainer.model_copy(update={"max_epochs": 2, "global_batch_size": batch_size})
config = config.model_copy(update={"seed": seed, "trainer": trainer})
data: Any = import_module(f"{package}.data")
build_datasets = data.build_datasets
reads: list[tuple[list[int], list[int]]] = []


class Recorder:
    def __init__(self, examples: Any) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def read(self, indices: Any, seeds: Any) -> Any:
        if seeds is not None and len(indices) == batch_size:  # check reads fewer at once
            reads.append((indices.tolist(), seeds.tolist()))
        return self.examples.read(indices, seeds)


def build_recorded(settings: Any) -> Any:
    datasets = build_datasets(settings)
    return datasets._replace(train=Recorder(datasets.train))


data.build_datasets = build_recorded
import_module(f"{package}.train").train(config)
print(json.dumps(reads))
