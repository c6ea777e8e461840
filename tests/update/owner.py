"""What the owner of a project does to it in its first months."""

from collections.abc import Callable
from pathlib import Path

import copier

from history import append, commit, git, replace
from support import Project, shared_project
from workspace import Workspace

Edited = Callable[..., Workspace]
ANSWERS = {"project_name": "Wing spans", "description": "Counts wings.", "license": "Apache-2.0"}

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
    replace(package / "data.py", "    images = (", "    # we looked at all of them\n    images = (")
    replace(package / "task.py", '        return {"accuracy": ', '        return {"all": 1.0, "accuracy": ')
    (package / "model").mkdir()
    (package / "model.py").rename(package / "model" / "__init__.py")
    replace(package / "model/__init__.py", "from .", "from ..")
    replace(package / "model/__init__.py", "ReLU()", "SiLU()" if project.answers["framework"] == "pytorch" else "ELU()")
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
    replace(package / "train.py", "    metrics = compute", "    # ours\n    metrics = compute")
    append(root / "app/main.py", "# ours\n")
    for name in ("notebooks/quickstart.ipynb", "CODEOWNERS"):
        (root / name).unlink(missing_ok=True)
    (root / "README.md").write_text("# Our project\n\nIt is ours.\n", "utf-8")
    (root / "constraints.local.txt").write_text("rich==14.2.0\n", "utf-8")
    project.cli("schema")
    commit(project.path, "Our work")


def generate(template: Path, version: str, dest: Path, **answers: object) -> Workspace:
    """A committed project of a version of the template."""
    copier.run_copy(str(template), dest, ANSWERS | answers, vcs_ref=version, defaults=True, quiet=True)
    project = Workspace(dest)
    git(dest, "init", "--quiet", "--initial-branch", "main")
    git(dest, "config", "user.name", "Ada")
    git(dest, "config", "user.email", "ada@example.org")
    (dest / ".git/info/exclude").write_text(".venv\n", "utf-8")
    use_shared_environment(project)
    commit(project.path, "Begin")
    return project


def use_shared_environment(project: Project) -> None:
    (project.path / ".venv").symlink_to(shared_project(project.answers["framework"]).path / ".venv")


def update(project: Project, version: str, **answers: object) -> None:
    copier.run_update(project.path, dict(answers), vcs_ref=version, defaults=True, overwrite=True, quiet=True)


def render_anew(project: Project, template: Path, version: str, dest: Path) -> dict[str, bytes]:
    """Every file of a fresh project with the same answers, by its path."""
    data = {name: value for name, value in project.answers.items() if not name.startswith("_")}
    copier.run_copy(str(template), dest, data, vcs_ref=version, defaults=True, quiet=True)
    return {path.relative_to(dest).as_posix(): path.read_bytes() for path in dest.rglob("*") if path.is_file()}


def adapt_to_major(model: Path) -> None:
    """What the changelog of the major version tells an owner to do."""
    replace(model, "facts: DataFacts) -> Model:", "facts: DataFacts, seed: int) -> Model:")


def run_own_tests(project: Workspace) -> None:
    project.cli("schema")  # as `make update` does
    done = project.run(project.python, "-m", "pytest", "-q", timeout=900)
    assert " passed" in done.stdout, done.stdout


def read(folder: Path) -> dict[str, bytes]:
    """Every file that git would keep, by its path."""
    names = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return {name: (folder / name).read_bytes() for name in names if name and (folder / name).is_file()}
