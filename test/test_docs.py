# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The documentation says what is so."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from jetson_dnn_rt.cli.main import build_parser

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def test_parameters_are_those_of_the_nodes():
    pytest.importorskip("rclpy")
    pytest.importorskip("vision_msgs.msg")
    import document_parameters

    text = document_parameters.FILE.read_text(encoding="utf-8")
    assert text == document_parameters.render(), "run python tools/document_parameters.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_understood(page):
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for line in "".join(blocks).splitlines():
        if line.startswith("jetson-dnn-rt "):
            build_parser().parse_args(shlex.split(line, comments=True)[1:])


RECIPE = re.compile(
    r"git clone (?!<this repository>)|cmake (-S|--build)|\bnpx\b"
    r"|pip install [^`\n]*( \./| git\+|--target)"
)


@pytest.mark.parametrize("folder", ["docs", "benchmarks", "examples", "jetson_dnn_rt", "."])
def test_no_recipe_brings_or_builds_other_people_s_programs(folder):
    """They say themselves how; packages of PyPI by their names may stand here."""
    pages = [*(ROOT / folder).glob("*.md"), *(ROOT / folder).glob("*.rst")]
    if folder != ".":
        pages += (ROOT / folder).rglob("*.py")
    for page in pages:
        found = [
            line for line in page.read_text(encoding="utf-8").splitlines() if RECIPE.search(line)
        ]
        assert not found, f"{page}: {found}"


def test_picture_is_small_enough():
    assert (ROOT / "docs/images/demo.png").stat().st_size <= 300_000


def test_stops_of_the_tour_are_there():
    """Every name that `docs/tour.md` links to is defined in the file of its link."""
    text = (ROOT / "docs/tour.md").read_text(encoding="utf-8")
    stops = re.findall(r"\[`([\w.]+)`\]\(\.\./([\w/]+\.py)\)", text)
    assert len(re.findall(r"^\*\*\d+\. ", text, re.MULTILINE)) == 12
    assert len(stops) > 20
    for name, file in stops:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in set(find_names(tree)), f"{file} has no {name}"


def test_promises_are_held_by_tests_that_are_there():
    """Every test that `docs/reliability.md` names is in its file; no promise is without one."""
    text = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    held = [re.findall(r"`(test/[\w/]+\.py)::(\w+)`", row) for row in rows]
    headings = [row for row in rows if "held by" in row or set(row) <= {"|", "-"}]
    assert [row for row, tests in zip(rows, held, strict=True) if not tests] == headings
    assert len(rows) - len(headings) > 40
    for file, name in (test for tests in held for test in tests):
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in functions, f"{file} has no {name}"


def find_names(tree):
    """Names of a module's functions, classes, their methods, and variables."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.target)
        elif isinstance(node, ast.Assign):
            yield from map(ast.unparse, node.targets)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
            yield from (
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef)
            )
