"""MLflow: the server at MLFLOW_TRACKING_URI, else a database beside the runs.

The server's account comes from MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN.
"""

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")  # read at import
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # it may hold a password

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunStatus, RunTag
from mlflow.exceptions import MlflowException

from ..errors import UserError
from ..files import flatten, read_yaml
from ..signature import Signature
from . import Tracker, read_rows, read_tags

if TYPE_CHECKING:
    from ..run import Run

logging.getLogger("alembic").setLevel(logging.WARNING)  # which makes the tables
PACKAGE = __package__.partition(".")[0]
STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
BATCH = {"metrics": 1000, "params": 100}
"""What MLflow takes at a time."""


class MLflowTracker(Tracker):
    """A run of the experiment <package>/<experiment>, found again by its tag "run_id"."""

    def __init__(self, client: MlflowClient, uri: str, run: "Run", step: int | None) -> None:
        self.client, self.run, self.rows = client, run, list[Metric]()
        self.place = "runs" if uri == _own(run) else uri.rpartition("@")[2]
        self.where = f"mlflow ui --backend-store-uri {uri}" if uri.startswith("sqlite:") else uri
        experiment = _experiment(client, run, uri)
        found = client.search_runs([experiment], f"tags.run_id = '{run.id}'", max_results=1)
        self.is_new = not found
        tags = _tags(run) | _parent(client, run, experiment)
        began = round(1000 * next((row.time for row in read_rows(run.metrics)), time.time()))
        if found:
            self.mlflow_run = found[0]
        else:
            self.mlflow_run = client.create_run(experiment, began, run_name=run.path.name, tags=tags)
        self.id: str = self.mlflow_run.info.run_id
        if found and step is not None:
            client.update_run(self.id, RunStatus.to_string(RunStatus.RUNNING))
            client.log_batch(self.id, tags=[RunTag(*tag) for tag in tags.items()])
            names = self.mlflow_run.data.metrics.keys() - {"epoch"}
            history = (row for name in names for row in client.get_metric_history(self.id, name))
            self.ahead = frozenset((row.key, row.step) for row in history if row.step > step)
        before = self.mlflow_run.data.params  # which can never change; config.yaml tells what the last start had
        params = [Param(*pair) for pair in _params(run).items() if pair[0] not in before]
        for start in range(0, len(params), BATCH["params"]):
            client.log_batch(self.id, params=params[start : start + BATCH["params"]])
        for file in (run.config, run.path / "environment.json"):
            client.log_artifact(self.id, str(file))

    def log_metrics(self, metrics: Mapping[str, float], step: int, epoch: int, seconds: float) -> None:
        now = round(seconds * 1000)
        self.rows += [Metric(name, value, now, step) for name, value in metrics.items()]
        self.rows.append(Metric("epoch", epoch, now, step))

    def flush(self) -> None:
        rows, self.rows = self.rows, []
        for start in range(0, len(rows), BATCH["metrics"]):
            self.client.log_batch(self.id, metrics=rows[start : start + BATCH["metrics"]])

    def log_file(self, file: Path, name: str, step: int) -> None:
        if file.suffix == ".onnx":
            self._register(file)
        else:
            self.client.log_artifact(self.id, str(file), str(Path(name).parent))

    def _register(self, file: Path) -> None:
        """The model with its signature, as a new version under the package's name."""
        import mlflow.onnx
        import onnx

        described = read_yaml(file.with_name("model.json"))
        signature, model = Signature.from_dict(described), onnx.load(file)
        for output in signature.outputs:  # MLflow wants them written into the graph
            value = next(each for each in model.graph.output if each.name == output.name)
            del value.type.tensor_type.shape.dim[:]
            for size in ("batch", *output.shape):
                dimension = value.type.tensor_type.shape.dim.add()
                dimension.dim_value, dimension.dim_param = (size, "") if isinstance(size, int) else (0, size)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            mlflow.onnx.save_model(model, str(path), signature=_mlflow_signature(signature, model))
            (path / "model.json").write_bytes(file.with_name("model.json").read_bytes())
            self.client.log_artifacts(self.id, str(path), "model")
        try:
            self.client.create_registered_model(PACKAGE)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        self.client.create_model_version(PACKAGE, f"{self.mlflow_run.info.artifact_uri}/model", self.id)

    def finish(self, status: str) -> None:
        self.flush()
        if status in STATUS:
            ended = self.run.read_status().get("time")
            milliseconds = round(1000 * datetime.fromisoformat(ended).timestamp()) if ended else None
            self.client.set_terminated(self.id, STATUS[status], milliseconds)


def start(run: "Run", step: int | None) -> MLflowTracker:
    uri = os.environ.get("MLFLOW_TRACKING_URI") or _own(run)
    try:
        if uri == _own(run):
            _make_database(Path(uri.removeprefix("sqlite:///")))
        return MLflowTracker(MlflowClient(uri), uri, run, step)
    except (MlflowException, OSError) as error:
        reason = str(error).split("\n")[0].split(" (Caused by")[0][:300]
        raise UserError(f"{uri} does not answer as it should ({reason}); see MLFLOW_TRACKING_URI", 1) from None


def _own(run: "Run") -> str:
    return f"sqlite:///{run.path.parent.parent / 'mlflow.db'}"


def _make_database(file: Path) -> None:
    """Whole or not at all, for several runs may begin at the same time."""
    if file.exists():
        return
    with TemporaryDirectory(dir=file.parent) as folder:
        made = Path(folder) / file.name
        MlflowClient(f"sqlite:///{made}").search_experiments()  # which makes the tables
        with suppress(FileExistsError):
            os.link(made, file)


def _experiment(client: MlflowClient, run: "Run", uri: str) -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or f"{PACKAGE}/{run.path.parent.name}"
    artifacts = (run.path.parent.parent / "mlflow").resolve().as_uri() if uri.startswith("sqlite:") else None
    for _ in range(2):  # another process may make it at the same time
        if found := client.get_experiment_by_name(name):
            if found.lifecycle_stage == "deleted":
                break
            return str(found.experiment_id)
        try:
            return str(client.create_experiment(name, artifact_location=artifacts))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
    raise MlflowException(f"experiment {name} was deleted; restore it, or set MLFLOW_EXPERIMENT_NAME")


def _parent(client: MlflowClient, run: "Run", experiment: str) -> dict[str, str]:
    """The search that a trial belongs to is a run too, which the first of its trials makes."""
    if not (run.path / "trial.json").is_file():
        return {}
    name = run.path.parent.name

    def find() -> list[str]:
        found = client.search_runs([experiment], f"tags.search = '{name}'", order_by=["attributes.start_time ASC"])
        return [each.info.run_id for each in found]

    if not find():
        made = client.create_run(experiment, run_name=name, tags={"search": name}).info.run_id
        client.set_terminated(made)
    return {"mlflow.parentRunId": find()[0]}  # the older one, where two were made at the same time


def _params(run: "Run") -> dict[str, str]:
    return {key: str(value)[:6000] for key, value in flatten(read_yaml(run.config)).items()}


def _tags(run: "Run") -> dict[str, str]:
    environment = run.read_environment()
    own = {"run_id": run.id, "mlflow.source.name": " ".join(environment.get("command", []))}
    own |= {"mlflow.source.git.commit": commit} if (commit := environment.get("commit")) else {}
    return own | read_tags(run)


def _mlflow_signature(signature: Signature, model: Any) -> Any:
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec
    from onnx.helper import tensor_dtype_to_np_dtype

    def sizes(shape: tuple[int | str, ...]) -> tuple[int, ...]:
        return (-1, *(size if isinstance(size, int) else -1 for size in shape))

    dtypes = {each.name: tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type) for each in model.graph.output}
    inputs = Schema([TensorSpec(np.dtype(each.dtype), sizes(each.shape), each.name) for each in signature.inputs])
    outputs = [TensorSpec(np.dtype(dtypes[each.name]), sizes(each.shape), each.name) for each in signature.outputs]
    return ModelSignature(inputs, Schema([*outputs]))
