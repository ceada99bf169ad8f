# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A C compiler for tests of how something is compiled, not of how fast it is then."""


def make_quick_compiler(folder):
    """Write a gcc that never optimises, which takes half the time; returns its path, for `CC`."""
    path = folder / "quick-gcc"
    path.write_text('#!/bin/sh\nexec gcc "$@" -O0\n', encoding="utf-8")
    path.chmod(0o755)
    return str(path)
