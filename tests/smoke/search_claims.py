"""Print what each of four processes claims of one search at once, some of it left behind by a process that ended."""

import json
import os
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path
from socket import gethostname
from typing import Any

from my_model.config import read_config
from my_model.search.space import Space
from my_model.search.trial import Search

PROCESSES, LEFT, TRIALS = 4, 20, 60
SPACE = {"sampler": "random", "parameters": {"seed": {"type": "int", "low": 0, "high": 10**6}}}


def claim(folder: Path, barrier: Any, claimed: Any) -> None:
    config = read_config(Path("configs/experiment/baseline.yaml"))
    search = Search(folder, Space.model_validate(SPACE), config, TRIALS, workers=1)
    search.open()
    numbers = []
    barrier.wait()
    while trial := search.claim(lambda *_: {}):
        numbers.append(trial.number)
    claimed.put(numbers)
    barrier.wait()  # what a process claimed is left behind when it ends


def leave_some(folder: Path, pid: int) -> None:
    for number in range(LEFT):
        run = folder / f"trial-{number:04d}"
        run.mkdir(parents=True)
        reused = number % 2  # the pid is that of another process by now
        owner = {"host": gethostname(), "pid": os.getpid() if reused else pid, "began": "1"}
        trial = {"number": number, "parameters": {"seed": number}, "owner": owner}
        (run / "trial.json").write_text(json.dumps(trial | {"curve": []}), "utf-8")


def main() -> None:
    folder = Path(sys.argv[1])
    with subprocess.Popen(["true"]) as ended:
        pass
    leave_some(folder, ended.pid)
    context = get_context("spawn")
    barrier, claimed = context.Barrier(PROCESSES), context.Queue()
    processes = [context.Process(target=claim, args=[folder, barrier, claimed], daemon=True) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    numbers = [claimed.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
