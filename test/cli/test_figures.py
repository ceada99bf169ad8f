# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Settings of figures: the package's own."""

from __future__ import annotations

import pytest

from jetson_dnn_rt.cli.figures import figure_settings

matplotlib = pytest.importorskip("matplotlib")


def test_nothing_of_the_users_settings_gets_into_figures():
    """Campaign 8: a matplotlibrc in the working folder can have texts written by TeX."""
    with matplotlib.rc_context({"text.usetex": True, "text.latex.preamble": r"\\input{/x}"}):
        with figure_settings({"font.size": 7.0}):
            assert matplotlib.rcParams["text.usetex"] is False
            assert matplotlib.rcParams["text.latex.preamble"] == ""
            assert matplotlib.rcParams["font.size"] == 7.0
        assert matplotlib.rcParams["text.usetex"] is True
