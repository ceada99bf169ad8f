# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What every test shares: a ROS domain of the run's own, and the shared data."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from jetson_dnn_rt.cli.environment import profile_variable

ROOT = Path(__file__).resolve().parent.parent
# Not `pythonpath` of pyproject.toml: Ubuntu 22.04 has pytest 6.
sys.path[:0] = [os.fspath(ROOT / name) for name in (".", "tools", "test/support")]

from property_examples import load_profiles  # noqa: E402
from ros_domains import claim_domain, claimed_domain  # noqa: E402

SHARED_DATA = ROOT.parent / "shared" / "data"
PROFILE = os.fspath(ROOT / "config" / "fastdds_profile.xml")


def prepare_ros_environment():
    """Set what rclpy and its middleware read when they are loaded, which is once."""
    # Two runs on one machine must not hear each other, nor two workers of one run; nor may
    # another machine.
    os.environ["ROS_DOMAIN_ID"] = str(claim_domain())
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    if os.environ.get("ROS_DISTRO") == "humble":
        os.environ["ROS_LOCALHOST_ONLY"] = "1"
    os.environ[profile_variable()] = PROFILE
    if Path(sys.prefix, "share", "ament_index").is_dir():
        paths = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
        if sys.prefix not in paths:
            os.environ["AMENT_PREFIX_PATH"] = os.pathsep.join(filter(None, [sys.prefix, *paths]))


prepare_ros_environment()

load_profiles()

# A shell ignores it in what it starts in the background, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep tests in real time apart where `-n` runs tests side by side."""
    from worker_queues import WorkerQueues

    return WorkerQueues(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Put what takes the longest first where workers share the run."""
    if hasattr(config, "workerinput"):
        from worker_queues import rank

        items.sort(key=lambda item: rank(item.nodeid))


def skip_for_missing_package(report, call, path):
    """Turn an error whose cause is an optional package that is not installed into a skip."""
    from optional_packages import find_missing_package

    package = find_missing_package(call.excinfo.value) if report.outcome == "failed" else None
    if package is not None:
        report.outcome = "skipped"
        report.longrepr = (os.fspath(path), 0, f"Skipped: {package} is not installed")


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    """Skip files that import what is not installed: `colcon test` on packages from apt alone."""
    report = (yield).get_result()
    skip_for_missing_package(report, report.call, collector.fspath)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Skip tests that need what is not installed."""
    skip_for_missing_package((yield).get_result(), call, item.fspath)


def pytest_collection_finish():
    """Keep what is loaded by now, 650,000 objects in a whole run, out of garbage collections.

    Each costs 0.3 s otherwise, and every node that ends collects. Before the first test: what a
    test leaves to be collected, above all a node's participant, must not be frozen.
    """
    freeze_heap()


def freeze_heap():
    """Keep what lives now out of garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def frozen_heap(request):
    """Let the heap be as it is: nodes undo their own freezing, and with it that of the run.

    Only tests marked `freezes` really freeze; after them the run's heap is frozen anew.
    """
    freezes = request.node.get_closest_marker("freezes") is not None
    with pytest.MonkeyPatch.context() as patch:
        if not freezes:
            patch.setattr(gc, "freeze", lambda: None)
            patch.setattr(gc, "unfreeze", lambda: None)
        yield
    if freezes:
        freeze_heap()


@pytest.fixture(autouse=True)
def own_faults():
    """Let each test begin without the faults of those before: the log is the process'."""
    from jetson_dnn_rt.safety.faults import FAULTS

    FAULTS.clear()


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch):
    """Let diagnostics be those of an idle machine: a neighbour of the run must change no level."""
    from jetson_dnn_rt.platforms.load import LOAD, CpuReading

    LOAD.clear()
    monkeypatch.setattr(LOAD, "_read", lambda: CpuReading(time.monotonic_ns(), 2, 0, 0, None))


@pytest.fixture(autouse=True)
def ended_workers():
    """Fail the test that leaves workers of an executor behind, not one that counts them later."""
    before = set(threading.enumerate())
    yield
    left = [one for one in threading.enumerate() if one.name.startswith("rt-worker-")]
    end_s = time.monotonic() + 5.0
    for one in left:
        if one not in before:
            one.join(max(0.0, end_s - time.monotonic()))
    names = [one.name for one in left if one not in before and one.is_alive()]
    assert not names, f"the test left {names} running: stop its executor"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Let fixtures draw the same, whatever drew before."""
    seed_generators()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call():
    """Let a test draw the same, whichever fixtures of others were made on the way."""
    seed_generators()


def seed_generators():
    """Seed those that have a state of the process."""
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


def pytest_sessionfinish():
    """Let the interpreter end as it does elsewhere: libraries look for what was left over."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def ros_log_folder(tmp_path_factory):
    """Keep the logs of the nodes under test out of the home folder."""
    folder = tmp_path_factory.mktemp("ros_log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROS_LOG_DIR", os.fspath(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory):
    """Keep what is built and downloaded out of the home folder; processes inherit it."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.fspath(folder))
        yield folder


@pytest.fixture
def empty_domain(monkeypatch):
    """A ROS domain without nodes of other tests, for what looks nodes up by their names.

    What a failed test holds on to, above all a DDS participant, stays in the run's domain.
    """
    with claimed_domain() as number:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(number))
        yield


@pytest.fixture
def ros():
    """A context on real DDS with a spinning thread, ended cleanly after the test."""
    pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
    from ros_graph import Ros

    ros = Ros()
    try:
        yield ros
    finally:
        ros.close()


@pytest.fixture(scope="session")
def shared_data():
    """The folder of recorded images, videos and models beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no ../shared/data beside the checkout: recorded data and models are missing")
    return SHARED_DATA
