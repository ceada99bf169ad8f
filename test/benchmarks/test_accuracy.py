"""The accuracy benchmark on a few held-out scenes, and what it prints."""

import json

import pytest

from benchmarks import accuracy
from jetson_dnn_rt.demo import builtin


def test_shipped_weights_see_held_out_scenes(capsys):
    code = accuracy.main(["--scenes", "40", "--json"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["map50"] >= 0.8
    assert result["miou"] >= 0.8
    assert code == (0 if result["passed"] else 1)
    assert result["passed"] == (result["map50"] >= 0.85 and result["miou"] >= 0.85)
    assert set(result["ap50"]) == set(builtin.DETECTOR_CLASSES)
    assert set(result["iou"]) == set(builtin.SEGMENTER_CLASSES)
    assert sum(result["boxes"].values()) > 100


def test_untrained_weights_fail(monkeypatch, capsys):
    """The bar can be missed: the same networks without training do."""
    monkeypatch.setattr(builtin, "load", lambda name: builtin.build(name).eval())
    assert accuracy.main(["--scenes", "2"]) == 1
    assert "NOT passed" in capsys.readouterr().out


def test_table_names_every_class():
    result = {
        "scenes": 1, "size": "640x480", "bar": 0.85, "passed": False,
        "map50": 0.5, "ap50": {"car": 0.5, "truck": None}, "boxes": {"car": 2, "truck": 0},
        "miou": None, "iou": {"road": 0.25},
    }  # fmt: skip
    table = accuracy.format_table(result)
    for text in ("car", "0.500", "truck", "-", "road", "0.250", "NOT passed"):
        assert text in table


@pytest.mark.parametrize(
    "argv", [["--scenes", "0"], ["--size", "640"], ["--size", "32x32"], ["--size", "axb"]]
)
def test_bad_arguments_end_with_code_2(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        accuracy.main(argv)
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err
