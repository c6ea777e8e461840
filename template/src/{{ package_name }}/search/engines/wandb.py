"""A W&B sweep of the same space: their server says what to try, and their agent starts our training."""

from collections.abc import Callable
from typing import Any

from ...config import set_values
from ...errors import UserError
from ...files import dump_yaml, write_text
from ...task import Task
from ..space import Choice, Integers, Range, Space
from ..trial import PACKAGE, Search, Trial

METHODS = {"tpe": "bayes", "random": "random", "grid": "grid"}


def run(search: Search, say: Callable[[Trial], None]) -> None:
    """Write sweep.yaml, and say how to go on; nothing is trained here."""
    for key, parameter in search.space.parameters.items():
        if isinstance(parameter, Choice) and None in parameter.values:
            raise UserError(f"parameters.{key}: W&B has no way to pass null; leave it out")
    choices = ((key, each.values) for key, each in search.space.parameters.items() if isinstance(each, Choice))
    flags = {
        key: False for key, values in choices if any(value is True for value in values)
    }  # the agent adds true alone
    base = set_values(search.config, {**flags, "name": search.folder.name})
    write_text(search.folder / "base.yaml", dump_yaml(base))
    file = search.folder / "sweep.yaml"
    write_text(file, dump_yaml(build_sweep(search)))
    print(f"wrote {file}; start it, then an agent on each GPU, by what it prints:\n  wandb sweep {file}")


def build_sweep(search: Search) -> dict[str, Any]:
    space = search.space
    sweep: dict[str, Any] = {
        "name": search.folder.name,
        "method": METHODS[space.sampler],
        "metric": {"name": f"val/{Task.monitor.metric}", "goal": f"{Task.monitor.mode}imize"},
        "run_cap": search.trials,
        "parameters": {key.replace("_", "-"): _parameter(space, each) for key, each in space.parameters.items()},
        "command": [
            "${env}",
            "${interpreter}",
            "-m",
            PACKAGE,
            "train",
            "--experiment",
            str(search.folder / "base.yaml"),
            "${args_no_boolean_flags}",
        ],
    }
    return sweep | ({"early_terminate": {"type": "hyperband", "min_iter": 3}} if space.pruning else {})


def _parameter(space: Space, parameter: Range | Integers | Choice) -> dict[str, Any]:
    if isinstance(parameter, Choice):
        return {"values": list(parameter.values)}
    if isinstance(parameter, Integers) and (space.sampler == "grid" or parameter.step > 1):
        return {"values": list(parameter.all())}
    if isinstance(parameter, Integers):
        return {"distribution": "int_uniform", "min": parameter.low, "max": parameter.high}
    distribution = {"float": "uniform", "log": "log_uniform_values"}[parameter.type]
    return {"distribution": distribution, "min": parameter.low, "max": parameter.high}
