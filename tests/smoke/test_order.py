"""Order and augmentation are functions of the seed, the epoch and the example, and of nothing else."""

import json

import pytest

from workspace import FIRST, Workspace, workspace

EPOCHS = 2
Reads = list[tuple[int, int]]


def record_reads(project: Workspace, batch_size: int = 32, seed: int = 0) -> Reads:
    """The index and the augmentation seed of every example in two epochs, in the order of reading."""
    done = project.script("record_reads.py", project.package, str(batch_size), str(seed))
    batches = json.loads(done.stdout.splitlines()[-1])
    return [pair for indices, seeds in batches for pair in zip(indices, seeds, strict=True)]


def order_problems(reads: Reads) -> list[str]:
    """What is wrong with the reads of two epochs."""
    problems = []
    size = len(reads) // EPOCHS
    first, second = reads[:size], reads[size:]
    for name, epoch in (("first", first), ("second", second)):
        if len({index for index, _ in epoch}) != size:
            problems.append(f"the {name} epoch repeats examples")
    if [index for index, _ in first] == sorted(index for index, _ in first):
        problems.append("the order is not shuffled")
    if [index for index, _ in first] == [index for index, _ in second]:
        problems.append("both epochs have the same order")
    if len({seed for _, seed in first}) < size:
        problems.append("examples share a seed")
    before = dict(first)
    if any(before.get(index) == seed for index, seed in second):
        problems.append("examples are augmented alike in both epochs")
    return problems


@pytest.fixture(scope="module", params=FIRST)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("order") / "project", request.param)


def test_each_epoch_has_its_own_order_and_augmentation(project: Workspace) -> None:
    reads = record_reads(project)
    assert len(reads) > 2000
    assert not order_problems(reads)
    larger = record_reads(project, batch_size=64)
    common = 1000
    assert larger[:common] == reads[:common], "the batch size changes which examples come when"
    other = record_reads(project, seed=1)
    assert other[:common] != reads[:common]
    assert not {seed for _, seed in other} & {seed for _, seed in reads}
