"""compose.yaml: the server that it describes keeps a project's runs, for those who may, over a restart."""

import json
import re
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest
from compose import BIN, Stack, stack

from programs import find_postgres_program
from workspace import EXHAUSTIVE, SMALL, Workspace, error_line, workspace

from conftest import required

ONE_EPOCH = (*SMALL, "--trainer.max-epochs", "1", "--tracking.trackers", '["mlflow"]')
ADA = ("ada", "countess of 1815")
NOBODY: Mapping[str, str] = {}
LIST_STORE = """
import boto3, sys
objects = boto3.client("s3", endpoint_url=sys.argv[1]).list_objects_v2(Bucket="mlflow")
print(*(each["Key"] for each in objects["Contents"]), sep="\\n")
"""


@pytest.fixture(scope="module", params=["large-org", "startup"] if EXHAUSTIVE else ["large-org"])
def preset(request: pytest.FixtureRequest) -> str:
    if request.param == "large-org":
        required(find_postgres_program("initdb"), "PostgreSQL")
        required(str(BIN / "weed") if (BIN / "weed").exists() else None, "SeaweedFS")
    return str(request.param)


@pytest.fixture(scope="module")
def project(preset: str, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("compose") / "project", preset=preset)


@pytest.fixture(scope="module")
def server(project: Workspace) -> Iterator[Stack]:
    """Started by the guide's commands: with the .env that `make` writes, and an account for Ada."""
    page = (project.path / "docs/guide.md").read_text("utf-8").partition("\n### An MLflow server")[2]
    command = page.split("```")[1].splitlines()[1].partition(" #")[0]
    done = project.run("bash", "-euc", f"{command} DOCKER=echo")
    assert done.stdout.endswith("compose up --detach --build --wait\n")
    file = project.path / ".env"
    env = dict(line.split("=") for line in file.read_text("utf-8").split()) if file.exists() else {}
    with stack(project, env) as started:
        if started.has_accounts:
            sign_up(started, *ADA)
        yield started


def sign_up(server: Stack, name: str, password: str) -> None:
    """By the form, as admin."""
    browser = build_opener(HTTPCookieProcessor())
    browser.addheaders = [*basic("admin", server.env["MLFLOW_AUTH_ADMIN_PASSWORD"]).items()]
    page = browser.open(f"{server.uri}/signup").read().decode()
    (token,) = re.findall('name="csrf_token" value="([^"]+)"', page)
    (action,) = re.findall('action="([^"]+)"', page)
    form = {"csrf_token": token, "username": name, "password": password}
    assert browser.open(f"{server.uri}{action}", urlencode(form).encode()).status == 200


@pytest.fixture(scope="module")
def run(project: Workspace, server: Stack) -> Path:
    """Ada's, told to the server while it trained."""
    return project.train("kept", *ONE_EPOCH, env=account(server))


def account(server: Stack, name: str = ADA[0], password: str = ADA[1]) -> dict[str, str]:
    names = {"MLFLOW_TRACKING_USERNAME": name, "MLFLOW_TRACKING_PASSWORD": password}
    return {"MLFLOW_TRACKING_URI": server.uri} | (names if server.has_accounts else {})


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}


def ask(
    server: Stack, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] = NOBODY
) -> tuple[int, bytes]:
    """The status of an answer, and what it holds."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{server.uri}/api/2.0/{path}", data, {**headers, "Content-Type": "application/json"})
    try:
        with urlopen(request) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        return error.code, error.read()


def stored(project: Workspace, server: Stack, run: Path) -> dict[str, Any]:
    done = project.script("read_trackers.py", "mlflow", run, server.uri, env=account(server))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def list_store(server: Stack, **other: str) -> subprocess.CompletedProcess[str]:
    """The keys in the S3 store, with MLflow's credentials or others."""
    settings = server.environment("mlflow") | other
    command = (server.image / "bin" / "python", "-c", LIST_STORE, settings["MLFLOW_S3_ENDPOINT_URL"])
    return subprocess.run(command, env=settings, capture_output=True, text=True)


LARGE_ORG = pytest.mark.parametrize("preset", ["large-org"], indirect=True, scope="module")


@LARGE_ORG
def test_only_an_account_opens_it(project: Workspace, server: Stack) -> None:
    done = project.cli("train", *ONE_EPOCH, check=False, env=account(server, password="a-wrong-one"))
    assert done.returncode == 1
    assert "mlflow" in error_line(done) and "not authenticated" in error_line(done)
    search = ("mlflow/experiments/search", {"max_results": 1})
    assert ask(server, *search)[0] == ask(server, *search, basic(ADA[0], "a-wrong-one"))[0] == 401
    refused = list_store(server, AWS_SECRET_ACCESS_KEY="wrong")
    assert refused.returncode and "ClientError" in refused.stderr


@LARGE_ORG
def test_colleagues_share_and_do_not_delete(project: Workspace, server: Stack, run: Path) -> None:
    """Grace logs to the experiment and the model that are Ada's, and cannot delete them."""
    project.cli("export", run, env=account(server))
    found = stored(project, server, run)
    (model,) = found["models"]
    assert f"{model.removeprefix('mlflow-artifacts:/')}/model.onnx" in list_store(server).stdout.split()
    new = {"username": "grace", "password": "rear-admiral"}
    assert ask(server, "mlflow/users/create", new, basic(*ADA))[0] == 403
    sign_up(server, *new.values())
    grace = basic(*new.values())
    experiment = {"experiment_id": model.split("/")[1]}
    assert ask(server, "mlflow/runs/create", experiment, grace)[0] == 200
    version = {"name": project.package, "source": model, "run_id": model.split("/")[2]}
    assert ask(server, "mlflow/model-versions/create", version, grace)[0] == 200
    assert ask(server, "mlflow/experiments/delete", experiment, grace)[0] == 403
    assert ask(server, "mlflow/registered-models/delete", {"name": project.package}, grace)[0] == 403


def test_a_run_is_kept_over_a_restart(project: Workspace, server: Stack, run: Path) -> None:
    services = [*server.running]
    for name in services:
        assert server.is_healthy(name)
    server.stop(*reversed(services))
    for name in services:
        assert not server.is_healthy(name)
    server.forget()
    server.env["MLFLOW_HOSTNAME"] = "gpu1"
    server.start(*services)
    found = stored(project, server, run)
    rows = map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines())
    assert sorted(found["metrics"]) == sorted(
        [row["step"], f"{row['split']}/{row['name']}", row["value"]] for row in rows
    )
    assert found["status"] == "finished"
    headers = basic(*ADA) if server.has_accounts else {}
    artifact = f"mlflow-artifacts/artifacts/{found['uri'].removeprefix('mlflow-artifacts:/')}/config.yaml"
    assert ask(server, artifact, None, headers) == (200, (run / "config.yaml").read_bytes())

    search = ("mlflow/experiments/search", {"max_results": 1})
    assert ask(server, *search, headers | {"Host": "gpu1:5000", "Origin": "http://gpu1:5000"})[0] == 200
    assert ask(server, *search, headers | {"Host": "gpu2:5000"})[0] == 403
    assert ask(server, *search, headers | {"Origin": "http://gpu2:5000"})[0] == 403
