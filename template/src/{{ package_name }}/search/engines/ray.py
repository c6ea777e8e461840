"""Ray Tune: trials on all machines of a cluster, and ASHA, which stops the worse half early; Optuna says what to try.

The cluster is the one at RAY_ADDRESS, where every machine sees this folder at the same path; else this machine is one.
Source of ASHA: Li et al. 2020, https://arxiv.org/abs/1810.05934
"""

import os
import secrets
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

if not os.environ.get("RAY_ADDRESS"):  # Ray is started here: on loopback, with a token that nobody else knows
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # as there: one machine, 127.0.0.1
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # which prints tables whatever the verbosity
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # runs have their own
os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")  # a trial may end before its first epoch

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher

from ...errors import UserError
from ...framework import THREADS
from ...run import whoami
from ..space import Discrete
from ..trial import Search, Trial
from .optuna import suggest

SCORE = "score"  # the greater, the better


class Training(tune.Trainable):  # type: ignore[misc, unused-ignore]
    """A trial in a worker of Ray, which follows the training process that it starts."""

    def setup(self, config: dict[str, Any]) -> None:
        os.chdir(config["root"])
        self.trial = Trial.read(Path(config["folder"]))
        self.trial.environment = config["environment"]
        self.trial.start(os.environ | self.trial.environment)
        self.epochs = self.trial.epochs()

    def step(self) -> dict[str, Any]:
        """Wait for the next epoch, or for the end."""
        ended = next(self.epochs, self) is self
        if ended:
            self.trial.conclude()
        epoch, value = self.trial.curve[-1] if self.trial.curve else (0, float("nan"))
        return {"epoch": epoch, SCORE: value if self.trial.mode == "max" else -value, "done": ended}

    def cleanup(self) -> None:
        self.trial.stop()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """The run has its own."""

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None: ...


class Claims(Searcher):  # type: ignore[misc, unused-ignore]
    """Hands the search's next trial to Tune, and records what Tune stopped."""

    def __init__(self, search: Search, say: Callable[[Trial], None], environment: dict[str, str]) -> None:
        super().__init__(metric=SCORE, mode="max")
        self.search, self.say, self.environment = search, say, environment
        self.trials: dict[str, Trial] = {}

    def set_search_properties(self, *args: Any, **kwargs: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> Any:
        trial = self.search.claim(suggest)
        if trial is None:
            return Searcher.FINISHED
        self.trials[trial_id] = trial
        return {"root": os.getcwd(), "folder": str(trial.run.path), "environment": self.environment}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        trial = Trial.read(self.trials[trial_id].run.path)
        if trial.state == "running":
            trial.conclude(pruned=not error)
        self.say(trial)

    def __getstate__(self) -> dict[str, Any]:
        """Tune keeps copies, which nothing reads: the state is in the trials' directories."""
        return {}

    def save(self, checkpoint_path: str) -> None: ...

    def restore(self, checkpoint_path: str) -> None: ...


def run(search: Search, say: Callable[[Trial], None]) -> None:
    on_sigterm = signal.getsignal(signal.SIGTERM)
    _connect(search)
    signal.signal(signal.SIGTERM, on_sigterm)  # Ray has taken it
    folder = (search.folder / "ray").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    there = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus = min(1, int(there.get("GPU", 0))) if search.config.trainer.device in ("auto", "cuda") else 0
    cpus = 1 if os.environ.get("RAY_ADDRESS") else max(1, int(there["CPU"]) // search.workers)
    threads = {THREADS: os.environ.get(THREADS, str(cpus))}
    searched = search.space.parameters.get("trainer.max_epochs")
    epochs = [search.config.trainer.max_epochs, *(searched.all() if isinstance(searched, Discrete) else ())]
    most = max(epoch for epoch in epochs if isinstance(epoch, int))
    scheduler = ASHAScheduler("epoch", max_t=most + 1) if search.space.pruning else None  # none is stopped at its end
    tuner = tune.Tuner(
        tune.with_resources(Training, {"cpu": cpus, "gpu": gpus}),
        tune_config=tune.TuneConfig(
            metric=SCORE,
            mode="max",
            search_alg=Claims(search, say, threads),
            scheduler=scheduler,
            num_samples=search.trials,
            max_concurrent_trials=search.workers,
        ),
        run_config=tune.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=1),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    try:
        tuner.fit()
    finally:
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
    if any(trial.state == "running" and trial.owner == whoami() for trial in search.read()):
        raise KeyboardInterrupt  # which Tune keeps to itself


def _connect(search: Search) -> None:
    """To the cluster, or start Ray here."""
    options: dict[str, Any] = {"address": os.environ.get("RAY_ADDRESS")}
    if not options["address"]:
        cores = max(os.cpu_count() or 1, search.workers)
        options = {"address": "local", "num_cpus": cores, "include_dashboard": False}
    try:
        ray.init(**options, log_to_driver=False, logging_config=ray.LoggingConfig(log_level="CRITICAL"))
    except (OSError, ray.exceptions.AuthenticationError) as error:
        reason = str(error).partition(". ")[0]
        raise UserError(
            f"RAY_ADDRESS={options['address']}: no Ray cluster lets us in ({reason})", exit_code=1
        ) from None
