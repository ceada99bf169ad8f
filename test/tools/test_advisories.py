# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Known vulnerabilities, from a server of this machine that answers as PyPI does."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import advisories
import pytest

# Recorded, and shortened: https://pypi.org/pypi/pyarrow/12.0.0/json
PYARROW = {
    "info": {"name": "pyarrow", "version": "12.0.0"},
    "vulnerabilities": [
        {
            "aliases": ["CVE-2023-47248", "GHSA-5wvp-7f3h-6wmm"],
            "details": "Deserialization of untrusted data in IPC and Parquet readers in PyArrow\n"
            "versions 0.14.0 to 14.0.0 allows arbitrary code execution.",
            "fixed_in": ["14.0.1"],
            "id": "PYSEC-2023-238",
            "link": "https://osv.dev/vulnerability/PYSEC-2023-238",
            "source": "osv",
            "summary": None,
            "withdrawn": None,
        },
        {"aliases": [], "details": "a mistake", "fixed_in": [], "id": "PYSEC-0000-0",
         "withdrawn": "2024-01-01T00:00:00Z"},
    ],
}  # fmt: skip
# https://pypi.org/pypi/py/1.11.0/json
PY = {"vulnerabilities": [{"id": "PYSEC-2022-42969", "aliases": ["CVE-2022-42969"],
                           "details": "ReDoS", "fixed_in": []}]}  # fmt: skip
NUMPY = {"info": {"name": "numpy", "version": "2.0.0"}, "vulnerabilities": []}


@pytest.fixture
def index():
    """Its address, and its answers by path: a document, or a status."""
    answers = {"/pypi/pyarrow/12.0/json": 404, "/pypi/pyarrow/12.0.0/json": PYARROW,
               "/pypi/numpy/2.0.0/json": NUMPY, "/pypi/py/1.11.0/json": PY}  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer = answers.get(self.path, 404)
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            if not isinstance(answer, int):
                self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()
        thread.join()


def run(index, monkeypatch, capsys, *releases):
    monkeypatch.setattr(advisories, "list_releases", lambda *, lowest: list(releases))
    code = advisories.main(["--index", index[0]])
    return code, capsys.readouterr()


OLD = advisories.Release("pyarrow", "12.0", "the lowest that traces.txt allows")
NEW = advisories.Release("numpy", "2.0.0", "installed")


def test_a_known_vulnerability_is_listed(index, monkeypatch, capsys):
    code, shown = run(index, monkeypatch, capsys, OLD, NEW)
    assert code == 1
    assert "PYSEC-2023-238, CVE-2023-47248" in shown.out
    assert "fixed in 14.0.1" in shown.out
    assert "PYSEC-0000-0" not in shown.out  # withdrawn
    assert "2 releases, 1 known vulnerabilities" in shown.out


def test_none_is_known(index, monkeypatch, capsys):
    other = advisories.Release("own", "1", "installed")
    code, shown = run(index, monkeypatch, capsys, NEW, other)
    assert code == 0
    assert "own 1 (installed): not on this index" in shown.out


@pytest.mark.parametrize("answer", [404, 503, {"info": {}}, [], NUMPY])
def test_an_index_without_advisories_is_no_clean_bill(index, monkeypatch, capsys, answer):
    """A mirror that has files, or pages without advisories, is found by what it must know."""
    index[1]["/pypi/py/1.11.0/json"] = answer
    code, shown = run(index, monkeypatch, capsys, NEW)
    assert code == 2
    assert "nothing was checked" in shown.err


def test_an_index_that_fails_midway_is_no_clean_bill(index, monkeypatch, capsys):
    index[1]["/pypi/numpy/2.0.0/json"] = 503
    code, shown = run(index, monkeypatch, capsys, NEW)
    assert code == 2
    assert "answers 503" in shown.err


def test_without_a_network_nothing_is_claimed(index, monkeypatch, capsys):
    code, shown = run(("http://127.0.0.1:9", {}), monkeypatch, capsys, NEW)
    assert code == 2
    assert "cannot be asked" in shown.err


def test_pinned_installed_and_lowest_versions_are_asked_about(tmp_path):
    (tmp_path / "a.txt").write_text("# pins\nown==1.2\nnumpy>=1.21,<9 # why\n-r b.txt\nnone>=1\n")
    (tmp_path / "constraints-x.txt").write_text("numpy<2\n")
    releases = advisories.list_releases(tmp_path, lowest=True)
    found = {(one.package, one.version): one.why for one in releases}
    assert found["own", "1.2"] == "pinned in a.txt"
    assert found["numpy", "1.21"] == "the lowest that a.txt allows"
    assert found["none", "1"] == "the lowest that a.txt allows"
    assert sum(why == "installed" for why in found.values()) == 1


def test_every_requirement_of_the_package_is_read():
    names = {package for package, _, _ in advisories.read_requirements()}
    assert {"numpy", "PyYAML", "apache-tvm", "ros-rclpy", "pyarrow"} <= names


def test_traces_need_a_pyarrow_that_unpickles_nothing():
    """CVE-2023-47248: before 14.0.1 a Parquet file could run code when it was read."""
    (clauses,) = {c for package, c, _ in advisories.read_requirements() if package == "pyarrow"}
    (lowest,) = (version for way, version in advisories._CLAUSE.findall(clauses) if way == ">=")
    assert tuple(map(int, lowest.split("."))) >= (14, 0, 1)
