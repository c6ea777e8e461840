"""Trials side by side on this machine, each a training process."""

import os
import subprocess
from collections.abc import Callable, Sequence
from threading import Lock, Thread

from ..framework import THREADS
from .space import Space
from .trial import Search, Suggest, Trial

Prune = Callable[[Space, Sequence[Trial], Trial], bool]
"""Whether a running trial should stop, after what the others reached."""


def run_workers(search: Search, suggest: Suggest, prune: Prune | None, say: Callable[[Trial], None]) -> None:
    """Conduct trials until there are as many as asked for; on Ctrl-C they save, and the next search goes on."""
    lock, problems = Lock(), list[BaseException]()

    def work(gpu: str | None) -> None:
        try:
            while not search.stopping.is_set():
                with lock:
                    trial = search.claim(suggest)
                if trial is None:
                    return
                conduct(trial, gpu)
        except BaseException as problem:
            problems.append(problem)
            search.stopping.set()

    def conduct(trial: Trial, gpu: str | None) -> None:
        trial.environment = threads(search.workers)
        device = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        trial.start(os.environ | trial.environment | device)
        pruned = False
        try:
            for _ in trial.epochs(search.stopping):
                with lock:
                    pruned = prune is not None and prune(search.space, search.read(), trial)
                if pruned:
                    break
        except BaseException:
            trial.stop()
            raise
        stopped = search.stopping.is_set()
        if stopped or pruned:
            trial.stop()
        if not stopped or trial.run.read_status().get("status") == "finished":
            trial.conclude(pruned)
            with lock:
                say(trial)

    gpus = visible_gpus() if search.config.trainer.device in ("auto", "cuda") else []
    team = [
        Thread(target=work, args=[gpus[number % len(gpus)] if gpus else None], daemon=True)
        for number in range(search.workers)
    ]
    for thread in team:
        thread.start()
    try:
        for thread in team:
            thread.join()
    except KeyboardInterrupt:
        search.stopping.set()
        for thread in team:
            thread.join()
        raise
    if problems:
        raise problems[0]


def threads(workers: int) -> dict[str, str]:
    """What keeps the workers of a machine from crowding each other; nothing for a lone one, or where it is set."""
    share = max(1, (os.cpu_count() or 1) // workers)
    return {} if workers == 1 or THREADS in os.environ else {THREADS: str(share)}


def visible_gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu for gpu in chosen.split(",") if gpu]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(number) for number in range(sum(line.startswith("GPU ") for line in listed.splitlines()))]
