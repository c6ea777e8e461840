"""Comet: online where COMET_API_KEY or `comet login` gives an account, else archives in the run directory.

COMET_PROJECT_NAME and COMET_WORKSPACE work as everywhere.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile, is_zipfile

os.environ.setdefault("COMET_LOGGING_CONSOLE", "ERROR")
os.environ.setdefault("COMET_DISABLE_AUTO_LOGGING", "1")  # only what the run's directory holds

import comet_ml
from comet_ml.config.config_api import get_api_key, get_config
from comet_ml.exceptions import CometException

from ..errors import UserError
from ..files import flatten, read_yaml
from . import Tracker, read_tags

if TYPE_CHECKING:
    from ..run import Run

PACKAGE = __package__.partition(".")[0]


class CometTracker(Tracker):
    """The run of the same name, tagged with its experiment; every start offline leaves one more archive of it."""

    keeps_at_the_end = True

    def __init__(self, run: "Run", key: str | None) -> None:
        config, environment, folder = read_yaml(run.config), run.read_environment(), run.path / "tracking" / "comet"
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob("*.zip"):
            if not (is_zipfile(left) and "messages.json" in ZipFile(left).namelist()):  # of a killed process
                left.unlink()
        self.archives = set(folder.glob("*.zip")) if key else None
        self.experiment = comet_ml.start(
            api_key=key,
            project_name=os.environ.get("COMET_PROJECT_NAME") or PACKAGE,
            experiment_key=run.id,
            online=key is not None,
            mode="get_or_create",
            experiment_config=comet_ml.ExperimentConfig(
                name=run.path.name,
                offline_directory=str(folder),
                tags=[run.path.parent.name, *(f"{key}:{value}" for key, value in read_tags(run).items())],
                log_code=False,
                log_graph=False,
                log_git_metadata=False,
                log_git_patch=False,
                log_env_details=False,
                auto_output_logging="",
                parse_args=False,
            ),
        )
        self.experiment.log_parameters(flatten(config))
        self.experiment.log_others({name: environment.get(name) for name in ("commit", "dirty", "python", "platform")})
        place = f"{self.experiment.workspace}/{self.experiment.project_name}"
        self.place, self.folder = place if key else "offline", folder
        archive = f"offline, in {folder}; set COMET_API_KEY, then `sync` takes it online"
        self.where = str(self.experiment.url) if key else archive

    def log_metrics(self, metrics: Mapping[str, float], step: int, epoch: int, seconds: float) -> None:
        self.experiment.log_metrics(dict(metrics), step=step, epoch=epoch)

    def log_file(self, file: Path, name: str, step: int) -> None:
        if file.suffix == ".png":
            self.experiment.log_image(str(file), name.removesuffix(".png"), step=step)
            return
        for part in (file, file.with_name("model.json")):
            self.experiment.log_model(f"{PACKAGE}-model", str(part), overwrite=True)

    def finish(self, status: str) -> None:
        self.experiment.log_other("status", status)
        self.experiment.end()
        if self.archives is not None and (left := set(self.folder.glob("*.zip")) - self.archives):
            raise OSError(f"could not send everything, and kept it in {left.pop()}")


def start(run: "Run", step: int | None) -> CometTracker:
    try:
        return CometTracker(run, get_api_key(None, get_config()))
    except (CometException, OSError, ValueError) as error:
        reason, hint = str(error).split("\n")[0], "see COMET_API_KEY, or unset it to work offline"
        raise UserError(f"does not start ({reason}); {hint}", 1) from None
