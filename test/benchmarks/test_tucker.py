"""The benchmark on a small network: what it compares and what it prints."""

from __future__ import annotations

import argparse
import json

import pytest

from benchmarks import tucker


def test_small_network(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(tucker, "REDUCTIONS", {"squeezenet1_1": 30.0})
    monkeypatch.setattr(tucker, "_SIZES", {"squeezenet1_1": (64, 64)})
    monkeypatch.setattr(tucker, "_choose_backends", lambda: ["torch"])
    parser = argparse.ArgumentParser()
    tucker.add_arguments(parser)
    result = tucker.run(parser.parse_args(["--seconds", "0.01", "--threads", "1"]))
    model = json.loads(json.dumps(result))["models"]["squeezenet1_1"]
    assert model["reduction"] == pytest.approx(30.0, abs=0.5)
    assert model["mean_error"] < model["equal_ratio"]["mean_error"]
    # The one ratio saves no more than the budget, so that it has no fewer operations.
    assert model["equal_ratio"]["reduction"] <= model["reduction"]
    assert model["equal_ratio"]["reduction"] > 20.0
    assert model["layers"] == 9  # the stem, and one in each of eight blocks
    assert model["layers_decomposed"] <= model["layers"]
    assert 0.0 < model["parameters_kept"] < 1.0
    assert set(model["times"]["torch"]) == {"full_ms", "reduced_ms"}
    assert result["passed"] is True
    table = tucker.format_table(result)
    assert "squeezenet1_1" in table
    assert "30.0%" in table
    assert table.endswith("passed")
    assert "squeezenet1_1: one ratio" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf"])
def test_seconds_must_be_positive(text: str) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    tucker.add_arguments(parser)
    with pytest.raises(argparse.ArgumentError):
        parser.parse_args(["--seconds", text])
