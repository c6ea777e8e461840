"""Every combination of choices gives a project that holds what it should, and nothing else."""

import ast
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import support
from checks import CHECKS, Check, has_launcher
from support import FRAMEWORKS, PRESETS, ROOT, Project
from workspace import EXHAUSTIVE

BIN = Path(sys.executable).parent

COMMON = """
.copier-answers.yml .dockerignore .gitattributes .gitignore .pre-commit-config.yaml
.vscode/extensions.json .vscode/launch.json .vscode/settings.json .vscode/tasks.json configs/experiment.schema.json
Dockerfile LICENSE Makefile README.md constraints.txt docs/guide.md mypy.ini pyproject.toml pytest.ini ruff.toml
"""
PACKAGE = """
__init__.py __main__.py backend.py check.py checkpoint.py cli.py config.py contract.py data.py distributed.py errors.py
files.py evaluate.py export.py framework.py hardware.py images.py loading.py model.py predict.py predictor.py
processes.py progress.py run.py runs.py schedule.py schema.py section.py seeds.py settings.py signature.py sync.py
task.py tracking/__init__.py train.py
"""
SEARCH = "__init__.py report.py space.py trial.py workers.py"
HOROVOD = "horovod.sh horovodrun.py install_horovod.sh"
APP = "canvas.py inputs.py main.py mistakes.py outputs.py predict.py runs.py"
CONFIGS = "baseline.yaml debug-one-step.yaml debug-overfit.yaml debug-profile.yaml image-folder.yaml"


def expected_files(project: Project) -> Iterator[str]:
    answers = project.answers
    yield from COMMON.split()
    yield from (f"src/{project.package}/{name}" for name in PACKAGE.split())
    yield from (f"configs/experiment/{name}" for name in CONFIGS.split())
    yield from (f"src/{project.package}/tracking/{name}.py" for name in answers["trackers"])
    if engines := {*answers["search"]} | ({"optuna"} if "ray" in answers["search"] else set()):
        yield "configs/search.schema.json"
        yield from (f"configs/search/{name}.yaml" for name in ("baseline", "grid"))
        parts = SEARCH if engines != {"wandb"} else SEARCH.replace("workers.py", "")
        yield from (f"src/{project.package}/search/{name}" for name in parts.split())
        yield from (f"src/{project.package}/search/engines/{name}.py" for name in ("__init__", *engines))
    if has_launcher(project, "ddp"):
        yield "launch/ddp.sh" if answers["framework"] == "pytorch" else "launch/multiworker.sh"
    if has_launcher(project, "horovod"):
        yield from (f"launch/{name}" for name in HOROVOD.split())
        yield f"src/{project.package}/strategies/horovod.py"
    if has_launcher(project, "slurm"):
        yield "launch/slurm.sbatch"
    if has_launcher(project, "ray"):
        yield from RAY
    if answers["demo"]:
        yield from (f"app/{name}" for name in APP.split())
        yield ".streamlit/config.toml"
    if answers["notebooks"]:
        yield "notebooks/quickstart.ipynb"
    yield f"src/{project.package}/mistakes.py"
    if answers["devcontainer"]:
        yield ".devcontainer/devcontainer.json"
    if answers["ci"] == "github":
        yield ".github/workflows/ci.yml"
        yield ".github/workflows/update.yml"
    if answers["ci"] == "gitlab":
        yield ".gitlab-ci.yml"
    if answers["preset"] != "solo" and "mlflow" in answers["trackers"]:
        yield "compose.yaml"
    if answers["preset"] == "large-org":
        yield "CODEOWNERS"
        if answers["ci"] == "github":
            yield ".github/dependabot.yml"


def test_expected_files_and_only_those(projects: Mapping[str, Project]) -> None:
    for project in projects.values():
        found = [name for name in project.files() if not name.startswith("tests/")]
        assert found == sorted(expected_files(project))
        folders = [path for path in project.path.rglob("*") if path.is_dir()]
        assert not [folder for folder in folders if not any(folder.iterdir())], "empty folder"


TWINS = "backend checkpoint distributed export framework hardware model task train"
# Where the two frameworks may differ: their twins, how each is installed, what is said of it, launchers, GPU checks.
MAY_DIFFER = {f"src/wing_spans/{name}.py" for name in TWINS.split()}
MAY_DIFFER |= {".copier-answers.yml", ".github/workflows/ci.yml", ".vscode/launch.json", ".vscode/tasks.json"}
MAY_DIFFER |= {"configs/experiment.schema.json", "Dockerfile", "Makefile", "docs/guide.md", "mypy.ini"}
MAY_DIFFER |= {"pyproject.toml", "src/wing_spans/strategies/horovod.py"}
MAY_DIFFER |= {"launch/horovod.sh", "launch/install_horovod.sh"}
RAY = {f"launch/ray/{name}.py" for name in ("command", "gpu_queue", "train", "workers")}
MAY_DIFFER |= {"tests/test_distributed.py"}
LAUNCHERS_DIFFER = {"src/wing_spans/strategies/horovod.py", "launch/slurm.sbatch", "launch/install_horovod.sh"}
LAUNCHERS_DIFFER |= {"launch/ray/workers.py"}
ONLY_WITH_PYTORCH = {"launch/ddp.sh", "tests/gpu_check.py"}
ONLY_WITH_TENSORFLOW = {"launch/multiworker.sh"}


@pytest.mark.parametrize("preset", PRESETS)
def test_the_frameworks_differ_in_twins_alone(projects: Mapping[str, Project], preset: str) -> None:
    one, other = projects[preset], projects[f"{preset}-tensorflow"]
    assert set(one.files()) - set(other.files()) == ONLY_WITH_PYTORCH
    assert set(other.files()) - set(one.files()) == ONLY_WITH_TENSORFLOW
    common = set(one.files()) & set(other.files())
    different = {name for name in common if (one.path / name).read_bytes() != (other.path / name).read_bytes()}
    assert MAY_DIFFER <= different <= MAY_DIFFER | LAUNCHERS_DIFFER


def outline(file: Path) -> list[str]:
    """The names of a module's public classes and functions, and of their methods, in order."""
    names = []
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            names.append(node.name)
            inside = node.body if isinstance(node, ast.ClassDef) else []
            names += [f"{node.name}.{part.name}" for part in inside if isinstance(part, ast.FunctionDef)]
    return names


# What shared files, owners and tests use, in modules whose insides differ more.
SHARED_NAMES = {
    "backend": {"to_tensors", "to_numpy", "inference", "place", "without_gradient", "trainable_weights", "run_model"},
    "checkpoint": {"save", "load", "restore", "restore_weights", "load_model"},
    "distributed": {"Runtime", "Runtime.seed", "Runtime.build_eval_step", "Runtime.describe", "start"}
    | {"is_main_process", "choose_device"},
    "export": {"Prediction", "main", "describe", "write_onnx", "compare"},
    "hardware": {"main", "memory", "why", "has_kernels", "unused_gpu"},
    "model": {"build_model"},
    "task": {"Task", "Task.compute_loss", "Task.compute_sums", "Task.compute_metrics", "Task.build_report"}
    | {"Task.signature", "Task.predict", "draw_confusion"},
    "train": {"Loop", "Loop.save", "main", "train", "train_all_epochs", "build_loop", "build_optimizer"}
    | {"train_one_epoch", "read_steps", "train_step", "finish_epoch", "profiler"},
}


@pytest.mark.parametrize("module", SHARED_NAMES)
def test_twins_have_the_same_names_in_the_same_order(projects: Mapping[str, Project], module: str) -> None:
    names = SHARED_NAMES[module]
    one, other = (
        [name for name in outline(projects[label].path / "src/wing_spans" / f"{module}.py") if name in names]
        for label in ("solo", "solo-tensorflow")
    )
    assert set(one) == names
    assert one == other


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_nothing_is_wrong(projects: Mapping[str, Project], check: Check) -> None:
    where: dict[str, list[str]] = {}
    for name, project in projects.items():
        for problem in check(project):
            where.setdefault(problem, []).append(name)
    lines = [f"{problem}  [{len(names)} projects, such as {names[0]}]" for problem, names in where.items()]
    assert not lines, "\n".join(lines)


def run_tool(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def paths(projects: Mapping[str, Project], pattern: str) -> list[Path]:
    """Files that match in any project, each content once."""
    found = [path for project in projects.values() for path in sorted(project.path.glob(pattern))]
    distinct = {hashlib.sha256(path.read_bytes()).digest(): path for path in found}
    assert distinct, pattern
    return list(distinct.values())


SCHEMAS = ROOT / "tests" / "render" / "schemas"
EDITOR_FILES = [
    ".devcontainer/devcontainer.json",
    ".vscode/extensions.json",
    ".vscode/launch.json",
    ".vscode/settings.json",
    ".vscode/tasks.json",
]


def schema_check(file: str) -> list[str]:
    """Of only the keys that are used here, so that a misspelt one is seen."""
    return ["check-jsonschema", "--schemafile", str(SCHEMAS / f"{Path(file).stem}.schema.json")]


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        *((file, schema_check(file)) for file in EDITOR_FILES),
        (".github/workflows/*.yml", ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"]),
        (".github/dependabot.yml", ["check-jsonschema", "--builtin-schema", "vendor.dependabot"]),
        (".gitlab-ci.yml", ["check-jsonschema", "--builtin-schema", "vendor.gitlab-ci"]),
        ("compose.yaml", ["check-jsonschema", "--builtin-schema", "vendor.compose-spec"]),
        ("pyproject.toml", ["validate-pyproject"]),
        ("Dockerfile", ["hadolint"]),
        ("launch/*.s*", ["shellcheck"]),
        (".pre-commit-config.yaml", ["pre-commit", "validate-config"]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_tools_accept(projects: Mapping[str, Project], pattern: str, command: Sequence[str]) -> None:
    run_tool(BIN / command[0], *command[1:], *paths(projects, pattern), cwd=ROOT)


def test_ruff_finds_nothing(projects: Mapping[str, Project]) -> None:
    folders = [project.path for project in projects.values()]
    run_tool(BIN / "ruff", "check", "--no-cache", *folders, cwd=ROOT)
    run_tool(BIN / "ruff", "format", "--no-cache", "--check", *folders, cwd=ROOT)


def mypy_cache(shared_project: Project) -> dict[str, str]:
    return {"MYPY_CACHE_DIR": str(shared_project.path / ".mypy_cache")}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_types_hold(projects: Mapping[str, Project], framework: str, tmp_path: Path) -> None:
    """mypy --strict with every choice on, with all off, and in the exhaustive form for each different source."""
    every = support.render(tmp_path / "every", framework=framework, preset="large-org", **support.WIDE)
    none = support.render(tmp_path / "none", framework=framework, launchers=[], trackers=[], demo=False)
    more = [project for project in projects.values() if EXHAUSTIVE and project.answers["framework"] == framework]
    seen = set()
    for project in (every, none, *more):
        code = (name for name in project.files() if name.startswith(("src/", "app/", "launch/ray/")))
        source = b"".join((project.path / name).read_bytes() for name in code)
        if source not in seen:
            seen.add(source)
            shared_project = support.shared_project(framework)
            project.run(shared_project.python, "-m", "mypy", env=mypy_cache(shared_project))


@pytest.mark.parametrize("name", ["solo", "large-org-tensorflow"])
def test_hooks_pass(projects: Mapping[str, Project], name: str, tmp_path: Path) -> None:
    project = Project(shutil.copytree(projects[name].path, tmp_path / "project"))
    shared_project = support.shared_project(project.answers["framework"])
    (project.path / ".venv").symlink_to(shared_project.path / ".venv")
    project.run("git", "init", "--quiet")
    project.run("git", "add", "--all")
    project.run(".venv/bin/pre-commit", "run", "--all-files", env=mypy_cache(shared_project))
    (project.path / "notes.md").write_text("<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n")
    project.run("git", "add", "--all")
    failed = project.run(".venv/bin/pre-commit", "run", "--all-files", check=False, env=mypy_cache(shared_project))
    assert failed.returncode == 1
    assert "notes.md" in failed.stdout


def test_make_lists_every_target(projects: Mapping[str, Project]) -> None:
    for project in projects.values():
        makefile = (project.path / "Makefile").read_text("utf-8")
        targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))
        assert targets == {line.split()[0] for line in project.make().stdout.splitlines()}
        assert targets == {
            name for line in re.findall(r"^\.PHONY: (.*)", makefile, re.MULTILINE) for name in line.split()
        }


def test_this_repository_is_in_order() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    run_tool(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows, cwd=ROOT)
    run_tool(BIN / "shellcheck", ".ci/run", cwd=ROOT)
    for file in EDITOR_FILES:
        run_tool(BIN / schema_check(file)[0], *schema_check(file)[1:], file, cwd=ROOT)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text("utf-8")
        assert [link for link in re.findall(r"\]\(([^):#]+)\)", text) if not (page.parent / link).exists()] == [], page
        if page.parent == ROOT:
            assert set(re.findall(r"(?:`|^)make ([\w-]+)", text, re.MULTILINE)) <= targets, page
