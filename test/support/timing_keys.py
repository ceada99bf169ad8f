# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The keys of ``~/debug/timing`` as docs/topics.md names them."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "docs" / "topics.md").read_text(encoding="utf-8")


def read_documented_keys() -> set[str]:
    """Keys in the first column of the table; ``stage.<name>_ms`` stands for all stages."""
    table = TEXT.partition("| key | what |")[2].partition("\n\n")[0]
    columns = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {key for column in columns for key in re.findall("`([^`]+)`", column)}
