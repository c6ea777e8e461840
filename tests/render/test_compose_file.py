"""compose.yaml: nothing in it floats, is secret, or is open to others unless its owner says so."""

import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import Project
from test_projects import BIN

PRESETS = ("startup", "large-org")
SECRET = re.compile("PASSWORD|SECRET|TOKEN|ACCESS_KEY$")


def problems(project: Project) -> Iterator[str]:
    text = (project.path / "compose.yaml").read_text("utf-8")
    yield from (
        f"{variable} has neither a default nor a message"
        for variable in re.findall(r"\$\{?\w+[^}]*\}?", text)
        if not re.fullmatch(r"\$\{\w+(:-[^}]+|:\?[^}]+)\}", variable)
    )
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    for name, service in services.items():
        dockerfile = service.get("build", {}).get("dockerfile_inline", f"FROM {service.get('image')}\n")
        for image in re.findall("^FROM (.*)", dockerfile, re.MULTILINE):
            if not re.fullmatch(r"[\w./-]+:v?\d+\.\d+[\w.-]*", image):
                yield f"{name}: image {image} is not pinned"
        for key, value in service.get("environment", {}).items():
            if SECRET.search(key) and not re.fullmatch(r"\$\{\w+:\?[^}]+\}", value):
                yield f"{name}: {key} stands in the file"
        if any(not port.startswith("${MLFLOW_BIND:-127.0.0.1}:") for port in service.get("ports", [])):
            yield f"{name}: published on every interface"
        kept = {volume.partition(":")[2] for volume in service.get("volumes", [])}
        for path in re.findall(r"=(?:sqlite:///)?(/\w+)", " ".join(service.get("command", []))):
            if path not in kept:
                yield f"{name}: {path} goes with the container"
        if {"restart", "healthcheck"} - set(service):
            yield f"{name}: neither restarted nor checked"
    if "\nUSER 1000\n" not in services["mlflow"]["build"]["dockerfile_inline"]:
        yield "mlflow: runs as root"
    if ".env" not in (project.path / ".gitignore").read_text("utf-8").split():
        yield ".gitignore: .env"


@pytest.mark.parametrize("preset", PRESETS)
def test_nothing_is_wrong(projects: Mapping[str, Project], preset: str) -> None:
    assert not [*problems(projects[preset])]


@pytest.mark.parametrize(
    ("there", "wrong"),
    [
        ("-slim", "-slim:latest"),
        ("postgres:18.6-alpine", "postgres"),
        ("seaweedfs:4.48", "seaweedfs:latest"),
        (":?see docs/guide.md", ""),
        ("${POSTGRES_PASSWORD:?see docs/guide.md}", "hunter2"),
        ("${S3_SECRET_KEY:?see docs/guide.md}", "${S3_SECRET_KEY:-secret}"),
        ("${MLFLOW_BIND:-127.0.0.1}", "0.0.0.0"),
        ("USER 1000", "USER 0"),
        ('volumes: ["store:/data"]', ""),
        ("restart: unless-stopped", ""),
    ],
)
def test_a_planted_fault_is_seen(projects: Mapping[str, Project], there: str, wrong: str, tmp_path: Path) -> None:
    project = Project(shutil.copytree(projects["large-org"].path, tmp_path / "project"))
    file = project.path / "compose.yaml"
    before = file.read_text("utf-8")
    file.write_text(before.replace(there, wrong), "utf-8")
    assert there in before and [*problems(project)]


@pytest.mark.parametrize("preset", PRESETS)
def test_the_image_has_the_pinned_mlflow(projects: Mapping[str, Project], preset: str, tmp_path: Path) -> None:
    """Of constraints.txt, which the build is handed and .dockerignore lets through."""
    project = projects[preset]
    build = yaml.safe_load((project.path / "compose.yaml").read_text("utf-8"))["services"]["mlflow"]["build"]
    dockerfile = build["dockerfile_inline"]
    assert "COPY constraints.txt" in dockerfile and not re.search("mlflow[=<>~]", dockerfile)
    assert "!constraints*.txt" in (project.path / ".dockerignore").read_text("utf-8").split()
    (tmp_path / "Dockerfile").write_text(dockerfile, "utf-8")
    done = subprocess.run([BIN / "hadolint", tmp_path / "Dockerfile"], capture_output=True, text=True)
    assert not done.returncode, done.stdout


@pytest.mark.parametrize("preset", PRESETS)
def test_make_starts_it(projects: Mapping[str, Project], preset: str, tmp_path: Path) -> None:
    """With passwords that are made once, for their owner's eyes."""
    project = Project(shutil.copytree(projects[preset].path, tmp_path / "project"))
    files = []
    for _ in range(2):
        done = project.make("mlflow-server", "DOCKER=echo")
        assert done.stdout.endswith("compose up --detach --build --wait\n")
        files.append({path.name: path.read_bytes() for path in project.path.glob(".env")})
    assert files[0] == files[1]
    wanted = re.findall(r"\$\{(\w+):\?", (project.path / "compose.yaml").read_text("utf-8"))
    found = dict(line.split("=") for line in b"".join(files[0].values()).decode().split())
    assert found.keys() == set(wanted) and all(re.fullmatch("[0-9a-f]{48}", value) for value in found.values())
    assert len({*found.values()}) == len(found)
    for path in project.path.glob(".env"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
