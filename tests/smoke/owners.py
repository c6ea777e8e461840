"""Projects for other tasks than the shipped one: only the owner's files are replaced."""

import shutil
from pathlib import Path

from support import ROOT
from workspace import Workspace, workspace

TASKS = ("tabular", "sequence")


def install(task: str, dest: Path, framework: str = "pytorch") -> Workspace:
    """A default project whose four files and experiment are those of the task."""
    project = workspace(dest, framework)
    source = ROOT / "tests" / "tasks" / task
    for name in ("settings.py", "data.py", f"{framework}/model.py", f"{framework}/task.py"):
        shutil.copy(source / name, project.path / "src" / project.package)
    experiments = project.path / "configs" / "experiment"
    shutil.copy(source / "experiment.yaml", experiments / "baseline.yaml")
    (experiments / "image-folder.yaml").unlink()
    (project.path / "tests" / "test_model.py").unlink()
    return project
