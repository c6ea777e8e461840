"""What the owner of a project does to it in its first months."""

from pathlib import Path

from history import append, git, replace
from workspace import Workspace

MODULE = '''"""Mix two examples."""

import numpy as np


def mix(first: np.ndarray, second: np.ndarray, share: float) -> np.ndarray:
    return share * first + (1 - share) * second
'''
TEST = """import numpy as np
from {package}.mixing import mix


def test_mix() -> None:
    assert mix(np.ones(2), np.zeros(2), 0.25).tolist() == [0.25, 0.25]
"""
GITHUB_JOB = """
  docs:
    runs-on: ubuntu-latest
    steps:
      - run: echo "our own job"
"""
GITLAB_JOB = """
docs:
  script:
    - echo "our own job"
"""
VSCODE_TASK = """
    { "label": "label pictures", "type": "shell", "command": "our-labelling-tool", "problemMatcher": [] },"""


def edit(project: Workspace) -> None:
    """Commit an owner's work: their own four files, and edits to many of the template's."""
    root, package = project.path, project.path / "src" / project.package
    # data, model and task of their own; the model has become a folder
    replace(package / "settings.py", "rotation: float = Field(10.0", "rotation: float = Field(12.0")
    replace(package / "data.py", "    images = (bunch", "    # we looked at all of them\n    images = (bunch")
    replace(package / "task.py", '        return {"accuracy": ', '        return {"all": 1.0, "accuracy": ')
    (package / "model").mkdir()
    (package / "model.py").rename(package / "model" / "__init__.py")
    replace(package / "model/__init__.py", "from .", "from ..")
    replace(package / "model/__init__.py", "nn.ReLU()]", "nn.SiLU()]")
    (package / "mixing.py").write_text(MODULE, "utf-8")
    (root / "tests/test_mixing.py").write_text(TEST.format(package=project.package), "utf-8")
    # experiments
    replace(root / "configs/experiment/baseline.yaml", "width: 24", "width: 16")
    (root / "configs/experiment/wide.yaml").write_text("schema_version: 1\nmodel:\n  width: 64\n", "utf-8")
    # what they do not want
    for name in ("configs/experiment/debug-overfit.yaml", "tests/test_model.py", ".dockerignore"):
        (root / name).unlink()
    # files that stay the template's
    replace(root / "pyproject.toml", '    "tqdm",\n', '    "tqdm",\n    "rich",\n')
    replace(root / "ruff.toml", "line-length = 120", "line-length = 110")
    append(root / "mypy.ini", "\n[mypy-rich.*]\nignore_missing_imports = true\n")
    append(root / "pytest.ini", "markers =\n    slow: takes long\n")
    append(root / "Makefile", "\nlines: ## Count our lines\n\twc -l src/*/*.py\n")
    replace(root / ".vscode/tasks.json", '"tasks": [', f'"tasks": [{VSCODE_TASK}')
    for name, job in ((".github/workflows/ci.yml", GITHUB_JOB), (".gitlab-ci.yml", GITLAB_JOB)):
        if (root / name).is_file():
            append(root / name, job)
    replace(package / "train.py", "    train_model = runtime", "    # not compiled\n    train_model = runtime")
    for name in ("app/main.py", "notebooks/quickstart.ipynb"):
        if (root / name).is_file():
            append(root / name, "\n")
    (root / "README.md").write_text("# Our project\n\nIt is ours.\n", "utf-8")
    (root / "constraints.local.txt").write_text("rich==14.2.0\n", "utf-8")
    project.cli("schema")
    commit_all(project, "Our work")


def commit_all(project: Workspace, message: str) -> None:
    git(project.path, "add", "--all")
    git(project.path, "commit", "--quiet", "--no-verify", "--message", message)


def begin(project: Workspace) -> None:
    """The first commit, of what was generated."""
    git(project.path, "init", "--quiet", "--initial-branch", "main")
    git(project.path, "config", "user.name", "Ada")
    git(project.path, "config", "user.email", "ada@example.org")
    (project.path / ".git/info/exclude").write_text(".venv\n", "utf-8")
    commit_all(project, "Begin")


def read(folder: Path) -> dict[str, bytes]:
    """Every file that git would keep, by its path."""
    names = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return {name: (folder / name).read_bytes() for name in names if name and (folder / name).is_file()}
