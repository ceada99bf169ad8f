# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Texts of errors, which quote from files: they can be shown anywhere, and have an end."""

from __future__ import annotations

import pytest

from jetson_dnn_rt.errors import (
    LONGEST_TEXT,
    ConfigurationError,
    JetsonDnnRtError,
    JobTraceError,
    StillRunningError,
)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a: über 3 m²\n\tfix: b", "a: über 3 m²\n\tfix: b"),
        ("a\u00a0b\u3000c", "a\u00a0b\u3000c"),
        ("\x1b[2J\x9b2J", "?[2J?2J"),
        ("a\rb\0\x7f\x85", "a?b???"),
        ("\ud800", "?"),
        ("\u202eb", "?b"),  # text from right to left
        ("", ""),
    ],
)
def test_a_text_does_nothing_to_a_terminal(given, shown):
    assert str(ConfigurationError(given)) == shown
    assert str(JetsonDnnRtError(given, "model")) == shown


def test_a_text_has_an_end():
    text = str(ConfigurationError("x" * 10**6))
    assert len(text) == LONGEST_TEXT + len(" ...")
    assert text.endswith("x ...")


def test_errors_are_also_those_of_python():
    """Callers that know only Python's still catch them."""
    assert issubclass(JobTraceError, ValueError)
    assert issubclass(StillRunningError, TimeoutError)
