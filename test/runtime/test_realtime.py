# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

import ctypes
import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.runtime.realtime import RIGHTS_FIX, Realtime

pytestmark = pytest.mark.freezes


@pytest.fixture
def restored(monkeypatch):
    interval, cores = sys.getswitchinterval(), os.sched_getaffinity(0)
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    gc.unfreeze()
    yield
    monkeypatch.undo()  # calls that are refused, which is otherwise undone behind this
    sys.setswitchinterval(interval)
    os.sched_setaffinity(0, cores)
    os.sched_setscheduler(0, policy, parameter)
    gc.unfreeze()


def settings(realtime):
    return {setting.name: setting for setting in realtime.settings}


def test_everything_off_changes_nothing(restored):
    realtime = Realtime(RealtimeConfig(gc_freeze=False, mallopt=False, switch_interval_us=0))
    before = sys.getswitchinterval()
    realtime.apply_to_process()
    realtime.apply_to_worker()
    realtime.apply_to_io()
    realtime.freeze()
    assert realtime.settings == ()
    assert sys.getswitchinterval() == before


def test_process_items_are_applied_and_said(restored):
    realtime = Realtime(RealtimeConfig(switch_interval_us=700))
    realtime.apply_to_process()
    realtime.freeze()
    said = settings(realtime)
    assert said["mallopt"].applied
    assert said["gc_freeze"].applied
    assert gc.get_freeze_count() > 0
    assert sys.getswitchinterval() == pytest.approx(700e-6)


def test_what_comes_after_the_first_activation_can_be_freed(restored):
    """Campaign of cycles: a network that was configured again under load stayed for ever."""

    class Network:
        def __init__(self):
            self.graph = self  # as those of torch.fx

    realtime = Realtime(RealtimeConfig(mallopt=False, switch_interval_us=0))
    first = weakref.ref(network := Network())
    realtime.freeze()
    del network
    second = weakref.ref(network := Network())
    realtime.freeze()
    del network
    realtime.freeze()
    assert (first() is None, second() is None) == (False, True)
    gc.unfreeze()  # as the session does when all are inactive
    gc.collect()
    assert first() is None


def test_refused_rights_are_reported_with_the_fix(restored, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    realtime = Realtime(RealtimeConfig(sched_fifo=True))
    realtime.apply_to_worker()
    realtime.apply_to_worker()
    setting = settings(realtime)["sched_fifo"]
    assert not setting.applied
    assert RIGHTS_FIX in setting.detail
    assert len(realtime.settings) == 1


def test_as_worker_is_undone(restored):
    core = min(os.sched_getaffinity(0))
    realtime = Realtime(RealtimeConfig(cpu_affinity=(core,)))
    before = os.sched_getaffinity(0)
    with realtime.as_worker():
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before


def test_fifo_where_the_rights_exist(restored):
    realtime = Realtime(RealtimeConfig(sched_fifo=True, priority=10))
    with realtime.as_worker():
        if not settings(realtime)["sched_fifo"].applied:
            pytest.skip("this process may not use SCHED_FIFO")
        assert os.sched_getscheduler(0) == os.SCHED_FIFO
        assert os.sched_getparam(0).sched_priority == 10
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        ({"priority": 0}, "priority"),
        ({"priority": 99}, "priority"),
        ({"switch_interval_us": -1}, "switch_interval_us"),
        ({"cpu_affinity": (10_000,)}, "cpu_affinity"),
    ],
)
def test_bad_parameters_are_named(bad, name):
    with pytest.raises(ConfigurationError, match=name):
        RealtimeConfig(**bad)


def test_threads_that_start_in_the_background_become_workers(restored):
    cores = sorted(os.sched_getaffinity(0))[:1]
    realtime = Realtime(RealtimeConfig(cpu_affinity=tuple(cores)))
    end = threading.Event()
    threads = []

    def run():
        end.wait()

    def start():
        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return threads[-1].native_id

    before = os.sched_getscheduler(0), os.sched_getaffinity(0)
    try:
        other = start()
        with realtime.in_background():
            # No worker itself, so nobody waits for it.
            assert os.sched_getaffinity(0) == before[1]
            mine = start()
            assert os.sched_getscheduler(mine) == os.SCHED_BATCH
        assert (os.sched_getscheduler(0), os.sched_getaffinity(0)) == before
        assert os.sched_getscheduler(mine) == os.SCHED_OTHER
        assert os.sched_getaffinity(mine) == set(cores)
        assert os.sched_getaffinity(other) == before[1]
    finally:
        end.set()
        for thread in threads:
            thread.join()


_FREE_ON_A_THREAD = """
import threading
from pathlib import Path
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.runtime.realtime import Realtime, trim_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def load_and_forget():
    blocks = [bytes(100_000) for _ in range(1000)]

Realtime(RealtimeConfig(gc_freeze=False)).apply_to_process()
before = resident()
thread = threading.Thread(target=load_and_forget)
thread.start()
thread.join()
kept = resident()
trim_memory()
print(kept - before, resident() - before)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library is not glibc"
)
def test_memory_that_a_thread_has_freed_is_returned_when_asked():
    """It piled up in the arenas of threads that load networks, in the campaign `soak`."""
    done = subprocess.run(
        [sys.executable, "-c", _FREE_ON_A_THREAD], capture_output=True, text=True, check=True
    )
    kept, left = map(int, done.stdout.split())
    assert kept > 90_000_000
    # Not the end of the arena's last heap of 64 MiB, which malloc_trim leaves alone.
    assert left < 40_000_000


COUNT_ARENAS = """
import ctypes, os, sys, threading
from jetson_dnn_rt.runtime.realtime import set_library_defaults

set_library_defaults()
together = threading.Barrier(9)

def work():
    kept = [bytearray(4096) for _ in range(100)]
    together.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
together.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.parametrize(("asked", "most"), [("", 2), ("5", 5)])
def test_threads_share_arenas_of_memory(tmp_path, monkeypatch, asked, most):
    if not hasattr(ctypes.CDLL(None), "malloc_info"):
        pytest.skip("this C library is not glibc")
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    if asked:
        monkeypatch.setenv("MALLOC_ARENA_MAX", asked)
    path = tmp_path / "arenas.xml"
    subprocess.run([sys.executable, "-c", COUNT_ARENAS, str(path)], check=True)
    assert path.read_text().count("<heap nr=") == most
