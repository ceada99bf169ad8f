# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Machines whose clocks are set through files of the kernel."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.boards import PowerMode
from jetson_dnn_rt.platforms.clocks import ClockConfiguration, ClockSpace
from jetson_dnn_rt.platforms.controls import Control
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.guardian import Guardian
from jetson_dnn_rt.platforms.platform import Platform, Power
from jetson_dnn_rt.platforms.power import Meter
from jetson_dnn_rt.platforms.state import ClockState, list_failures, read_values, write_values

logger = logging.getLogger(__name__)

STATE_DIR = "run/jetson_dnn_rt"  # default folder of the state file, below the root
FIX = (
    "give a group the right to write it and run as a member, not as root: docs/platforms.md has "
    "the rule"
)


class WriteSession:
    """The right to write clocks, acquired before they are read.

    It first restores what a killed process left changed, because a platform stays within the
    limits and cores that it finds at its start. `asked`: whether clocks will be set; the state
    file is in `folder`, `STATE_DIR` by default.
    """

    def __init__(self, files: SystemFiles, *, asked: bool, folder: Path | None = None) -> None:
        self.asked = asked
        self.state: ClockState | None = None
        """None without the right, or if not requested."""
        self.obstacle = ""  # why clocks cannot be set, with the fix; empty when they can
        folder = files.root / STATE_DIR if folder is None else folder
        if not asked:
            place = folder if folder.is_dir() else folder.parent
            if not os.access(place, os.W_OK | os.X_OK):
                self.obstacle = f"no right to write the state file in {folder}; {FIX}"
            return
        try:
            # Absolute: the guardian has another working directory.
            self.state = ClockState(files, folder.absolute())
            if self.state.give_back():
                logger.warning("restored the clocks that a killed process had left changed")
        except PlatformError as error:
            self.obstacle = str(error)
        remarks = [] if self.state is None else self.state.remarks
        if self.obstacle:
            self.close()
        for remark in remarks:
            logger.error("%s", remark)

    def close(self) -> None:
        """Release the right."""
        if self.state is not None:
            self.state.close()
            self.state = None


class SettablePlatform(Platform):
    """Base of Jetsons and PCs: a control for each domain, and a meter."""

    def __init__(
        self,
        name: str,
        title: str,
        files: SystemFiles,
        controls: Sequence[Control],
        meter: Meter,
        session: WriteSession,
        modes: Sequence[PowerMode] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.title = title
        self._files = files
        notes = [*notes, *meter.notes]
        refused = {control: files.find_unwritable(control.paths) for control in controls}
        granted = [control for control in controls if not refused[control]]
        obstacle = session.obstacle
        if not controls:
            obstacle = "none of its clocks is visible"
        elif not granted:
            obstacle = f"{refused[controls[0]]} cannot be written; {FIX}"
        elif not obstacle:
            for control in controls:
                if refused[control]:
                    notes.append(f"{control.domain.name}: {refused[control]} cannot be written")
        self.permitted = not obstacle
        if not obstacle and session.state is None:
            obstacle = "setting them was not asked for"
        self._guardian: Guardian | None = None
        if not obstacle and session.state is not None:
            # Before anything is written, and not at the first write, which must be quick.
            try:
                self._guardian = Guardian(files.root, session.state, self._lose_guardian)
            except PlatformError as error:
                obstacle = str(error)
        self.writable = not obstacle
        self.reason = obstacle
        # Only settable domains are offered; where none is, all are shown.
        self._controls = tuple(granted if self.writable else controls)
        self._paths = [path for control in self._controls for path in control.paths]
        self.space = ClockSpace(control.domain for control in self._controls)
        self.modes = tuple(modes)
        self.notes = tuple(notes)
        self._meter = meter
        self._state = session.state
        self._changed = False
        self._before: dict[str, int] = {}
        self._lock = threading.RLock()
        self._process = os.getpid()
        if self.writable:
            atexit.register(self._close_at_exit)
        else:
            session.close()
            self._state = None
            if session.asked:
                logger.warning("the clocks of %s are only read: %s", title, obstacle)
        for note in notes:
            logger.info("%s: %s", title, note)

    def read(self) -> ClockConfiguration:
        """The present clocks of the hardware: lower than those set while it throttles."""
        return tuple(control.read() for control in self._controls)

    def apply(self, index: int) -> ClockConfiguration:
        """See `Platform.apply`. Domains that are set so already are not written."""
        configuration = self.space[index]
        with self._lock:
            if not self.writable or self._state is None:
                return super().apply(index)
            if not self._changed:
                self._before = read_values(self._files, self._paths)
                self._state.write(self._before)
                self._changed = True
            for control, option in zip(self._controls, configuration, strict=True):
                if control.setting() != option:
                    control.write(option)
            return tuple(control.setting() or control.read() for control in self._controls)

    def power(self) -> Power:
        """See `Platform.power`."""
        return self._meter.power()

    def energy_j(self) -> float | None:
        """See `Platform.energy_j`."""
        return self._meter.energy_j()

    def restore(self) -> None:
        """See `Platform.restore`. PlatformError: the guardian and the next start try again."""
        with self._lock:
            # A forked process has this object too, but nothing to restore.
            if not self._changed or self._state is None or os.getpid() != self._process:
                return
            failures = write_values(self._files, self._before)
            if failures:
                raise PlatformError(f"clocks were not restored: {list_failures(failures)}")
            self._state.forget()
            self._changed = False

    def close(self) -> None:
        """Restore the clocks and release them for other processes."""
        with self._lock:
            try:
                self.restore()
            finally:
                atexit.unregister(self._close_at_exit)
                if self._guardian is not None:
                    # It has the lock too, and retries what was not restored here.
                    self._guardian.stop()
                    self._guardian = None
                if self._state is not None:
                    self._state.close()
                    self._state = None
                    self.writable = False
                    self.reason = "the platform is closed"

    def _lose_guardian(self, reason: str) -> None:
        """Restore the clocks: without a guardian none may stay changed."""
        with self._lock:
            self._close_at_exit()
            self.reason = reason
        logger.error("the clocks of %s are only read from now on: %s", self.title, reason)

    def _close_at_exit(self) -> None:
        if os.getpid() == self._process:
            try:
                self.close()
            except PlatformError as error:
                logger.error("%s: %s", self.title, error)
