# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The benchmark of track ids: its scenes and counts, not how fast this machine is."""

import benches
import pytest

pytest.importorskip("trackforge", reason="trackforge is not installed")


def test_each_scene_is_followed_with_and_without_its_stamps():
    _, result = benches.run("tracking", "--objects 5,60 --frames 900")
    scenes = {(row["objects"], row["skipped_of_6"]): row for row in result["scenes"]}
    assert list(scenes) == [(n, skipped) for n in (5, 60) for skipped in (0, 1, 2, 5)]
    for (count, skipped), row in scenes.items():
        assert row["answered"] == 900 * (6 - skipped) // 6
        assert row["boxes"] == row["answered"] * count
        assert 0 < row["time_ms"]["p50"] <= row["time_ms"]["p99"] <= row["time_ms"]["max"]
    # Nothing is skipped: both are the same.
    for count in (5, 60):
        assert scenes[count, 0]["changes"] == scenes[count, 0]["changes_untold"]
    assert scenes[60, 5]["changes"] < scenes[60, 5]["changes_untold"]
    assert result["passed"] is None  # no scene with the objects of the bar
