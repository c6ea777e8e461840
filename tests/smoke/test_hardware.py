"""`hardware` says what there is to train on, and why a GPU is not used; on GPUs that the framework is made to see."""

import json

import pytest

from workspace import EXHAUSTIVE, FRAMEWORKS, Workspace, workspace

SCRIPTS = {"pytorch": "fake_gpus.py", "tensorflow": "fake_gpus_tensorflow.py"}
NAMES = {"pytorch": ("PyTorch 2.", "TORCH_BACKEND=auto"), "tensorflow": ("TensorFlow 2.", "TF_BUILD=cuda")}


@pytest.fixture(scope="module", params=FRAMEWORKS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("hardware") / "project", request.param)


def hardware(project: Workspace, gpus: list[list[float]], build: str = "", *files: str) -> list[str]:
    script = SCRIPTS[project.answers["framework"]]
    return project.script(script, project.package, json.dumps(gpus), build, *files).stdout.splitlines()


def test_this_machine(project: Workspace) -> None:
    done = project.cli("hardware")
    first, precision, *_ = done.stdout.splitlines()
    assert first.startswith(NAMES[project.answers["framework"]][0])
    assert not done.stderr, "the framework's own log"
    assert first.endswith("GiB")
    assert precision.startswith("precision fp32: ")


def test_free_and_busy_gpus(project: Workspace) -> None:
    first, precision, *gpus = hardware(project, [[79, 80, 9, 0], [10, 80, 9, 0], [80, 80, 9, 0]], "sm_80 sm_90")
    assert " on cuda" in first
    assert precision.startswith("precision bf16: compute capability 9.0")
    choice = "these alone: CUDA_VISIBLE_DEVICES=0,2"
    if project.answers["framework"] == "tensorflow":  # in one process, so far
        choice = "one of these: CUDA_VISIBLE_DEVICES=0"
    assert gpus == [
        "cuda:0 Fake GPU, 79.0 of 80.0 GiB free, free",
        "cuda:1 Fake GPU, 10.0 of 80.0 GiB free, in use",
        "cuda:2 Fake GPU, 80.0 of 80.0 GiB free, free",
        "free GPUs: 0, 2",
        f"  train on {choice}",
    ]


KERNELS = [
    ([12, 0], "sm_80 sm_90", False),
    ([12, 0], "sm_80 compute_90", True),
    ([8, 6], "sm_80 sm_90", True),
    ([7, 0], "sm_75 sm_80", False),
    ([9, 0], "sm_90a", True),
    ([9, 4], "gfx942", True),
]


@pytest.mark.parametrize(
    ("project", "capability", "build", "fits"),
    [
        (framework, *case)
        for framework in FRAMEWORKS
        for case in KERNELS[: None if EXHAUSTIVE or framework == "pytorch" else 2]
    ],
    indirect=["project"],
    scope="module",
)
def test_a_build_without_kernels_for_the_gpu(
    project: Workspace, capability: list[float], build: str, fits: bool
) -> None:
    lines = hardware(project, [[80, 80, *capability]], build)
    assert any("this build has no kernels for it" in line for line in lines) != fits
    if project.answers["framework"] == "pytorch":
        assert any("TORCH_BACKEND=auto" in line for line in lines) != fits


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("/dev/nvidiactl", "an NVIDIA driver is here, but this is FRAMEWORK's CPU build: make setup BUILD"),
        ("/proc/driver/nvidia/version", "the host has an NVIDIA GPU, but this container does not"),
    ],
)
def test_a_gpu_that_is_not_used(project: Workspace, file: str, hint: str) -> None:
    lines = hardware(project, [], "", file)
    name, build = NAMES[project.answers["framework"]]
    assert lines[-1].startswith(hint.replace("FRAMEWORK", name.split()[0]).replace("BUILD", build))
    assert len(lines) == 3
