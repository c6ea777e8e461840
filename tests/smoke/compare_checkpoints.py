"""Print how far the parts of checkpoints of two runs are apart. Runs in a project's environment."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np


def difference(one: Any, other: Any) -> float:
    """0 for equal bits, else the largest difference; infinity where the two are not comparable."""
    if hasattr(one, "dtype") and hasattr(other, "dtype"):
        if one.shape != other.shape or one.dtype != other.dtype:
            return math.inf
        one, other = np.asarray(one), np.asarray(other)
        return 0.0 if np.array_equal(one, other) else float(np.abs(one.astype(float) - other.astype(float)).max())
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return max((difference(value, other[key]) for key, value in one.items()), default=0.0)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return max(map(difference, one, other), default=0.0)
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other)
    return 0.0 if type(one) is type(other) and one == other else math.inf


def joined(parts: list[Any]) -> Any:
    """A tree of dicts, lists and tensors from the shards of each rank."""
    import torch

    if isinstance(parts[0], dict):
        return {key: joined([part[key] for part in parts]) for key in parts[0]}
    if isinstance(parts[0], list):
        return [joined(list(values)) for values in zip(*parts, strict=True)]
    if isinstance(parts[0], tuple) and parts[0][0] == "shard":
        return torch.cat([part[2] for part in parts], parts[0][1])
    return parts[0]


def read(file: Path) -> dict[str, Any]:
    """A checkpoint's parts, by its framework's own reader."""
    if file.suffix == ".pt":
        import torch

        content: dict[str, Any] = torch.load(file, weights_only=True)
        if "shards" in content:
            content |= joined([torch.load(file.with_name(name), weights_only=True) for name in content["shards"]])
        assert content["optimizer"]["state"], "nothing to compare"
        return content
    arrays = dict(np.load(file, allow_pickle=False))
    content = json.loads(str(arrays.pop("values")))
    for name, array in arrays.items():
        content.setdefault(name.partition("/")[0], {})[name] = array
    assert len(content["optimizer"]) > 2, "nothing to compare"
    return content


apart: dict[str, float] = {}
for name in ("last", "best"):
    one, other = (read(next(Path(run).glob(f"checkpoints/{name}.*"))) for run in sys.argv[1:])
    assert one["model"], "nothing to compare"
    apart |= {f"{name} {part}": difference(one[part], other[part]) for part in ("model", "optimizer", "state")}
print(json.dumps(apart))
