"""Weights & Biases: online where WANDB_API_KEY or `wandb login` gives an account, else files in the run directory.

WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY and WANDB_BASE_URL work as everywhere.
"""

import netrc
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import wandb

from ..errors import UserError
from ..files import read_yaml
from . import Tracker, read_tags

if TYPE_CHECKING:
    from ..run import Run

PACKAGE = __package__.partition(".")[0]
WHOLE = "whole"
"""A file in the folder of an offline run that was ended; what another one holds is not known."""


class WandbTracker(Tracker):
    """The run of the same name, in the group of its experiment; every metric's axis is "step"."""

    keeps_at_the_end = True

    def __init__(self, run: "Run", online: bool) -> None:
        config, environment = read_yaml(run.config), run.read_environment()
        (run.path / "tracking").mkdir(exist_ok=True)
        for left in run.path.glob("tracking/wandb/offline-run-*"):
            if not (left / WHOLE).is_file():  # of a process that was killed
                shutil.rmtree(left)
        self.wandb_run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PACKAGE,
            id=run.id,
            name=run.path.name,
            group=run.path.parent.name,
            dir=str(run.path / "tracking"),
            config=config | {"environment": {key: environment.get(key) for key in ("commit", "dirty", "hardware")}},
            tags=[f"{key}:{value}" for key, value in read_tags(run).items()],
            mode="online" if online else "offline",
            resume="allow" if online else None,
            reinit="create_new",  # another run of this process may not have ended
            settings=wandb.Settings(
                silent=True,
                console="off",
                init_timeout=15,
                finish_timeout=50,
                finish_timeout_raises=True,
                disable_code=True,
                save_code=False,
            ),
        )
        self.wandb_run.define_metric("*", step_metric="step")
        place = f"{_server()}/{self.wandb_run.entity}/{self.wandb_run.project}"
        self.place = place if online else "offline"
        offline = f"offline, in {run.path}/tracking/wandb; `wandb login`, then `sync` takes it online"
        self.where = str(self.wandb_run.url) if online else offline

    def log_metrics(self, metrics: Mapping[str, float], step: int, epoch: int, seconds: float) -> None:
        self.wandb_run.log({**metrics, "step": step, "epoch": epoch, "time": seconds})

    def log_file(self, file: Path, name: str, step: int) -> None:
        if file.suffix == ".png":
            self.wandb_run.log({name.removesuffix(".png"): wandb.Image(str(file)), "step": step})
            return
        model = wandb.Artifact(f"{PACKAGE}-model", "model")
        for part in (file, file.with_name("model.json")):
            model.add_file(str(part))
        self.wandb_run.log_artifact(model)

    def finish(self, status: str) -> None:
        self.wandb_run.summary["status"] = status
        self.wandb_run.finish(exit_code=0 if status == "finished" else 1)
        (Path(self.wandb_run.dir).parent / WHOLE).touch()


def start(run: "Run", step: int | None) -> WandbTracker:
    online = os.environ.get("WANDB_MODE", "online") == "online" and _has_account()
    try:
        return WandbTracker(run, online)
    except wandb.Error as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"does not start ({reason}); see `wandb login`, or set WANDB_MODE=offline", 1) from None


def _has_account() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:  # where `wandb login` keeps it
        return netrc.netrc().authenticators(urlsplit(_server()).netloc) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _server() -> str:
    return str(wandb.setup().settings.base_url)
