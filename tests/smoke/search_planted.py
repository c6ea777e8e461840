"""Print what each engine reaches on a function that is known, over 20 seeds of 40 trials each.

Of every seed the best value, and the median of the last 20 trials; of these the medians.
"""

import importlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from my_model.run import Run
from my_model.search.space import Space
from my_model.search.trial import Trial

NAMES = ("optuna", "hyperopt")
PARAMETERS = {
    "optimizer.learning_rate": {"type": "log", "low": 1e-5, "high": 1.0},
    "model.width": {"type": "int", "low": 4, "high": 64, "step": 4},
    "optimizer.weight_decay": {"type": "float", "low": 0.0, "high": 1.0},
    "optimizer.name": {"type": "choice", "values": ["adamw", "sgd"]},
}


def planted(parameters: Mapping[str, Any]) -> float:
    """0 where the learning rate is 0.01, the width 48, the weight decay 0.3 and the optimizer adamw."""
    rate = math.log10(parameters["optimizer.learning_rate"]) + 2
    width = (parameters["model.width"] - 48) / 16
    decay = 2 * (parameters["optimizer.weight_decay"] - 0.3)
    return float(rate**2 + width**2 + decay**2 + (parameters["optimizer.name"] == "sgd"))


def reached(suggest: Any, seed: int, mode: str) -> tuple[float, float]:
    space, known = Space.model_validate({"parameters": PARAMETERS, "seed": 1000 * seed}), list[Trial]()
    for number in range(40):
        parameters = suggest(space, known, number)
        value = planted(parameters) * (-1 if mode == "max" else 1)
        known.append(Trial(Run(Path()), number, parameters, "finished", value, mode=mode, curve=[(1, value)]))
    values = [planted(trial.parameters) for trial in known]
    return min(values), median(values[20:])


def main() -> None:
    engines = {"random": lambda space, known, number: space.draw(number)}
    engines |= {name: importlib.import_module(f"my_model.search.engines.{name}").suggest for name in NAMES}
    modes = {"optuna": "max", "hyperopt": "min", "random": "min"}
    for name, mode in modes.items():
        best, late = zip(*(reached(engines[name], seed, mode) for seed in range(20)), strict=True)
        print(json.dumps([name, median(best), median(late)]))


if __name__ == "__main__":
    main()
