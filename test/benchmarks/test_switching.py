"""`bench switching` on few frames: what it measures, not how fast this machine is."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import switching
from jetson_dnn_rt.errors import ConfigurationError


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    switching.add_arguments(parser)
    return parser.parse_args(arguments)


def test_half_of_the_boundaries_are_switches() -> None:
    plain = "full@torch-fp32,svd-1.00@torch-fp32"
    with pytest.raises(ConfigurationError, match="are not loaded"):
        switching.run(parse("--frames", "4", "--stages", "3", "--variants", plain))
    both = "full@torch-fp32,full@torch-bf16"
    try:
        result = switching.run(parse("--frames", "40", "--stages", "3", "--variants", both))
    except ConfigurationError as error:
        pytest.skip(str(error))  # no bf16 on this CPU
    gaps = result["gap_us"]
    assert result["frames"] == 40
    assert gaps["kept"]["count"] + gaps["switched"]["count"] == 40 * (result["stages"] - 1)
    assert min(gaps["kept"]["count"], gaps["switched"]["count"]) > 40
    assert 0.0 < gaps["kept"]["p50"] <= gaps["kept"]["p99"] <= gaps["kept"]["max"]
    added = gaps["switched"]["p99"] - gaps["kept"]["p99"]
    assert result["added_us"]["p99"] == pytest.approx(added, abs=0.11)
    assert result["passed"] == (result["added_us"]["p99"] <= switching.BAR_US)
    assert "a switch adds" in switching.format_table(result)


@pytest.mark.parametrize(
    ("variants", "words"),
    [
        ("full@torch-fp32", "must be two names"),
        ("full@torch,full@torch-fp32", "must be two names"),
        ("full@torch-fp32,full@onnxruntime-bf16", "full@onnxruntime-bf16"),
    ],
)
def test_what_cannot_be_switched_is_refused(variants: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        switching.run(parse("--frames", "2", "--variants", variants))
