"""Print the test set as the lines that `predict` reads, each with its true answer. Runs in a project's environment."""

import json
import sys
from importlib import import_module

import numpy as np

package = sys.argv[1]
settings = import_module(f"{package}.settings").DataSettings()
datasets = import_module(f"{package}.data").build_datasets(settings)
for index in range(len(datasets.test)):
    row = {name: array[0].tolist() for name, array in datasets.test.read(np.array([index]), None).items()}
    if "columns" in row:
        pairs = list(zip(datasets.facts.columns, row["columns"], strict=True))
        row["columns"] = dict(reversed(pairs))  # their names decide, not their order
    else:
        row["text"] = "".join(datasets.facts.vocabulary[token] for token in row["text"])
        row["label"] = [datasets.facts.labels[label] for label in row["label"]]
    print(json.dumps(row))
