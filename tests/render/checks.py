"""What must hold in every generated project. Each check returns one line for each problem it finds."""

import ast
import configparser
import io
import json
import re
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from support import Project

YOURS = ("README.md", "CODEOWNERS", "configs/", "app/", "notebooks/", "tests/test_model.py")
YOURS_IN_PACKAGE = ("settings.py", "data.py", "model.py", "task.py")
BINARY = (".png",)


def texts(project: Project) -> Iterator[tuple[str, str]]:
    for name in project.files():
        if not name.endswith(BINARY):
            yield name, (project.path / name).read_bytes().decode("utf-8")


def is_yours(project: Project, name: str) -> bool:
    return name.startswith(YOURS) or name in {f"src/{project.package}/{file}" for file in YOURS_IN_PACKAGE}


def everything_parses(project: Project) -> Iterator[str]:
    parsers: dict[str, Callable[[str], object]] = {
        ".toml": tomllib.loads,
        ".yml": yaml.safe_load,
        ".yaml": yaml.safe_load,
        ".json": json.loads,
        ".ipynb": json.loads,
        ".py": ast.parse,
        ".ini": configparser.ConfigParser().read_string,
    }
    for name, text in texts(project):
        try:
            parsers.get(Path(name).suffix, str)(text)
        except (ValueError, SyntaxError, yaml.YAMLError, configparser.Error) as error:
            yield f"{name}: {error}"


def text_is_clean(project: Project) -> Iterator[str]:
    forbidden = re.compile(r"\{%|(?<![$f{])\{\{ ?[\w.]+ ?(\||\}\})|TODO|FIXME|<{7}|>{7}")
    for name, text in texts(project):
        if not text.strip():
            yield f"{name}: is empty"
        elif not text.endswith("\n") or text.endswith("\n\n"):
            yield f"{name}: must end with one line break"
        for number, line in enumerate(text.split("\n"), 1):
            if found := forbidden.search(line):
                yield f"{name}:{number}: holds {found[0]!r}"
            if line != line.rstrip():
                yield f"{name}:{number}: ends with white space"
    for name in project.files():
        executable = bool((project.path / name).stat().st_mode & 0o100)
        if executable != (project.path / name).read_bytes().startswith(b"#!"):
            yield f"{name}: must be executable if, and only if, it starts with #!"


def choices_that_are_off_are_not_mentioned(project: Project) -> Iterator[str]:
    answers = project.answers
    words = {
        "tensorboard": "tensorboard" not in answers["trackers"],
        "mlflow": "mlflow" not in answers["trackers"],
        "compose|mlflow.server": "mlflow" not in answers["trackers"] or answers["preset"] == "solo",
        "wandb": "wandb" not in answers["trackers"],
        r"comet\b|comet_ml": "comet" not in answers["trackers"],
        r"ddp\.sh|multiworker\.sh": not has_launcher(project, "ddp"),
        r"multiworker\.sh": answers["framework"] != "tensorflow",
        "horovod": not has_launcher(project, "horovod"),
        "slurm|sbatch": not has_launcher(project, "slurm"),
        r"\bray\b": not has_launcher(project, "ray") and "ray" not in answers["search"],
        "optuna": not {"optuna", "ray"} & {*answers["search"]},
        "hyperopt": "hyperopt" not in answers["search"],
        "launch/": not any(has_launcher(project, name) for name in ("ddp", "horovod", "slurm")),
        "gpu.check": not has_gpu_check(project),
        "(?<!without_py)torch|onnxscript|pt2": answers["framework"] != "pytorch",
        "(?<!without_)tensorflow|keras|tf2onnx|tf_|savedmodel": answers["framework"] != "tensorflow",
        r"github(?!\.com)": answers["ci"] != "github",
        "gitlab": answers["ci"] != "gitlab",
        "smoke": answers["preset"] == "solo",
        "audit|sbom|codeowners|dependabot": answers["preset"] != "large-org",
        "cu1": answers["accelerator"] == "cpu",
        "streamlit|demo|(?<!home/)app/": not answers["demo"],
        "notebook|jupyter|ipynb|nbstripout": not answers["notebooks"],
        "devcontainer|remote-containers": not answers["devcontainer"],
    }
    off = re.compile("|".join(word for word, is_off in words.items() if is_off), re.IGNORECASE)
    # constraints.txt is one tested set for all choices, the answers name them, and the guide tells how to switch.
    skip = {"constraints.txt", ".copier-answers.yml", "LICENSE"}
    for name, text in texts(project):
        if name in skip or is_yours(project, name):
            continue
        if off.pattern and (found := off.search(name) or off.search(text)):
            yield f"{name}: mentions {found[0]!r}, which is off"


def has_launcher(project: Project, name: str) -> bool:
    """Whether the project has it, chosen or as a part of another."""
    launchers = {*project.answers["launchers"]}
    needs_ddp = {"ray"} | ({"slurm"} if project.answers["framework"] == "tensorflow" else set())
    return name in launchers or (name == "ddp" and bool(needs_ddp & launchers))


def has_gpu_check(project: Project) -> bool:
    return (project.answers["framework"], project.answers["accelerator"]) == ("pytorch", "cuda")


# What a distribution is imported as, where that is not its name.
IMPORTED_AS = {"pillow": "PIL", "pyyaml": "yaml", "scikit-learn": "sklearn", "comet-ml": "comet_ml"}
IMPORTED_AS |= {
    "tensorflow-cpu": "tensorflow",
    "onnxscript": "torch",
    "types-PyYAML": "yaml",
    "types-tqdm": "tqdm",
    "ipykernel": "nbclient",
}


def imports(project: Project, folder: str) -> set[str]:
    """Every absolute import below a folder, with all its prefixes: torch, torch.nn, ...

    And the distributions whose files it reads, without an import.
    """
    found = set()
    for path in (project.path / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "distribution":
                name = str(ast.literal_eval(node.args[0]))
                found.add(IMPORTED_AS.get(name, name))
    return {name[: end.start()] for name in found for end in re.finditer(r"\.|$", name)}


def dependencies_are_used_and_declared(project: Project) -> Iterator[str]:
    metadata = tomllib.loads((project.path / "pyproject.toml").read_text("utf-8"))["project"]
    code = imports(project, "src")
    everywhere = code | imports(project, "tests") | imports(project, "app")
    tools = "".join(text for name, text in texts(project) if name in ("Makefile", ".pre-commit-config.yaml"))
    plain = re.compile(r"[\[;].*")  # an extra, a marker
    extras = {
        extra: [plain.sub("", name).strip() for name in names]
        for extra, names in metadata["optional-dependencies"].items()
    }
    extras["train"] += extras.get("cpu", []) + extras.get("cuda", [])
    declared = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in metadata["dependencies"] + extras["train"]}
    for name in metadata["dependencies"] + extras["train"]:
        if (
            name != "onnx" and IMPORTED_AS.get(name, name.replace("-", "_")) not in code
        ):  # PyTorch's exporter needs onnx
            yield f"pyproject.toml: {name} is not imported in src"
    for name in extras.get("demo", []):
        if IMPORTED_AS.get(name, name) not in imports(project, "app"):
            yield f"pyproject.toml: {name} is not imported in app"
    for name in extras["dev"]:
        module = IMPORTED_AS.get(name, name.replace("-", "_"))
        if module not in everywhere and module not in tools:
            yield f"pyproject.toml: {name} is not used"
    pinned = set(re.findall(r"^[\w.-]+", (project.path / "constraints.txt").read_text("utf-8"), re.MULTILINE))
    for name in sum(extras.values(), metadata["dependencies"]):
        if name.lower() not in pinned:
            yield f"constraints.txt: {name} is not pinned"
    # A part of pydantic, and what launch/install_horovod.sh builds.
    known = sys.stdlib_module_names | declared | {project.package, "pydantic_core", "horovod"}
    for name in code:
        if "." not in name and name not in known:
            yield f"src imports {name}, which pyproject.toml does not declare"


# Named in the pages, and not there before a command or the owner makes it.
MADE_LATER = re.compile(
    r"\.venv|runs/|checkpoints/$|constraints\.local\.txt|(config\.yaml|environment\.json|status\.json|metrics\.jsonl)$"
    r"|(best\.yaml|history\.png|importance\.png)$"
    r"|presets/|pictures|^tensorboard/$|^tracking/\w+/$|model\.(onnx|json)$|^[ab]\.png$|(picture|curves)\.png$|sbom\.json$"
)
PATH = re.compile(r"[\w.][\w./-]*(?:/|\.(?:py|sh|sbatch|md|toml|txt|ya?ml|ini|jsonl?|png))(?![\w/])")


def missing_paths(project: Project, files: list[str], text: str) -> Iterator[str]:
    names = {Path(name).name for name in files}
    for path in PATH.findall(text):
        there = any((project.path / folder / path).exists() for folder in (".", f"src/{project.package}"))
        if not (there or path in names or MADE_LATER.search(path)):
            yield path


def make_targets(project: Project) -> set[str]:
    return set(re.findall(r"^([\w-]+):", (project.path / "Makefile").read_text("utf-8"), re.MULTILINE))


def pages_name_what_exists(project: Project) -> Iterator[str]:
    files, targets = project.files(), make_targets(project)
    cli = (project.path / "src" / project.package / "cli.py").read_text("utf-8")
    for page in (name for name in files if name.endswith(".md")):
        text = (project.path / page).read_text("utf-8")
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
            if "://" not in link and not (project.path / page).parent.joinpath(link).exists():
                yield f"{page}: link to {link}, which does not exist"
        code = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for snippet in (re.sub(r"\s#.*", "", snippet) for snippet in code):
            for target in re.findall(r"\bmake ((?:[a-z][\w-]*\b(?!=) ?)+)", snippet):
                yield from (f"{page}: no make target {word}" for word in target.split() if word not in targets)
            for command in re.findall(rf"python -m {project.package} ([a-z]\w*)", snippet):
                if f'"{command}"' not in cli:
                    yield f"{page}: no command {command}"
            yield from (f"{page}: no file {path}" for path in missing_paths(project, files, snippet))


# The variables that VS Code and the dev container tool fill in.
VARIABLES = {
    ".vscode": r"workspaceFolder|file|command:python\.interpreterPath|input:\w+",
    ".devcontainer": r"localWorkspaceFolder|devcontainerId",
}


def editor_files_name_what_exists(project: Project) -> Iterator[str]:
    files = project.files()
    for name in files:
        folder, text = name.partition("/")[0], (project.path / name).read_text("utf-8")
        if folder in VARIABLES:
            for variable in re.findall(r"\$\{([^}]*)\}", text):
                if not re.fullmatch(VARIABLES[folder], variable):
                    yield f"{name}: no variable {variable}"
        if folder == ".vscode":
            yield from (f"{name}: no file {path}" for path in missing_paths(project, files, text))
    yield from unknown_in_tasks(project)
    yield from unknown_in_settings(project)
    if project.answers["devcontainer"]:
        yield from unknown_in_devcontainer(project)


def editor_file(project: Project, name: str) -> Any:
    return json.loads((project.path / name).read_text("utf-8"))


def unknown_in_tasks(project: Project) -> Iterator[str]:
    """Tasks, inputs, commands and modules that tasks and launch configurations name."""
    content, launch_file = editor_file(project, ".vscode/tasks.json"), editor_file(project, ".vscode/launch.json")
    launches, compounds = launch_file["configurations"], launch_file.get("compounds", [])
    commands: list[list[str]] = []
    labels: list[str] = []
    for task in content["tasks"]:
        commands.append([task.get("command", "uv"), *task.get("args", [])])
        labels += [task["dependsOn"]] if isinstance(task.get("dependsOn"), str) else task.get("dependsOn", [])
    for launch in launches:
        start = ["-m", launch["module"]] if "module" in launch else [launch["program"]]
        commands.append(["${command:python.interpreterPath}", *start, *launch.get("args", [])])
        labels += [launch["preLaunchTask"]] if "preLaunchTask" in launch else []
    tasks, names = [task["label"] for task in content["tasks"]], [each["name"] for each in (*launches, *compounds)]
    started = (name for compound in compounds for name in compound["configurations"])
    yield from (f".vscode: no configuration {name}" for name in started if name not in names)
    yield from (f".vscode: no task {label}" for label in labels if label not in tasks)
    yield from (
        f".vscode: two of the name {name}" for every in (tasks, names) for name in every if every.count(name) > 1
    )
    inputs = {each["id"] for each in content.get("inputs", [])}
    for command in commands:
        yield from unknown_in_command(project, command)
        asked = re.findall(r"\$\{input:(\w+)\}", " ".join(command))
        yield from (f".vscode: no input {name}" for name in asked if name not in inputs)


def unknown_in_command(project: Project, command: list[str]) -> Iterator[str]:
    metadata = tomllib.loads((project.path / "pyproject.toml").read_text("utf-8"))["project"]
    extras = metadata["optional-dependencies"]
    installed = {name.replace("-", "_") for name in sum(extras.values(), metadata["dependencies"])}
    cli = (project.path / "src" / project.package / "cli.py").read_text("utf-8")
    if command[0] not in ("uv", "make", "${command:python.interpreterPath}"):
        yield f".vscode: no program {command[0]}"
    if command[0] == "make":
        yield from (f".vscode: no make target {word}" for word in command[1:] if word not in make_targets(project))
    for flag, module, following in zip(command, command[1:], [*command[2:], ""], strict=False):
        if flag == "-m" and module == project.package:
            if f'"{following}"' not in cli:
                yield f".vscode: no command {following}"
        elif flag == "-m" and module.partition(".")[0] not in installed:
            yield f".vscode: no module {module}"
    for extra in re.findall(r"\w+", " ".join(re.findall(r"^\.\[(.*)\]$", "\n".join(command), re.MULTILINE))):
        if extra not in extras:
            yield f".vscode: no extra {extra}"


def unknown_in_settings(project: Project) -> Iterator[str]:
    settings = editor_file(project, ".vscode/settings.json")
    for schema, pattern in settings["yaml.schemas"].items():
        if not (project.path / schema).is_file() or not list(project.path.glob(pattern)):
            yield f"settings.json: {schema} for {pattern}"
    for folder in settings["python.testing.pytestArgs"]:
        if not (project.path / folder).exists():
            yield f"settings.json: no folder {folder}"
    formatter = settings["[python]"]["editor.defaultFormatter"]
    if formatter not in editor_file(project, ".vscode/extensions.json")["recommendations"]:
        yield f"settings.json: {formatter} is not recommended"


def unknown_in_devcontainer(project: Project) -> Iterator[str]:
    container = editor_file(project, ".devcontainer/devcontainer.json")
    folder, build = project.path / ".devcontainer", container["build"]
    dockerfile = folder / build["dockerfile"]
    if not dockerfile.is_file() or f" AS {build['target']}\n" not in dockerfile.read_text("utf-8"):
        yield f"devcontainer.json: no stage {build['target']} in {build['dockerfile']}"
    if not (folder / build["context"]).samefile(project.path):
        yield f"devcontainer.json: context {build['context']}"
    for target in re.findall(r"make (\S+)", container["postCreateCommand"]):
        if target not in make_targets(project):
            yield f"devcontainer.json: no make target {target}"
    recommended = {*editor_file(project, ".vscode/extensions.json")["recommendations"]}
    if recommended != {*container["customizations"]["vscode"]["extensions"], "ms-vscode-remote.remote-containers"}:
        yield "devcontainer.json: other extensions than in extensions.json"


YOU_ARE_HERE = ("README.md", "docs/guide.md")


def map_is_complete(project: Project) -> Iterator[str]:
    """The guide's map names every file; those of some folders by the folder."""
    guide = (project.path / "docs" / "guide.md").read_text("utf-8").partition("## Map")[2]
    for name in project.files():
        folder = f"`{name.partition('/')[0]}/"
        inside = folder in guide and folder in ("`configs/", "`tests/", "`.vscode/", "`app/", "`notebooks/")
        if not inside and f"`{name.removeprefix(f'src/{project.package}/')}`" not in guide and name not in YOU_ARE_HERE:
            yield f"docs/guide.md: the map does not name {name}"


# Files that a tool looks for under their own names, or that go with a choice (docs/decisions/0014, 0051).
BESIDE = (".vscode/", ".devcontainer/", ".streamlit/", "app/", "configs/search", "launch/", "notebooks/")


def solo_is_small(project: Project) -> Iterator[str]:
    if project.answers["preset"] != "solo":
        return
    names = [name for name in project.files() if not name.startswith("tests/")]
    beside = sum(name.startswith(BESIDE) or SEARCH in name for name in names)
    for what, count, bound in (
        ("files", len(names) - beside, 61),
        ("files for editor, demo, launchers, notebook and search", beside, 31),
        (
            "lines of code below src",
            count_lines(project) - count_lines(project, f"src/{project.package}{SEARCH}"),
            2930,
        ),
        ("lines of code of search", count_lines(project, f"src/{project.package}{SEARCH}"), 570),
        ("lines of code below app", count_lines(project, "app"), 400),
    ):
        if count > bound:
            yield f"{count} {what}, {bound} at most"


SEARCH = "/search/"
# What a choice adds to that of solo.
CHOSEN = re.compile(r"tracking/(mlflow|wandb|comet)\.py$|engines/(hyperopt|ray|wandb)\.py$")


def count_lines(project: Project, folder: str = "src") -> int:
    files = (path for path in (project.path / folder).rglob("*.py") if not CHOSEN.search(path.as_posix()))
    return sum(count_code(path.read_text("utf-8")) for path in files)


def count_code(text: str) -> int:
    """Lines of code, without blank lines, comments and docstrings (docs/decisions/0012)."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string.strip() and token.type != tokenize.COMMENT:
            code |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code)


def functions_fit_on_a_screen(project: Project) -> Iterator[str]:
    for path in sorted((project.path / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 60:
                yield f"{path.name}:{node.lineno}: {node.name} does not fit on a screen"


Check = Callable[[Project], Iterator[str]]
CHECKS: list[Check] = [
    everything_parses,
    text_is_clean,
    choices_that_are_off_are_not_mentioned,
    dependencies_are_used_and_declared,
    pages_name_what_exists,
    editor_files_name_what_exists,
    map_is_complete,
    solo_is_small,
    functions_fit_on_a_screen,
]
