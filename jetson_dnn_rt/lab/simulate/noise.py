"""Random numbers of a scenario: common to all policies that are tried on one seed.

Every task has a stream of its own, and from it a number for each frame and stage, whatever runs
when: the noise of a (task, sequence, stage) does not depend on the policy, the variant or the
clocks. So two policies differ in what they did, and not in their luck.
"""

from __future__ import annotations

import hashlib

import numpy as np

from jetson_dnn_rt.lab.simulate.board import Noise
from jetson_dnn_rt.lab.simulate.network import Floats


def make_generator(seed: int, purpose: str, name: str) -> np.random.Generator:
    """Random numbers for one purpose and one task or camera."""
    digest = hashlib.blake2b(f"{purpose}/{name}".encode(), digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "big")])


def draw_noise(noise: Noise, generator: np.random.Generator, frames: int, stages: int) -> Floats:
    """Factor on the execution time of every frame and stage; its median is 1.

    What is common to a frame's stages is an autoregressive process of the first order, so that
    slow frames come together as they do on a board; each stage adds its own, and now and then a
    spike.

    Returns
    -------
    float64 [frames, stages]
    """
    # Frame by frame, and spikes from numbers of their own: a longer run begins like a shorter one.
    spike_generator = np.random.default_rng(generator.integers(2**63))
    spikes = spike_generator.random((frames, stages)) < noise.spike_probability
    normal = generator.standard_normal((frames, stages + 1))
    common, own = normal[:, 0], normal[:, 1:]
    if noise.frame_correlation:
        rho = noise.frame_correlation
        innovation = np.sqrt(1.0 - rho * rho)
        level = float(common[0]) if frames else 0.0
        for index in range(1, frames):
            level = rho * level + innovation * float(common[index])
            common[index] = level
    factors = np.exp(noise.frame_sigma * common[:, np.newaxis] + noise.stage_sigma * own)
    return np.asarray(np.where(spikes, factors * noise.spike_factor, factors))
