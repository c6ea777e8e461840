"""Print how far the parts of checkpoints of two runs are apart. Runs in a project's environment."""

import json
import math
import sys
from typing import Any

import torch


def difference(one: Any, other: Any) -> float:
    """0 for equal bits, else the largest difference; infinity where the two are not comparable."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return math.inf
        return 0.0 if torch.equal(one, other) else float((one.double() - other.double()).abs().max())
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return max((difference(value, other[key]) for key, value in one.items()), default=0.0)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return max(map(difference, one, other), default=0.0)
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other)
    return 0.0 if type(one) is type(other) and one == other else math.inf


apart: dict[str, float] = {}
for name in ("last", "best"):
    one, other = (torch.load(f"{run}/checkpoints/{name}.pt", weights_only=True) for run in sys.argv[1:])
    assert one["model"] and one["optimizer"]["state"], "nothing to compare"
    apart |= {f"{name} {part}": difference(one[part], other[part]) for part in ("model", "optimizer", "state")}
print(json.dumps(apart))
