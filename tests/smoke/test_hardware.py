"""`hardware` says what there is to train on, and why a GPU is not used; on GPUs that PyTorch is made to see."""

import json

import pytest

from workspace import Workspace, workspace


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("hardware") / "project")


def hardware(project: Workspace, gpus: list[list[float]], build: str = "", *files: str) -> list[str]:
    return project.script("fake_gpus.py", project.package, json.dumps(gpus), build, *files).stdout.splitlines()


def test_this_machine(project: Workspace) -> None:
    first, precision, *_ = project.cli("hardware").stdout.splitlines()
    assert first.startswith("PyTorch 2.")
    assert first.endswith("GiB")
    assert precision.startswith("precision fp32: ")


def test_free_and_busy_gpus(project: Workspace) -> None:
    first, precision, *gpus = hardware(project, [[79, 80, 9, 0], [10, 80, 9, 0], [80, 80, 9, 0]], "sm_80 sm_90")
    assert " on cuda:0, " in first
    assert precision.startswith("precision bf16: compute capability 9.0")
    assert gpus == [
        "cuda:0 Fake GPU, 79.0 of 80.0 GiB free, free",
        "cuda:1 Fake GPU, 10.0 of 80.0 GiB free, in use",
        "cuda:2 Fake GPU, 80.0 of 80.0 GiB free, free",
        "free GPUs: 0, 2",
        "  train on these alone: CUDA_VISIBLE_DEVICES=0,2",
    ]


@pytest.mark.parametrize(
    ("capability", "build", "fits"),
    [
        ([8, 6], "sm_80 sm_90", True),
        ([12, 0], "sm_80 sm_90", False),
        ([12, 0], "sm_80 compute_90", True),
        ([7, 0], "sm_75 sm_80", False),
        ([9, 0], "sm_90a", True),
        ([9, 4], "gfx942", True),
    ],
)
def test_a_build_without_kernels_for_the_gpu(
    project: Workspace, capability: list[float], build: str, fits: bool
) -> None:
    lines = hardware(project, [[80, 80, *capability]], build)
    assert any("this build has no kernels for it" in line for line in lines) != fits
    assert any("TORCH_BACKEND=auto" in line for line in lines) != fits


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("/dev/nvidiactl", "an NVIDIA driver is here, but this is PyTorch's CPU build: make setup TORCH_BACKEND=auto"),
        ("/proc/driver/nvidia/version", "the host has an NVIDIA GPU, but this container does not"),
    ],
)
def test_a_gpu_that_is_not_used(project: Workspace, file: str, hint: str) -> None:
    lines = hardware(project, [], "", file)
    assert lines[-1].startswith(hint)
    assert len(lines) == 3
