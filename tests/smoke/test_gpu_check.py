"""`make gpu-check`: what can be seen of it without a GPU, and its checks with the CPU in the GPU's place."""

import pytest

from workspace import EXHAUSTIVE, Workspace, workspace

SLOW = "" if EXHAUSTIVE else " and not compiled"  # a minute of a C++ compiler


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("gpu") / "project", launchers=[])


def replace(project: Workspace, name: str, old: str, new: str) -> None:
    text = (project.path / name).read_text("utf-8")
    assert text.count(old) == 1, f"{name} holds {old!r} {text.count(old)} times"
    (project.path / name).write_text(text.replace(old, new), "utf-8")


def test_without_a_gpu_it_is_one_line(project: Workspace) -> None:
    done = project.make("gpu-check", check=False)
    assert done.returncode == 2
    first, *of_make = done.stderr.splitlines()
    assert first == "error: PyTorch sees no GPU here; make hardware says why"
    assert not done.stdout and len(of_make) == 1 and of_make[0].startswith("make: ")


def test_its_checks_are_skipped_without_a_gpu_and_no_part_of_the_tests(project: Workspace) -> None:
    done = project.run(project.python, "-m", "pytest", "-q", "tests/gpu_check.py")
    assert "PyTorch sees no GPU here" in done.stdout
    assert " passed" not in done.stdout and " failed" not in done.stdout
    done = project.run(project.python, "-m", "pytest", "-q", "--collect-only")
    assert "test_training.py" in done.stdout and "gpu_check.py" not in done.stdout


def test_its_checks_hold_on_the_cpu(project: Workspace) -> None:
    """All but the choice of precision, which asks the GPU: gloo in NCCL's place, and fp16 allowed."""
    replace(project, "tests/gpu_check.py", '"cuda", "nccl"', '"cpu", "gloo"')
    replace(project, "src/my_model/distributed.py", 'wanted == "fp16" and device.type == "cpu"', "False")
    chosen = f"not auto{SLOW}"
    done = project.run(project.python, "-m", "pytest", "-k", chosen, "tests/gpu_check.py")
    assert " passed" in done.stdout and " skipped" not in done.stdout
    assert done.stdout.count("peak memory 0 MiB") == (6 if EXHAUSTIVE else 5)
