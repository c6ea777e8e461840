"""Optuna: its TPE sampler, and its median rule for pruning, over the trials that stand in the search's folder."""

import warnings
from collections.abc import Callable, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from ..space import Choice, Integers, Space, Value
from ..trial import Search, Trial
from ..workers import run_workers
from . import STARTUP_TRIALS

STATES = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "running": TrialState.RUNNING}

optuna.logging.set_verbosity(optuna.logging.WARNING)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # of constant_liar


def run(search: Search, say: Callable[[Trial], None]) -> None:
    run_workers(search, suggest, should_prune if search.space.pruning else None, say)


def suggest(space: Space, known: Sequence[Trial], number: int) -> dict[str, Value]:
    sampler = optuna.samplers.TPESampler(
        n_startup_trials=STARTUP_TRIALS, multivariate=True, constant_liar=True, seed=space.seed + number
    )
    distributions = _distributions(space)
    chosen = _study(space, known, sampler).ask(distributions).params
    return {key: chosen[key] for key in distributions}


def should_prune(space: Space, known: Sequence[Trial], trial: Trial) -> bool:
    """Whether its best so far is worse than the median of the others' at that epoch."""
    return optuna.pruners.MedianPruner().prune(_study(space, known), _frozen(_distributions(space), trial))


def _study(
    space: Space, known: Sequence[Trial], sampler: optuna.samplers.BaseSampler | None = None
) -> optuna.study.Study:
    maximize = any(trial.mode == "max" for trial in known)
    direction = optuna.study.StudyDirection.MAXIMIZE if maximize else optuna.study.StudyDirection.MINIMIZE
    study = optuna.create_study(sampler=sampler or optuna.samplers.RandomSampler(), direction=direction)
    distributions = _distributions(space)
    study.add_trials([_frozen(distributions, trial) for trial in known if trial.state in STATES])
    return study


def _frozen(distributions: dict[str, BaseDistribution], trial: Trial) -> FrozenTrial:
    return create_trial(
        state=STATES[trial.state],
        value=trial.value if trial.state == "finished" else None,
        params=trial.parameters,
        distributions=distributions,
        intermediate_values=dict(trial.curve),
    )


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    found: dict[str, BaseDistribution] = {}
    for key, parameter in space.parameters.items():
        if isinstance(parameter, Choice):
            found[key] = CategoricalDistribution(parameter.values)
        elif isinstance(parameter, Integers):
            found[key] = IntDistribution(parameter.low, parameter.high, step=parameter.step)
        else:
            found[key] = FloatDistribution(parameter.low, parameter.high, log=parameter.type == "log")
    return found
