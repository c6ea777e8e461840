"""Hyperopt: its TPE, over the trials that stand in the search's folder. It has no pruning of its own."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hyperopt import JOB_STATE_DONE, STATUS_OK, Trials, hp, tpe
from hyperopt.base import Domain

from ..space import Choice, Integers, Range, Space, Value
from ..trial import Search, Trial
from ..workers import run_workers
from . import STARTUP_TRIALS


def run(search: Search, say: Callable[[Trial], None]) -> None:
    if search.space.pruning:
        print("hyperopt does not prune: every trial trains to its end")
    run_workers(search, suggest, None, say)


def suggest(space: Space, known: Sequence[Trial], number: int) -> dict[str, Value]:
    trials = Trials()
    done = [trial for trial in known if trial.state == "finished" and trial.value is not None]
    for trial in done:
        points = _points(space, trial.parameters)
        misc = {"tid": trial.number, "cmd": None, "idxs": {key: [trial.number] for key in points}, "vals": points}
        loss = {"loss": -(trial.value or 0) if trial.mode == "max" else trial.value, "status": STATUS_OK}
        document = trials.new_trial_docs([trial.number], [None], [loss], [misc])[0]
        trials.insert_trial_doc(document | {"state": JOB_STATE_DONE})
    trials.refresh()
    domain = Domain(lambda points: 0.0, _expression(space))
    seed = space.seed + number
    chosen = tpe.suggest([number], domain, trials, seed, n_startup_jobs=STARTUP_TRIALS, verbose=False)[0]
    at: dict[str, Any] = {key: values[0] for key, values in chosen["misc"]["vals"].items()}
    pairs = ((key, parameter, at[key]) for key, parameter in space.parameters.items())
    return {key: float(x) if isinstance(each, Range) else each.all()[int(x)] for key, each, x in pairs}


def _expression(space: Space) -> dict[str, Any]:
    found = {}
    for key, parameter in space.parameters.items():
        if isinstance(parameter, Choice):
            found[key] = hp.randint(key, len(parameter.values))
        elif isinstance(parameter, Integers):
            found[key] = hp.uniformint(key, 0, len(parameter.all()) - 1)
        elif parameter.type == "log":
            found[key] = hp.loguniform(key, math.log(parameter.low), math.log(parameter.high))
        else:
            found[key] = hp.uniform(key, parameter.low, parameter.high)
    return found


def _points(space: Space, parameters: Mapping[str, Value]) -> dict[str, list[Any]]:
    """A trial as Hyperopt keeps it: of a choice and of whole numbers the index."""
    pairs = ((key, parameter, parameters[key]) for key, parameter in space.parameters.items())
    return {key: [value if isinstance(each, Range) else each.all().index(value)] for key, each, value in pairs}
