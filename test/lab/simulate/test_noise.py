"""Random numbers: of the distribution that the file says, and a stream for each purpose."""

from __future__ import annotations

import numpy as np
import pytest

from jetson_dnn_rt.lab.simulate.board import Noise
from jetson_dnn_rt.lab.simulate.noise import draw_noise, make_generator

NOISE = Noise(frame_sigma=0.1, frame_correlation=0.7, stage_sigma=0.05)


def draw(noise: Noise, frames: int = 20_000, seed: int = 0) -> np.ndarray:
    return draw_noise(noise, make_generator(seed, "noise", "a"), frames, 4)


def test_the_moments_are_those_of_the_file() -> None:
    logs = np.log(draw(NOISE))
    common = logs.mean(axis=1)
    assert np.median(logs) == pytest.approx(0.0, abs=0.01)
    assert logs.std() == pytest.approx(np.hypot(0.1, 0.05), rel=0.05)
    own = (logs - common[:, None]).std() * np.sqrt(4 / 3)
    assert own == pytest.approx(0.05, rel=0.05)
    lag_one = np.corrcoef(common[:-1], common[1:])[0, 1]
    # What is averaged of the stages' own noise does not come again.
    expected = 0.7 * 0.01 / (0.01 + 0.0025 / 4)
    assert lag_one == pytest.approx(expected, abs=0.03)


def test_spikes() -> None:
    factors = draw(Noise(spike_probability=0.01, spike_factor=3.0))
    assert set(np.unique(factors)) == {1.0, 3.0}
    assert (factors == 3.0).mean() == pytest.approx(0.01, rel=0.2)


def test_streams_do_not_depend_on_each_other() -> None:
    assert not np.array_equal(draw(NOISE, 10), draw(NOISE, 10, seed=1))
    a, b = (make_generator(0, "noise", name).random(4) for name in "ab")
    assert not np.array_equal(a, b)
    camera = make_generator(0, "camera", "a").random(4)
    assert not np.array_equal(a, camera)
    assert np.array_equal(a, make_generator(0, "noise", "a").random(4))


@pytest.mark.parametrize("frames", [0, 1, 5])
def test_a_longer_draw_begins_like_a_shorter_one(frames: int) -> None:
    spiky = Noise(0.1, 0.5, 0.1, 0.2, 2.0)
    assert np.array_equal(draw(spiky, frames), draw(spiky, 20)[:frames])
