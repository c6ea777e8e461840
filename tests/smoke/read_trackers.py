"""Print what a tracker stored of a run. Runs in a project's environment: read_trackers.py TRACKER RUN [MLFLOW_URI]"""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile


def read_tensorboard(run: Path) -> dict[str, Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "images": 0})
    events.Reload()
    tags = events.Tags()
    metrics = [[each.step, tag, each.value] for tag in tags["scalars"] for each in events.Scalars(tag)]
    return {"metrics": metrics, "pictures": tags["images"]}


def read_mlflow(run: Path, uri: str = "") -> dict[str, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(uri or f"sqlite:///{run.parent.parent / 'mlflow.db'}")
    identity = json.loads((run / "environment.json").read_text("utf-8"))["id"]
    everywhere = [each.experiment_id for each in client.search_experiments()]
    (found,) = client.search_runs(everywhere, f"tags.run_id = '{identity}'")
    names = set(found.data.metrics) - {"epoch"}
    metrics = [[m.step, m.key, m.value] for name in names for m in client.get_metric_history(found.info.run_id, name)]
    files = [each.path for folder in ("", "test", "model") for each in client.list_artifacts(found.info.run_id, folder)]
    versions = client.search_model_versions(f"run_id = '{found.info.run_id}'")
    return {
        "metrics": metrics,
        "pictures": [name.removesuffix(".png") for name in files if name.endswith(".png")],
        "config": found.data.params,
        "commit": found.data.tags.get("mlflow.source.git.commit"),
        "tags": found.data.tags,
        "name": found.info.run_name,
        "status": {"FINISHED": "finished", "KILLED": "interrupted"}.get(found.info.status, found.info.status.lower()),
        "files": files,
        "models": [each.source for each in versions],
        "uri": client.get_run(found.info.run_id).info.artifact_uri,
    }


def wandb_records(file: Path) -> Iterator[Any]:
    """Blocks of 32 KiB with records of a checksum, a length and a type, as LevelDB's log has them."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, content = file.read_bytes(), 7, b""
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        length, kind = struct.unpack("<HB", data[position + 4 : position + 7])
        content += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(content)
            content = b""


def read_wandb(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"metrics": [], "pictures": [], "models": []}
    for file in sorted(run.glob("tracking/wandb/offline-run-*/*.wandb")):
        for record in wandb_records(file):
            if record.WhichOneof("record_type") == "history":
                row = {
                    ".".join(each.nested_key) or each.key: json.loads(each.value_json) for each in record.history.item
                }
                pictures = {name.removesuffix("._type") for name in row if name.endswith("._type")}
                numbers = {name: value for name, value in row.items() if "/" in name and "." not in name}
                found["metrics"] += [[row["step"], name, value] for name, value in numbers.items()]
                found["pictures"] += sorted(pictures)
            elif record.WhichOneof("record_type") == "run":
                found["config"] = {each.key: json.loads(each.value_json) for each in record.run.config.update}
                found |= {"name": record.run.display_name, "tags": list(record.run.tags), "id": record.run.run_id}
                found["commit"] = found["config"]["environment"]["commit"]
            elif record.WhichOneof("record_type") == "summary":
                values = {each.key: json.loads(each.value_json) for each in record.summary.update}
                found["status"] = values.get("status", found.get("status"))
            elif record.WhichOneof("record_type") == "request" and record.request.HasField("log_artifact"):
                found["models"].append(record.request.log_artifact.artifact.name)
            elif record.WhichOneof("record_type") == "artifact":
                found["models"].append(record.artifact.name)
    return found


def read_comet(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"metrics": [], "pictures": [], "config": {}, "models": [], "others": {}, "tags": []}
    for file in sorted(run.glob("tracking/comet/*.zip"), key=lambda path: path.stat().st_mtime):
        archive = ZipFile(file)
        for line in archive.read("messages.json").splitlines():
            message = json.loads(line)
            payload = message["payload"]
            if message["type"] == "metric_msg":
                metric = payload["metric"]
                if "/" in metric["metricName"]:  # Comet adds one of its own
                    found["metrics"].append([metric["step"], metric["metricName"], metric["metricValue"]])
            elif message["type"] == "parameter_msg" and "param" in payload:
                found["config"][payload["param"]["paramName"]] = payload["param"]["paramValue"]
            elif message["type"] == "log_other":
                found["others"][payload["key"]] = payload["value"]
            elif message["type"] == "file_upload":
                about = payload["additional_params"]
                kind = "pictures" if payload["upload_type"] == "visualization" else "models"
                found[kind].append(about.get("figName") or about.get("fileName"))
        found["tags"] += json.loads(archive.read("experiment.json")).get("tags", [])
    others = found.pop("others")
    return found | {"commit": others.get("commit"), "status": others.get("status"), "name": others.get("Name")}


if __name__ == "__main__":
    name, run, *more = sys.argv[1:]
    readers: dict[str, Any] = {
        "tensorboard": read_tensorboard,
        "mlflow": read_mlflow,
        "wandb": read_wandb,
        "comet": read_comet,
    }
    print(json.dumps(readers[name](Path(run), *more)))
