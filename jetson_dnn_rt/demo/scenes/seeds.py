"""Single frames of random drives, with the seeds for training and for testing kept apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from jetson_dnn_rt.demo.scenes.generator import Scene, SceneGenerator

__all__ = ["held_out_seed", "random_scene", "scene_stream", "training_seed"]

_HELD_OUT_BASE = 1 << 40
_LONGEST_NS = 120_000_000_000


def training_seed(index: int) -> int:
    """Return the seed of training scene `index`; never one of `held_out_seed`."""
    return _check(index)


def held_out_seed(index: int) -> int:
    """Return the seed of held-out scene `index`; never one of `training_seed`."""
    return _HELD_OUT_BASE + _check(index)


def random_scene(seed: int, size: tuple[int, int] = (480, 640)) -> Scene:
    """Return one frame of the drive `seed`, at an instant the seed also decides."""
    t_ns = int(np.random.default_rng([seed, 1]).integers(0, _LONGEST_NS))
    return SceneGenerator(seed, size).render(t_ns)


def scene_stream(seeds: Iterable[int], size: tuple[int, int] = (480, 640)) -> Iterator[Scene]:
    """Yield `random_scene` of each seed."""
    for seed in seeds:
        yield random_scene(seed, size)


def _check(index: int) -> int:
    if not 0 <= index < _HELD_OUT_BASE:
        raise ValueError(f"index must be in [0, {_HELD_OUT_BASE}), got {index}")
    return index
