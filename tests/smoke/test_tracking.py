"""Each tracker holds what metrics.jsonl holds, value by value, whatever happened on the way."""

import json
import os
import signal
import socket
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import WIDE
from workspace import (
    FIRST,
    FIRST_FRAMEWORK,
    SMALL,
    Workspace,
    error_line,
    last_step,
    status,
    wait_until,
    workspace,
)

TRACKERS = WIDE["trackers"]
TWO_EPOCHS = (*SMALL, "--trainer.max-epochs", "2")
LONGER = (*SMALL, "--trainer.max-epochs", "30")
NONE = ("--tracking.trackers", "[]")
KEYS = {
    "MLFLOW_TRACKING_PASSWORD": "planted-mlflow-password",
    "WANDB_API_KEY": "0123456789abcdef" * 2 + "01234567",
    "WANDB_MODE": "offline",
    "STORAGE_SECRET": "planted-storage-secret",
}


@pytest.fixture(scope="module", params=FIRST)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = workspace(tmp_path_factory.mktemp("tracking") / "project", request.param, trackers=TRACKERS)
    made.run("git", "init", "--quiet")
    made.run("git", "add", "--all")
    made.run("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "--quiet", "-m", "Begin")
    return made


@pytest.fixture(scope="module")
def tracked(project: Workspace) -> Path:
    """Trained (with PyTorch by two processes), measured and exported with every tracker; said.txt has the output."""
    arguments = (*TWO_EPOCHS, "--tracking.tags", '{"team": "vision"}')
    if project.answers["framework"] == "pytorch":
        launch: tuple[str | Path, ...] = ("launch/ddp.sh", "--nproc-per-node", "2", "--run-name", "tracked", "--")
    else:
        launch = (project.python, "-m", project.package, "train", "--run-name", "tracked")
    run, command = project.run_dir("tracked"), (project.python, "-m", project.package)
    commands = [(*launch, *arguments), (*command, "evaluate", run), (*command, "export", run)]
    done = [project.run(*words, env=KEYS) for words in commands]
    (project.path / "said.txt").write_text("".join(each.stdout + each.stderr for each in done), "utf-8")
    return run


def stored(project: Workspace, tracker: str, run: Path, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.script("read_trackers.py", tracker, run, *more).stdout)
    return found


def single(value: float) -> float:
    """As TensorBoard keeps it."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def logged(run: Path) -> Counter[tuple[int, str, float]]:
    rows = map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines())
    return Counter((row["step"], f"{row['split']}/{row['name']}", single(row["value"])) for row in rows)


def told(found: dict[str, Any]) -> Counter[tuple[int, str, float]]:
    return Counter((step, name, single(value)) for step, name, value in found["metrics"])


def without_speed(metrics: Counter[tuple[int, str, float]]) -> Counter[tuple[int, str, float]]:
    """What a step that is trained twice logs again, but for its value."""
    return Counter(
        (step, name, 0.0 if name.endswith("examples_per_second") else value) for step, name, value in metrics.elements()
    )


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_tracker_has_all_of_a_run(project: Workspace, tracked: Path, tracker: str) -> None:
    found = stored(project, tracker, tracked)
    assert told(found) == logged(tracked)
    assert found["pictures"] == ["test/confusion_matrix", "test/mistakes"]
    if tracker == "tensorboard":
        return
    assert found["name"] == "tracked"
    assert found["status"] == "finished"
    assert found["commit"] == project.run("git", "rev-parse", "HEAD").stdout.strip()
    assert "vision" in json.dumps(found["tags"])
    config = found["config"]
    assert str(config.get("trainer.max_epochs") or config["trainer"]["max_epochs"]) == "2"
    assert found["models"]


def test_mlflow_registers_the_model_with_its_signature(project: Workspace, tracked: Path) -> None:
    (source,) = stored(project, "mlflow", tracked)["models"]
    code = """
import sys, mlflow.pyfunc, numpy as np, onnxruntime
uri, file = sys.argv[1:]
model, session = mlflow.pyfunc.load_model(uri), onnxruntime.InferenceSession(file)
(image,) = model.metadata.signature.inputs.inputs
assert image.shape[0] == -1 and image.type == np.float32, image
picture = np.random.default_rng(0).random((3, *image.shape[1:]), np.float32)
((name, got),) = model.predict({image.name: picture}).items()
assert np.array_equal(got, session.run([name], {image.name: picture})[0])
assert [output.name for output in model.metadata.signature.outputs.inputs] == [name]
"""
    project.run(project.python, "-c", code, source, tracked / "model.onnx")


@FIRST_FRAMEWORK
def test_a_run_that_goes_on_is_one_run(project: Workspace) -> None:
    run = project.run_dir("goes-on")
    with project.started_cli("train", "--run-name", run.name, *LONGER, "--trainer.checkpoint-every", "10") as process:
        wait_until(lambda: (run / "tracking/mlflow.json").is_file() and last_step(run) >= 25, process, "step 25")
        process.kill()
        process.wait()
    with project.started_cli("train", "--resume", run) as process:
        start = last_step(run)
        wait_until(lambda: last_step(run) >= start + 15, process, "steps more")
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    for tracker in TRACKERS[1:]:
        assert stored(project, tracker, run)["status"] == "interrupted"
    project.cli("train", "--resume", run, "--trainer.max-epochs", "6")
    for tracker in TRACKERS:
        found = stored(project, tracker, run)
        assert without_speed(told(found)) == without_speed(logged(run)), tracker
        assert found.get("status", "finished") == "finished"


@FIRST_FRAMEWORK
def test_sync_tells_a_tracker_all_and_nothing_twice(project: Workspace) -> None:
    run = project.train("untracked", *TWO_EPOCHS, *NONE)
    project.cli("evaluate", run)
    assert not (run / "tracking").exists() and not (run / "tensorboard").exists()
    for tracker in TRACKERS:
        for _ in range(2):
            assert "has it" in project.cli("sync", run, "--tracker", tracker).stdout
            found = stored(project, tracker, run)
            assert told(found) == logged(run), tracker
            assert found["pictures"] == ["test/confusion_matrix", "test/mistakes"], tracker
            assert found.get("status", "finished") == "finished"


@contextmanager
def mlflow_server(project: Workspace, folder: Path, port: int) -> Iterator[str]:
    """A server of its own, which ends with the block."""
    folder.mkdir(exist_ok=True)
    command = (project.python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1")
    store = ("--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", folder / "artifacts")
    log = (folder / "log.txt").open("ab")
    server = subprocess.Popen(
        [*map(str, (*command, *store))], cwd=folder, env=project.env, stdout=log, stderr=log, start_new_session=True
    )
    try:
        wait_until(lambda: answers(port), server, "the server answers")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        log.close()


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@FIRST_FRAMEWORK
def test_a_server_that_dies_does_not_stop_training(
    project: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ada:hunter2@127.0.0.1:{port}")
    only = ("--tracking.trackers", '["mlflow"]')
    done = project.cli("train", *TWO_EPOCHS, *only, check=False)
    assert done.returncode == 1
    assert f"mlflow: http://...@127.0.0.1:{port} does not answer" in error_line(
        done
    ) and "--no-tracking.required" in error_line(done)
    done = project.cli("train", "--run-name", "without", *TWO_EPOCHS, *only, "--no-tracking.required")
    assert done.stderr.count("warning: mlflow") == 1 and status(project.run_dir("without")) == "finished"
    run, server = project.run_dir("outage"), ExitStack()
    with server, ExitStack() as training:
        server.enter_context(mlflow_server(project, tmp_path / "server", port))
        command = ("train", "--run-name", run.name, *LONGER, *only)
        process = training.enter_context(project.started_cli(*command))
        wait_until(lambda: (run / "tracking/mlflow.json").is_file(), process, "something is told")
        server.close()
        assert process.wait(300) == 0
    said = [(project.path / name).read_text("utf-8") for name in ("out.txt", "err.txt")]
    assert said[1].count("warning: mlflow stopped working") == 1
    assert "hunter2" not in "".join(said)
    assert status(run) == "finished"
    with mlflow_server(project, tmp_path / "server", port):
        assert told(stored(project, "mlflow", run, uri)) < logged(run), "the outage came too late"
        for _ in range(2):
            assert "hunter2" not in project.cli("sync", run, "--tracker", "mlflow").stdout
            assert told(stored(project, "mlflow", run, uri)) == logged(run)


@FIRST_FRAMEWORK
def test_only_rank_0_tells(project: Workspace, tracked: Path) -> None:
    """One archive and one file of events for each of the three commands, of which the first had two processes."""
    assert "world size 2" in (project.path / "said.txt").read_text("utf-8")
    assert len(list((tracked / "tracking/comet").iterdir())) == len(list((tracked / "tensorboard").iterdir())) == 3


def test_no_secret_is_written(project: Workspace, tracked: Path) -> None:
    said = (project.path / "said.txt").read_bytes()
    files = [path for path in (project.path / "runs").rglob("*") if path.is_file()]
    for name, value in KEYS.items():
        if name != "WANDB_MODE":
            assert value.encode() not in said
            assert not [path for path in files if value.encode() in path.read_bytes()], name


@FIRST_FRAMEWORK
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tracking.tags", '{"at": "planted-storage-secret"}'), "the environment variable STORAGE_SECRET"),
        (("--tracking.tags", '{"api_key": "whatever"}'), "tracking.tags.api_key: holds a secret"),
        (("--data.folder", "https://ada:hunter2@example.org/data"), "data.folder: holds a secret"),
        (("--tracking.trackers", '["losswise"]'), "losswise is closed"),
    ],
)
def test_a_configuration_is_refused(project: Workspace, words: tuple[str, str], says: str) -> None:
    done = project.cli("train", *words, check=False, env=KEYS)
    assert done.returncode == 2
    assert says in error_line(done)
    assert "hunter2" not in done.stderr and "planted" not in done.stderr


@FIRST_FRAMEWORK
def test_a_tracker_that_was_not_chosen_is_not_imported(project: Workspace) -> None:
    code = """
import sys
from my_model.cli import main
assert main(sys.argv[1:]) == 0
print([name for name in ("mlflow", "wandb", "comet_ml", "tensorboard") if name in sys.modules])
"""
    chosen = ("--tracking.trackers", '["tensorboard"]')
    done = project.run(project.python, "-c", code, "train", *TWO_EPOCHS, *chosen)
    assert done.stdout.splitlines()[-1] == "['tensorboard']"


@FIRST_FRAMEWORK
def test_the_guides_commands(project: Workspace, tracked: Path) -> None:
    guide = (project.path / "docs/guide.md").read_text("utf-8").partition("\n## Trackers\n")[2]
    commands = guide.split("```")[1].partition("\n")[2]
    path = f"{project.path}/.venv/bin:{os.environ['PATH']}"
    done = project.run("bash", "-euc", commands.replace("runs/baseline/*", str(tracked)), env={"PATH": path})
    assert done.stdout.count("mlflow has it") == 2
    port = free_port()
    with project.started("make", "mlflow", f"ARGS=--port {port}") as server:
        wait_until(lambda: answers(port), server, "the page answers")
