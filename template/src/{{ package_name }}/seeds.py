"""Random numbers as functions of what they are for, so that nothing about them needs to be stored."""

import numpy as np
from numpy.typing import NDArray

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1


def mix(*values: int) -> int:
    """Hash integers into one seed in [0, 2**64)."""
    state = 0
    for value in values:
        state = (state ^ value) + _GOLDEN & _MASK
        state = (state ^ state >> 30) * _FIRST & _MASK
        state = (state ^ state >> 27) * _SECOND & _MASK
        state ^= state >> 31
    return state


def example_seeds(seed: int, epoch: int, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The augmentation seeds of a batch: uint64[B], a function of (seed, epoch, index) alone."""
    return _splitmix(indices.astype(np.uint64) ^ np.uint64(mix(seed, epoch)))


def uniforms(seeds: NDArray[np.uint64], count: int) -> NDArray[np.float64]:
    """`count` numbers in [0, 1) for each of B seeds: [B, count]."""
    states = seeds[:, None] + np.arange(count, dtype=np.uint64) * np.uint64(_GOLDEN)
    return (_splitmix(states) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _splitmix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea and Flood 2014), as in `mix`, for arrays."""
    state = state + np.uint64(_GOLDEN)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    return state ^ (state >> np.uint64(31))
