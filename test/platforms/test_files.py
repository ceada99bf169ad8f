# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Nothing outside the allow-list is ever written."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sysfs_trees import CPUS, EMC, TREES, FakeKernel, read_all, write_file, write_tree

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.files import WRITABLE, SystemFiles

LISTED = f"{CPUS}/cpufreq/policy0/scaling_max_freq"
MODEST = settings(max_examples=120)


@pytest.fixture
def files(tmp_path):
    write_tree(tmp_path / "root", TREES["tx2"])
    write_file(tmp_path, "outside/scaling_max_freq", 1)
    return SystemFiles(tmp_path / "root")


def is_listed(path):
    return any(pattern.fullmatch(path) for pattern in WRITABLE)


@pytest.mark.parametrize(
    "path",
    [
        LISTED,
        f"{CPUS}/cpu0/cpufreq/scaling_max_freq",
        f"{CPUS}/cpu1/online",
        f"{EMC}/rate",
        "sys/class/devfreq/17000000.gp10b/max_freq",
        f"etc/../{LISTED}",
    ],
)
def test_listed_files_are_written(files, path):
    files.write(path, 345600)
    assert files.read_int(path) == 345600


@pytest.mark.parametrize(
    "path",
    [
        "etc/nvpmodel.conf",
        f"{CPUS}/cpufreq/policy0/scaling_governor",
        f"{CPUS}/cpufreq/policy0/scaling_setspeed",
        f"{EMC}/max_rate",
        "sys/class/devfreq/15340000.vic/max_freq",
        "sys/class/devfreq/17000000.gp10b/governor",
        f"{CPUS}/cpu0/online",
        f"{CPUS}/cpu17/online",  # not there: nothing is created
        f"{CPUS}/cpufreq/policy0",
        "",
        "..",
        "../outside/scaling_max_freq",
        "/etc/passwd",
    ],
)
def test_everything_else_is_refused(files, path):
    before = read_all(files.root.parent)
    assert not files.is_writable(path)
    with pytest.raises(PlatformError):
        files.write(path, 1)
    assert read_all(files.root.parent) == before


@pytest.mark.parametrize("kind", ["relative", "absolute", "inside", "folder", "circle"])
def test_a_link_to_another_file_is_refused(files, kind):
    place = files.root / LISTED
    target = files.root.parent / "outside/scaling_max_freq"
    if kind == "folder":
        shutil.rmtree(place.parent)
        place.parent.symlink_to(target.parent)
    else:
        place.unlink()
        place.symlink_to(
            {
                "relative": os.path.relpath(target, place.parent),
                "absolute": target,
                "inside": files.root / "etc/nvpmodel.conf",
                "circle": place.name,
            }[kind]
        )
    assert not files.is_writable(LISTED)
    with pytest.raises(PlatformError, match="cannot be reached" if kind == "circle" else "allow-"):
        files.write(LISTED, 5)
    assert target.read_text() == "1\n"


def test_link_put_in_place_at_the_last_moment_is_not_followed(files):
    target = files.root.parent / "outside/scaling_max_freq"
    place = files.check(LISTED)
    place.unlink()
    place.symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        files._store(place, "5")
    assert target.read_text() == "1\n"


@pytest.mark.parametrize("value", [-1, 10**15])
def test_values_that_no_clock_has(files, value):
    with pytest.raises(PlatformError, match="is not a value"):
        files.write(LISTED, value)


def test_root_that_is_a_link(tmp_path):
    write_tree(tmp_path / "board", TREES["tx2"])
    (tmp_path / "link").symlink_to("board")
    SystemFiles(tmp_path / "link").write(LISTED, 345600)
    assert (tmp_path / "board" / LISTED).read_text() == "345600"


def test_shorter_text_leaves_nothing_of_the_longer(files):
    mode = (files.root / LISTED).stat().st_mode
    files.write(LISTED, 1_000_000)
    files.write(LISTED, 7)
    assert (files.root / LISTED).read_text() == "7"
    assert (files.root / LISTED).stat().st_mode == mode


def test_files_that_cannot_be_read(files):
    assert files.read("no/such/file") is None
    assert files.read(CPUS) is None
    assert files.read_int("proc/device-tree/model") is None
    assert files.glob("no/such/*") == []
    os.mkfifo(files.root / "pipe")
    for path in ("pipe", "sys/\0", "sys/\ud800", "a" * 5000):
        assert files.read(path) is None
        assert files.read_int(path) is None
        with pytest.raises(PlatformError) as caught:
            files.write(path, 1)
        assert len(str(caught.value).encode()) < 1000


def test_numbers_in_paths_are_sorted_by_value(tmp_path):
    for number in (10, 9, 0):
        write_file(tmp_path, f"cpu{number}/online", 1)
    assert SystemFiles(tmp_path).glob("cpu*") == ["cpu0", "cpu9", "cpu10"]


@pytest.fixture(scope="module")
def shared_root():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        write_tree(root, TREES["tx2"])
        write_file(Path(folder), "outside/scaling_max_freq", 1)
        # Every kind of way out, and of detour.
        (root / "out").symlink_to("../outside")
        (root / "loop").symlink_to(".")
        (root / CPUS / "cpufreq/policy9").symlink_to("../../../../../outside")
        (root / CPUS / "cpufreq/policy8").symlink_to("policy0")
        (root / EMC / "state").unlink()
        (root / EMC / "state").symlink_to("/proc/self/oom_score_adj")
        yield root


WORDS = sorted(
    {
        *itertools.chain.from_iterable(
            path.split("/") for path in ("..", ".", "", "out", "loop", LISTED, f"{EMC}/state")
        ),
        *("policy1", "policy8", "policy9", "cpu0", "cpu1", "online", "rate", "scaling_min_freq"),
        *("class", "devfreq", "17000000.gp10b", "15340000.vic", "max_freq", "governor", "etc"),
        *("nvpmodel.conf", "run", "proc", "max_rate", "root", "outside"),
    }
)
PREFIXES = ("", f"{CPUS}/cpufreq", f"{CPUS}/cpu1", EMC, "sys/class/devfreq", "..", "loop/loop")


@MODEST
@given(
    prefix=st.sampled_from(PREFIXES),
    words=st.lists(st.sampled_from(WORDS), max_size=5),
    value=st.integers(-5, 10**16),
)
def test_no_path_writes_outside_the_list(shared_root, prefix, words, value):
    files = SystemFiles(shared_root)
    path = "/".join([prefix, *words] if prefix else words)
    before = read_all(shared_root.parent)
    refused = False
    try:
        files.write(path, value)
    except PlatformError:
        refused = True
    after = read_all(shared_root.parent)
    changed = [path for path in before if after[path] != before[path]]
    assert set(after) == set(before)
    assert len(changed) <= (not refused)
    for each in changed:
        assert each.startswith("root/")
        assert is_listed(each.removeprefix("root/"))


@settings(max_examples=12)
@given(
    name=st.sampled_from(sorted(TREES)),
    shares=st.lists(st.floats(0, 1), min_size=2, max_size=6),
    refuse=st.sampled_from(["", "online", "min_freq", "max_freq", "rate", "policy", "devfreq"]),
    step=st.sampled_from([1, 1000, 30_000]),
)
def test_no_platform_writes_outside_the_list_and_all_comes_back(name, shares, refuse, step):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        write_tree(root, TREES[name])
        files = FakeKernel(root, round_value=lambda value: -(-value // step) * step)
        before = read_all(root)
        with detect(files=files, allow_writes=True) as platform:
            for number, share in enumerate(shares):
                files.refuse = refuse if number % 2 else ""
                try:
                    platform.apply(round(share * platform.space.fastest))
                except PlatformError:
                    assert files.refuse
            files.refuse = ""
        after = read_all(root)
        own = {"run/jetson_dnn_rt/clocks.lock"}
        assert set(after) == set(before) | own
        changed = {path for path in before if after[path] != before[path]}
        # Where the hardware runs within the limits is not written by us.
        changed = {path for path in changed if not path.endswith("cur_freq")}
        assert all(is_listed(path) for path, _ in files.writes)
        assert all(step > 1 and is_listed(path) for path in changed)
