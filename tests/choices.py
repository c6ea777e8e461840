"""The projects that the render tier looks at: every preset, and every pair of two choices at least once."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from random import Random
from typing import Any

CHOICES: dict[str, list[Any]] = {
    "preset": ["solo", "startup", "large-org"],
    "framework": ["pytorch", "tensorflow"],
    "license": ["MIT", "Apache-2.0", "BSD-3-Clause", "proprietary"],
    "python_version": ["3.11", "3.12", "3.13"],
    "accelerator": ["cuda", "cpu"],
    "trackers": [["tensorboard"], [], ["mlflow", "wandb"], ["comet"]],
    "launchers": [["ddp", "horovod"], ["ddp"], ["horovod"], ["slurm"], ["ray"], []],
    "search": [["optuna"], [], ["hyperopt"], ["ray", "wandb"]],
    "demo": [True, False],
    "notebooks": [True, False],
    "devcontainer": [True, False],
    "ci": ["github", "gitlab", "none"],
    "author_email": ["ada@example.org", ""],
}


def pairwise(choices: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Greedily, the one of many combinations that covers most of the pairs not seen yet, until all are."""
    names, draw = list(choices), Random(0)
    drawn = (tuple(draw.randrange(len(values)) for values in choices.values()) for _ in range(3000))
    every = [row for row in drawn if can_be({name: choices[name][at] for name, at in zip(names, row, strict=True)})]
    bits: dict[object, int] = {}  # one for each pair
    pairs = {row: sum(bits.setdefault(p, 1 << len(bits)) for p in combinations(enumerate(row), 2)) for row in every}
    missing = (1 << len(bits)) - 1
    while missing:
        row = max(every, key=lambda row: (pairs[row] & missing).bit_count())
        missing &= ~pairs[row]
        yield {name: choices[name][value] for name, value in zip(names, row, strict=True)}


def can_be(answers: Mapping[str, Any]) -> bool:
    """Whether the questions take these answers together."""
    return "wandb" not in answers["search"] or "wandb" in answers["trackers"]


def label(answers: Mapping[str, Any]) -> str:
    return "-".join("+".join(value) if isinstance(value, list) else str(value) for value in answers.values()).replace(
        "--", "-"
    )


COMBINATIONS: list[dict[str, Any]] = [{"preset": preset} for preset in CHOICES["preset"]]
COMBINATIONS += [{"preset": preset, "framework": "tensorflow"} for preset in CHOICES["preset"]]
COMBINATIONS.append({"preset": "solo", "trackers": ["wandb"], "search": ["wandb"]})
COMBINATIONS += pairwise(CHOICES)
