"""What a search found: a table, pictures, and the best trial as an experiment."""

import math
from collections.abc import Sequence

import numpy as np

from ..errors import UserError
from ..files import dump_yaml, read_yaml, write_text
from ..framework import THREADS
from ..runs import print_table
from .space import Choice, Integers, Range, Space, Value
from .trial import PACKAGE, Search, Trial

BEST = "best.yaml"
ROWS = 10
ENOUGH = 5
"""Finished trials, from which on it is said which settings matter."""


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """The finished ones, the best first: what was pruned has not shown what it comes to."""
    finished = [trial for trial in trials if trial.state == "finished"]
    return sorted(finished, key=lambda trial: (trial.value or 0) * (-1 if trial.mode == "max" else 1))


def best(trials: Sequence[Trial]) -> Trial | None:
    return next(iter(ranked(trials)), None)


def write_best(search: Search) -> None:
    """The best trial so far as an experiment of its own, with every setting."""
    trial = best(search.read())
    if trial is None:
        return
    content = read_yaml(trial.run.path / "experiment.yaml") | {"name": f"{search.folder.name}-best"}
    score = f"val/{trial.metric} {trial.value!r}"
    lines = f"# Trial {trial.number} of {search.folder.name}: {score}. To train it again:\n# {command(search, trial)}\n"
    write_text(search.folder / BEST, lines + dump_yaml(content))


def command(search: Search, trial: Trial) -> str:
    """What trains the best experiment, to the same bits: these depend on the number of threads."""
    threads = "".join(f"{name}={value} " for name, value in trial.environment.items() if name == THREADS)
    return f"{threads}python -m {PACKAGE} train --experiment {search.folder / BEST}"


def show(search: Search) -> None:
    """Print and draw what there is."""
    trials = search.read()
    states = [trial.state for trial in trials]
    print(f"\n{search.folder}: " + ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    finished = ranked(trials)
    if not finished:
        reason = next((f"trial {trial.number}: {trial.error}" for trial in trials if trial.error), "none began")
        raise UserError(f"{search.folder}: no trial finished; {reason}", exit_code=1)
    write_best(search)  # a trial may have ended while nobody was told
    rows = [{"trial": each.number, f"val/{each.metric}": each.value, **each.parameters} for each in finished]
    print_table(rows[:ROWS])
    draw(search, trials)
    print(f"\npictures: {search.folder}/*.png\nthe best trial, trained again:\n  {command(search, finished[0])}")


def draw(search: Search, trials: Sequence[Trial]) -> None:
    """history.png has each trial's score and the best so far; importance.png how much each setting matters."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    def save(name: str) -> None:
        figure.savefig(search.folder / name, dpi=120)
        plt.close(figure)

    finished = [trial for trial in trials if trial.state == "finished"]
    metric, choose = f"val/{finished[0].metric}", np.maximum if finished[0].mode == "max" else np.minimum
    figure, place = plt.subplots(figsize=(7, 4), layout="constrained")
    for state, mark in (("finished", "o"), ("pruned", "x"), ("failed", "v")):
        points = [(trial.number, trial.value) for trial in trials if trial.state == state and trial.value is not None]
        if points:
            place.plot(*zip(*points, strict=True), mark, label=state, alpha=0.8)
    numbers, values = [trial.number for trial in finished], np.array([trial.value for trial in finished])
    place.step(numbers, choose.accumulate(values), where="post", label="best so far")
    place.set(xlabel="trial", ylabel=metric, title=search.folder.name)
    place.xaxis.set_major_locator(MaxNLocator(integer=True))
    place.legend()
    save("history.png")
    if len(finished) < ENOUGH:
        return
    weights = importance(search.space, finished)
    figure, place = plt.subplots(figsize=(7, 1.5 + 0.4 * len(weights)), layout="constrained")
    place.barh(list(weights), list(weights.values()))
    place.set(xlabel=f"worse prediction of {metric} with the setting shuffled", title=search.folder.name)
    save("importance.png")


def importance(space: Space, finished: Sequence[Trial]) -> dict[str, float]:
    """How much each setting tells of the score, by a forest of trees, the least first.

    Source: permutation importance, Breiman 2001, https://doi.org/10.1023/A:1010933404324
    """
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance

    table = np.array(
        [[_number(space.parameters[key], trial.parameters[key]) for key in space.parameters] for trial in finished]
    )
    values = np.array([trial.value for trial in finished])
    forest = RandomForestRegressor(random_state=0).fit(table, values)
    means = permutation_importance(forest, table, values, n_repeats=20, random_state=0).importances_mean
    weights = zip(space.parameters, map(float, means), strict=True)
    return dict(sorted(weights, key=lambda pair: pair[1]))


def _number(parameter: Range | Integers | Choice, value: Value) -> float:
    if isinstance(parameter, Choice):
        return float(parameter.values.index(value))
    return math.log(float(value or 0)) if parameter.type == "log" else float(value or 0)
