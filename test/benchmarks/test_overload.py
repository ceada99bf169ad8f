"""The overload benchmark from end to end, with networks that take a few milliseconds."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.protocol import BenchmarkError, Child
from jetson_dnn_rt.cli.main import main


@pytest.mark.slow
def test_both_sides_deliver(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rclpy")
    pytest.importorskip("vision_msgs.msg")
    models = ["--detector", "null:10", "--segmenter", "null:10,segmentation"]
    length = ["--loads", "1.5", "--rounds", "1", "--seconds", "1", "--deadline-factor", "5"]
    code = main(["bench", "overload", "--json", *models, *length])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == (0 if result["passed"] else 1)
    assert result["machine"]["cores"] >= 1
    (load,) = result["loads"]
    assert load["load"] == 1.5
    for side in ("ours", "naive"):
        figures = load[side]
        # Sleeping networks at 75 Hz: both sides start some frames and publish some results.
        assert figures["frames"] > 0
        assert 0 < figures["published"] <= figures["started"] <= figures["frames"] + 4
        assert figures["in_time"] <= figures["published"]
    assert load["listener"]["detections"] > 0
    assert load["listener"]["class_mask"] > 0


def test_child_that_fails_is_an_error() -> None:
    with (
        pytest.raises(BenchmarkError, match="did not get ready"),
        Child([sys.executable, "-c", "exit(3)"]),
    ):
        pass


def test_child_that_ends_badly_is_an_error() -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *a: sys.exit(5));"
        "print('ready', flush=True); signal.pause()"
    )
    with pytest.raises(BenchmarkError, match="exit code 5"), Child([sys.executable, "-c", code]):
        pass


def test_child_is_ended_even_when_the_benchmark_fails() -> None:
    child = Child(
        [sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()"]
    )
    with pytest.raises(KeyError), child:
        raise KeyError
    assert child.ended
