# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The clocks come back, whatever ends the process."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sysfs_trees import BOOT_ID, CPUS, EMC, TREES, FakeKernel, read_all, write_file, write_tree

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.state import ClockState

STATE = "run/jetson_dnn_rt/clocks.json"
LOCK = "run/jetson_dnn_rt/clocks.lock"
POLICY = f"{CPUS}/cpufreq/policy0"

CHILD = """
import os, signal, sys
from pathlib import Path
from jetson_dnn_rt.platforms.detect import detect

# A shell lets what it starts in the background ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has children ignore it
platform = detect(Path(sys.argv[1]), allow_writes=True)
platform.apply(platform.space.slowest)
{then}
print("set", platform._guardian.pid, flush=True)
sys.stdin.readline()
{last}
"""


@pytest.fixture
def root(tmp_path):
    write_tree(tmp_path / "root", TREES["tx2"])
    return tmp_path / "root"


class Child:
    """A process that has set the slowest clocks and waits for a line."""

    def __init__(self, root, then="", last=""):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD.format(then=then, last=last), os.fspath(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        word, _, number = self.process.stdout.readline().partition(" ")
        assert word == "set", self.process.communicate()[1]
        self.guardian = int(number)

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self.process.kill()
        self.process.communicate()

    def end(self):
        """Go on behind the line, and return the exit code when all is over.

        A guardian keeps the pipe of errors open: when that is read to its end, it is gone, too.
        """
        self.errors = self.process.communicate("\n")[1]
        return self.process.returncode

    def kill(self):
        """SIGKILL to the process alone; its guardian does the rest."""
        self.process.kill()
        self.errors = self.process.communicate()[1]

    def kill_with_guardian(self):
        """As a service manager does, or the machine's owner."""
        # Else another guardian would take the place of the first.
        self.process.send_signal(signal.SIGSTOP)
        os.kill(self.guardian, signal.SIGKILL)
        self.kill()


def look(root):
    """All files but the lock."""
    return {path: text.strip() for path, text in read_all(root).items() if path != LOCK}


def test_without_a_guardian_the_next_start_gives_back(root, caplog):
    """EDGES 6: the second line."""
    before = look(root)
    for _ in range(2):  # killed twice, the first clocks come back
        with Child(root) as child:
            changed = look(root)
            assert changed[f"{POLICY}/scaling_max_freq"] == "345600"
            assert changed[f"{CPUS}/cpu2/online"] == "0"
            assert changed[f"{EMC}/mrq_rate_locked"] == "1"
            child.kill_with_guardian()
        # Nobody was there to give anything back.
        assert look(root) == changed
    with caplog.at_level(logging.WARNING), detect(root, allow_writes=True) as platform:
        assert platform.writable
        assert look(root) == before
        # The whole board can be seen again, the cores that had been off too.
        assert len(platform.space) == 11_760
    assert ["restored the clocks" in record.message for record in caplog.records] == [True]
    assert look(root) == before


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("", 0),
        ("raise RuntimeError('crash')", 1),
        ("sys.exit(7)", 7),
        ("os.kill(os.getpid(), 2)", -2),
    ],
    ids=["return", "exception", "exit", "SIGINT"],
)
def test_a_process_that_python_ends_gives_back_itself(root, last, code):
    before = look(root)
    with Child(root, "", last) as child:
        assert look(root) != before
        assert child.end() == code
        assert "restored the clocks" not in child.errors
    assert look(root) == before


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("os.kill(os.getpid(), 15)", -15),
        ("os.kill(os.getpid(), 1)", -1),
        ("os.kill(os.getpid(), 9)", -9),
        ("os._exit(3)", 3),
        ("import faulthandler; faulthandler._sigsegv()", -11),
        (
            "import faulthandler, time; faulthandler.dump_traceback_later(0.01, exit=True); "
            "time.sleep(60)",
            1,
        ),
        ("os.execv('/bin/true', ['true'])", 0),
    ],
    ids=["SIGTERM", "SIGHUP", "SIGKILL", "_exit", "segfault", "faulthandler", "exec"],
)
def test_the_guardian_gives_back_what_no_process_could(root, last, code):
    """EDGES 6: whatever ends the process, the clocks come back without another one."""
    before = look(root)
    with Child(root, "", last) as child:
        assert look(root) != before
        assert child.end() == code
        assert f"restored the clocks that process {child.process.pid}" in child.errors
    assert look(root) == before
    with detect(root, allow_writes=True) as platform:
        assert platform.writable


def test_a_forked_process_that_lives_on_does_not_hide_the_end(root):
    """EDGES 6: it holds the pipe and the lock, too."""
    before = look(root)
    then = (
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.close(1); os.close(2)\n"
        "    os.read(0, 1)\n"
        "    os._exit(0)"
    )
    with Child(root, then) as child:
        assert look(root) != before
        child.process.send_signal(signal.SIGKILL)
        assert "restored the clocks" in child.process.stderr.read()
        assert look(root) == before
        with detect(root, allow_writes=True) as platform:
            assert platform.writable
            platform.apply(0)


def test_a_forked_process_that_lives_on_does_not_hold_the_lock(root):
    """EDGES 6: a platform that is closed is free, with its guardian gone."""
    platform = detect(root, allow_writes=True)
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        platform.apply(0)
        guardian = platform._guardian.pid
        platform.close()
        assert not Path(f"/proc/{guardian}").exists()
        with detect(root, allow_writes=True) as platform:
            assert platform.writable
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_forked_process_gives_nothing_back(root):
    then = (
        "child = os.fork()\n"
        "if child == 0:\n"
        "    platform.close()\n"
        "    sys.exit(0)\n"
        "os.waitpid(child, 0)"
    )
    with Child(root, then) as child:
        assert look(root)[f"{POLICY}/scaling_max_freq"] == "345600"
        assert (root / STATE).exists()
        child.end()
    assert (root / POLICY / "scaling_max_freq").read_text() == "2035200"


def test_second_process_only_reads(root):
    with Child(root) as child:
        changed = look(root)
        with detect(root, allow_writes=True) as platform:
            assert not platform.writable
            assert "another process sets the clocks" in platform.reason
            with pytest.raises(PlatformError, match="another process"):
                platform.apply(0)
        assert look(root) == changed
        child.end()
    with detect(root, allow_writes=True) as platform:
        assert platform.writable


def test_two_platforms_in_one_process(root):
    with detect(root, allow_writes=True) as first:
        assert first.writable
        with detect(root, allow_writes=True) as second:
            assert not second.writable
        # The second one did not take the lock away with it.
        with detect(root, allow_writes=True) as third:
            assert not third.writable


def test_clocks_of_an_earlier_boot_stay_where_they_are(root):
    with Child(root) as child:
        child.kill_with_guardian()
    write_file(root, "proc/sys/kernel/random/boot_id", "another-boot")
    now = look(root)
    with detect(root, allow_writes=True) as platform:
        assert look(root) == now
        platform.apply(platform.space.fastest)
        assert json.loads((root / STATE).read_text())["boot_id"] == "another-boot"
    assert {**look(root), STATE: now[STATE]} == now


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        '{"version": 1}',
        '{"version": 2, "boot_id": "B", "values": {}}',
        '{"version": 1, "boot_id": "B", "values": {"sys/x": "7"}}',
        '{"version": 1, "boot_id": "B", "values": {"sys/x": true}}',
        '{"version": 1, "boot_id": "B", "values": [1]}',
        "[" * 100_000,
    ],
    ids=range(9),
)
def test_damaged_state_file(root, text, caplog):
    write_file(root, STATE, text.replace("B", BOOT_ID))
    before = {path: text for path, text in read_all(root).items() if not path.startswith("run/")}
    with caplog.at_level(logging.ERROR), detect(root, allow_writes=True) as platform:
        assert platform.writable
    assert len(caplog.records) == 1
    assert "clocks.json is not used" in caplog.records[0].message
    after = {path: text for path, text in read_all(root).items() if not path.startswith("run/")}
    assert after == before


def test_state_file_cannot_make_anything_else_be_written(root, caplog):
    values = {
        "etc/nvpmodel.conf": 1,
        "../outside": 1,
        f"{POLICY}/scaling_governor": 0,
        "proc/sys/vm/panic_on_oom/online": 1,
    }
    write_file(root.parent, "outside", "as it was")
    write_file(root, "proc/sys/vm/panic_on_oom/online", 0)
    state = {"version": 1, "boot_id": BOOT_ID, "values": values}
    write_file(root, STATE, json.dumps(state))
    before = look(root)
    with caplog.at_level(logging.ERROR), detect(root, allow_writes=True) as platform:
        assert platform.writable
    assert ["allow-list" in record.message for record in caplog.records] == [True]
    del before[STATE]
    assert look(root) == before
    assert (root.parent / "outside").read_text() == "as it was\n"


def test_nothing_is_set_before_it_can_be_given_back(root, monkeypatch):
    """The state file is there before the first write; without it there is no first write."""
    files = FakeKernel(root)
    seen = []
    store = files._store

    def look(place, text):
        seen.append((root / STATE).exists())
        store(place, text)

    monkeypatch.setattr(files, "_store", look)
    with detect(files=files, allow_writes=True) as platform:
        platform.apply(0)
        assert all(seen)
        assert seen
    monkeypatch.setattr(
        ClockState, "write", lambda *_: (_ for _ in ()).throw(PlatformError("disk is full"))
    )
    files = FakeKernel(root)
    platform = detect(files=files, allow_writes=True)
    with pytest.raises(PlatformError, match="disk is full"):
        platform.apply(0)
    platform.close()
    assert files.writes == []


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("proc/sys/kernel/random/boot_id", "", "boot_id"),
        ("run/jetson_dnn_rt", "a file where the folder should be", "no place for the state file"),
    ],
)
def test_without_a_boot_or_a_place_for_the_state_it_only_reads(root, path, text, reason):
    write_file(root, path, text)
    with detect(root, allow_writes=True) as platform:
        assert not platform.writable
        assert reason in platform.reason


@pytest.fixture
def unprivileged():
    """A tree of root's, seen by somebody else: the kernel itself says what may be written."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        write_tree(root, TREES["agx-orin"])
        os.chmod(folder, 0o755)
        for path in [root, *root.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o555 if path.is_dir() else 0o444)
        before = os.geteuid()
        if before == 0:
            os.seteuid(65534)
        try:
            yield root
        finally:
            if before == 0:
                os.seteuid(0)
            for path in root.rglob("*"):
                if path.is_dir() and not path.is_symlink():
                    path.chmod(0o755)
            root.chmod(0o755)


def test_without_rights_it_only_reads_and_says_so_once(unprivileged, caplog):
    before = read_all(unprivileged)
    with caplog.at_level(logging.WARNING), detect(unprivileged, allow_writes=True) as platform:
        assert not platform.writable
        assert not platform.permitted
        assert platform.space.fastest == len(platform.space) - 1 > 0
        platform.read()
        assert platform.power().total_w is not None
        for _ in range(3):
            with pytest.raises(PlatformError, match="cannot be set"):
                platform.apply(0)
    assert len(caplog.records) == 1
    assert "only read" in caplog.records[0].message
    assert "docs/platforms.md" in caplog.records[0].message
    assert read_all(unprivileged) == before
    # Looking only, the same is found out, and nothing is logged.
    assert not detect(unprivileged).permitted
    assert len(caplog.records) == 1


class Partly(FakeKernel):
    """With the right to some files only."""

    def __init__(self, root, may_write):
        super().__init__(root)
        self.may_write = may_write

    def is_writable(self, path):
        return self.may_write(path) and super().is_writable(path)


def test_rights_to_some_domains_only(root):
    files = Partly(root, lambda path: "devfreq" in path)
    with detect(files=files, allow_writes=True) as platform:
        assert platform.space.names == ("gpu",)
        assert len(platform.notes) == 3
        platform.apply(0)
    assert {path.split("/")[2] for path, _ in files.writes} == {"17000000.gp10b"}


def test_rights_to_frequencies_but_not_to_cores(root):
    files = Partly(root, lambda path: "online" not in path)
    with detect(files=files, allow_writes=True) as platform:
        assert platform.space.names == ("little", "big", "gpu", "emc")
        assert platform.space[0][0].cores == 0
        assert [note for note in platform.notes if "cores are not switched" in note]
        platform.apply(0)
        assert (root / CPUS / "cpu5/online").read_text() == "1\n"


def test_unreadable_state_file(root):
    write_file(root, STATE, "{}")
    state = ClockState(SystemFiles(root), root / "run/jetson_dnn_rt")
    (root / STATE).chmod(0)
    root.chmod(0)
    before = os.geteuid()
    try:
        if before == 0:
            os.seteuid(65534)
        with pytest.raises(PlatformError, match="Permission denied"):
            state.read()
    finally:
        os.seteuid(before)
        root.chmod(0o755)
    state.close()
    state.close()


LIMITS = {f"{POLICY}/scaling_min_freq": 499200, f"{POLICY}/scaling_max_freq": 1113600}


def leave_state(root, values):
    """What a killed process would have left, with the clocks as `LIMITS` has them at the end."""
    state = {"version": 1, "boot_id": BOOT_ID, "values": {**values, **LIMITS}}
    write_file(root, STATE, json.dumps(state))


def read_limits(root):
    return {path: int((root / path).read_text()) for path in LIMITS}


@pytest.mark.parametrize(
    "path",
    [
        "sys/\0/online",
        "sys/\ud800/online",
        "pipe/online",
        "{root}/pipe/online",
        "a" * 5000,
        "pipe/min_freq",
        f"{POLICY}/nothing/online",
        f"{CPUS}/cpu99/online",
    ],
    ids=["NUL", "surrogate", "pipe", "absolute", "long", "pair", "not there", "no core"],
)
def test_an_entry_that_is_no_clock_keeps_no_other_from_coming_back(root, path, caplog):
    """A state file that others may write: its other entries are restored, and nothing hangs."""
    (root / "pipe").mkdir()
    for name in ("online", "min_freq", "max_freq"):
        os.mkfifo(root / "pipe" / name)
    path = path.replace("{root}", os.fspath(root))
    bad = {path: 1, path.replace("min_freq", "max_freq"): 2}
    leave_state(root, {path + "/online": 1, **bad} if path.startswith("a") else bad)
    assert read_limits(root) != LIMITS
    with caplog.at_level(logging.ERROR), detect(files=FakeKernel(root), allow_writes=True) as it:
        assert it.writable, it.reason
        assert read_limits(root) == LIMITS
    (record,) = caplog.records
    assert "not used of" in record.message
    assert len(record.message.encode()) < 2000  # and can be encoded


@pytest.mark.parametrize("value", [-1, 10**15, 10**4000], ids=["negative", "large", "huge"])
def test_a_value_that_no_clock_has_keeps_no_other_from_coming_back(root, value, caplog):
    leave_state(root, {f"{CPUS}/cpu1/online": value})
    with caplog.at_level(logging.ERROR), detect(files=FakeKernel(root), allow_writes=True) as it:
        assert it.writable, it.reason
        assert read_limits(root) == LIMITS
    assert "is not a value" in caplog.text


def test_a_guardian_restores_behind_what_is_no_clock(root):
    """The same for the process that is left when the first was killed."""
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe/online")
    with Child(root) as child:
        leave_state(root, {"sys/\0/online": 1, "pipe/online": 1})
        child.kill()
    assert read_limits(root) == LIMITS
    assert "not used of" in child.errors


@pytest.mark.parametrize("kind", ["pipe", "link", "loop", "folder", "too large"])
def test_what_is_no_state_file_is_set_aside(root, kind, caplog):
    """No pipe hangs the start, no link is followed, and the next start finds nothing."""
    place = root / STATE
    place.parent.mkdir(parents=True)
    write_file(root, "elsewhere", json.dumps({"version": 1, "boot_id": BOOT_ID, "values": {}}))
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "too large":
        place.write_text(" " * ((1 << 20) + 1))
    else:
        place.symlink_to(place if kind == "loop" else root / "elsewhere")
    with caplog.at_level(logging.ERROR), detect(root, allow_writes=True) as platform:
        assert platform.writable
        assert ["is not used" in record.message for record in caplog.records] == [True]
        assert not os.path.lexists(place)
        assert os.path.lexists(place.with_suffix(".unusable"))
        platform.apply(0)
        assert place.is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of others")
@pytest.mark.parametrize(("mode", "read"), [(0o755, False), (0o1777, False), (0o2770, True)])
def test_a_state_file_of_somebody_else_counts_where_a_group_shares_the_folder(root, mode, read):
    leave_state(root, {})
    os.chown(root / STATE, 12345, -1)
    (root / STATE).parent.chmod(mode)
    with detect(files=FakeKernel(root), allow_writes=True):
        assert (read_limits(root) == LIMITS) == read


def test_files_beside_the_state_file_are_never_those_of_others(root):
    """A link in a shared folder makes nobody write, or change the rights of, what it names."""
    folder = root / "run/jetson_dnn_rt"
    folder.mkdir(parents=True)
    victim = root / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    (folder / "clocks.new").symlink_to(victim)
    lock = folder / "clocks.lock"
    for make, text in (
        (lambda: lock.symlink_to(victim), ""),
        (lambda: lock.hardlink_to(victim), " is no file of its own"),
        (lambda: os.mkfifo(lock), " is no file of its own"),
    ):
        make()
        with pytest.raises(PlatformError, match=rf"clocks\.lock{text}"):
            ClockState(SystemFiles(root), folder)
        lock.unlink()
    state = ClockState(SystemFiles(root), folder)
    state.write({"a": 1})
    assert state.read() == {"a": 1}
    state.close()
    assert victim.read_text() == "precious"
    assert victim.stat().st_mode & 0o777 == 0o600
