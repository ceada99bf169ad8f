# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Licences of what the package installs: the table is current, and nothing in it is copyleft."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("packaging", reason="packaging is not installed")

import dependencies
from dependencies import DESK, OWN, Package, find_copyleft, is_strong, list_packages
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROWS = {
    row[1]: row[2]
    for row in re.finditer(r"^\| ([\w.-]+) \| ([^|]+) \|", dependencies.PAGE.read_text(), re.M)
}


@pytest.mark.parametrize("group", [*OWN, *DESK])
def test_every_requirement_is_in_the_table(group):
    """What is required directly, on every platform; what that brings along differs."""
    for text in dependencies.read_group(group):
        assert canonicalize_name(Requirement(text).name) in ROWS


def test_the_table_has_the_licences_of_what_is_installed():
    """Where a package states its licence otherwise in another release, the words may differ."""
    for one in list_packages(OWN):
        if one.name in ROWS:
            assert is_strong(ROWS[one.name]) == is_strong(one.licence), one


def test_nothing_that_a_user_installs_is_copyleft():
    assert find_copyleft(list_packages(OWN)) == []
    assert not [name for name in ROWS if name in OWN and is_strong(ROWS[name])]
    assert "Under GPL or AGPL: none." in dependencies.PAGE.read_text()


@pytest.mark.parametrize(
    ("licence", "strong"),
    [
        ("GPL-3.0-only", True),
        ("AGPL-3.0-or-later", True),
        ("GNU General Public License v3 (GPLv3)", True),
        ("GNU Affero General Public License v3", True),
        ("LGPL-2.1", False),
        ("GNU Lesser General Public License v3 (LGPLv3)", False),
        ("MPL-2.0", False),
        ("MIT OR GPL-2.0", False),
        ("Apache-2.0 AND GPL-2.0", True),
        ("not stated", False),
    ],
)
def test_strong_copyleft_is_told_from_weak(licence, strong):
    assert is_strong(licence) is strong
    assert find_copyleft([Package("own", licence, ("runtime",))]) == (
        [Package("own", licence, ("runtime",))] if strong else []
    )
    assert find_copyleft([Package("own", licence, ("dev",))]) == []


def test_every_extra_of_the_package_is_in_the_table():
    text = (dependencies.ROOT / "setup.py").read_text()
    block = text[text.index("extras_require") : text.index("entry_points")]
    extras = set(re.findall(r'"(\w+)"', block))
    assert extras == (set(OWN) - {"runtime"}) | {"test"}
