"""What the dev container tool, which VS Code runs, makes of a project's devcontainer.json."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support import PRESETS, Project, render


def read_configuration(tool: str, project: Project) -> dict[str, Any]:
    # It asks docker for a container of this folder's; `true` in docker's place says that there is none.
    done = project.run(tool, "read-configuration", "--docker-path", "true", "--workspace-folder", project.path)
    configuration: dict[str, Any] = json.loads(done.stdout)["configuration"]
    return configuration


def mount(text: str) -> dict[str, str]:
    """Docker's notation: source=a,target=b,type=bind."""
    return dict(part.split("=", 1) for part in text.split(","))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_tool_reads_what_the_project_means(devcontainer: str, preset: str, tmp_path: Path) -> None:
    project = render(tmp_path / "my project", preset=preset)
    found = read_configuration(devcontainer, project)
    folder = project.path / ".devcontainer"
    dockerfile = folder / found["build"]["dockerfile"]
    assert (folder / found["build"]["context"]).samefile(project.path)
    assert f" AS {found['build']['target']}\n" in dockerfile.read_text("utf-8")
    workspace = {"source": str(project.path), "target": found["workspaceFolder"], "type": "bind"}
    assert mount(found["workspaceMount"]) == workspace
    assert found["hostRequirements"] == {"gpu": "optional"}, "opens with a GPU and without"
    left = set(re.findall(r"\$\{[^}]*\}", json.dumps(found)))
    assert left <= {"${devcontainerId}"}, "only this one is filled in later"


def test_its_user_may_write_where_volumes_are(devcontainer: str, tmp_path: Path) -> None:
    """A volume takes the owner of the folder that the image has there, and is root's where it has none."""
    project = render(tmp_path / "project")
    found, dockerfile = read_configuration(devcontainer, project), (project.path / "Dockerfile").read_text("utf-8")
    assert re.search(rf"\buseradd --create-home .* {found['remoteUser']}\b", dockerfile)
    made = re.findall(rf"install --directory (?:--mode 777|--owner {found['remoteUser']} \S+ \S+) (\S+)", dockerfile)
    for volume in map(mount, found["mounts"]):
        assert volume["type"] == "volume"
        assert volume["source"].startswith("${devcontainerId}-"), "one a project"
        assert Path(volume["target"]) in {Path(found["workspaceFolder"], folder) for folder in made}
