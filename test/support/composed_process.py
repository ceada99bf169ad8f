# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The composed process with camera, tasks and coordinator, driven from outside over DDS."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import yaml
from hostile_images import fill_message, make_fields, mutate_fields
from lifecycle_msgs.srv import ChangeState, GetState
from node_process import Process
from process_samples import Sampler
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from ros_graph import Ros
from sensor_msgs.msg import Image
from statuses import Statuses, Values, read_outcomes

from jetson_dnn_rt.demo.scenes import random_scene

if TYPE_CHECKING:
    import program

TASKS = ("detector", "segmenter")
"""The tasks on the camera."""

GUEST = "guest/detector"
"""A task on a topic: a real network, strangers' images, a variant that is added while it runs."""

TUCKER, FULL = "tucker-0.50@onnxruntime-fp32", "full@onnxruntime-fp32"
SIZE = 240, 320
NULL = {"detector": "null:1", "segmenter": "null:1,segmentation"}
BUILTIN = {"detector": "builtin:detector", "segmenter": "builtin:segmenter"}

CONFIGURE, CLEANUP, ACTIVATE, DEACTIVATE = 1, 2, 3, 4
GOALS = {
    CONFIGURE: "inactive", CLEANUP: "unconfigured", ACTIVATE: "active", DEACTIVATE: "inactive",
}  # fmt: skip
PRIMARY = (*GOALS.values(), "finalized")

TIMEOUT_S = 240.0
ANSWER_S = 10.0
"""Fast DDS drops an answer when the server has not discovered the client's half of it yet."""


class ComposedProcess:
    """`perception` with a camera of `rate_hz` and a trace below `folder`, active when made.

    `models` are those of `TASKS`. With `guest` there is the task `GUEST`, whose first variant is
    built in the background; until it is there `wait_for_variant` waits.
    """

    def __init__(
        self, ros: Ros, folder: Path, rate_hz: float, models: dict[str, str] = NULL,
        *, deadline_ms: float = 50.0, guest: bool = True,
    ) -> None:  # fmt: skip
        self._ros, self.folder, self.deadline_ms = ros, folder, deadline_ms
        self._clients: dict[str, Any] = {}
        self.cycles_of_tasks = 0  # each leaves a gap in the frames of a task
        self._library, self._hidden = folder / "library", folder / "library.hidden"
        pictures = folder / "pictures"
        pictures.mkdir(parents=True)
        for seed in range(8):
            cv2.imwrite(str(pictures / f"{seed}.jpg"), random_scene(seed, SIZE).image)
        file = folder / "perception.yaml"
        values = self._make_values(rate_hz, models, deadline_ms, guest)
        nodes = {f"/{node}": {"ros__parameters": given} for node, given in values.items()}
        file.write_text(yaml.safe_dump(nodes), encoding="utf-8")
        self.statuses = ros.call(lambda: Statuses(ros.probe))
        own = folder / "memory.json"
        self.process = Process(
            "perception", "--params-file", str(file),
            prelude=f"import own_memory; own_memory.start({str(own)!r})",
        )  # fmt: skip
        self._camera, self._lock = CameraCount(), threading.Lock()
        try:
            self.wait_for_state("/perception", "active")
        except BaseException:
            self.close()
            raise
        self.sampler = Sampler(self.process.pid, own, self._describe)

    def _make_values(
        self, rate_hz: float, models: dict[str, str], deadline_ms: float, guest: bool
    ) -> dict[str, dict[str, Any]]:
        task = {"deadline_ms": deadline_ms, "warmup_runs": 5}
        values = {
            "perception": {
                "tasks": [*TASKS, *([GUEST] if guest else [])],
                "autostart": True, "workers": 2, "threads": 1,
                "trace_dir": str(self.folder / "trace"),
            },
            "camera": {"source": f"images:{self.folder / 'pictures'}", "rate": rate_hz},
            **{name: {"model": models[name], **task} for name in TASKS},
        }  # fmt: skip
        if guest:
            values[GUEST] = {
                "camera": "", "model": "builtin:detector", "variants": [TUCKER, FULL],
                "input_qos": "DEFAULT", "input_qos_depth": 10, "deadline_ms": 1000.0,
                "warmup_runs": 5, "threads": 1, "least_agreement": 0.0,
                "engine_cache": str(self._library),
                "build_frames": f"images:{self.folder / 'pictures'}",
            }  # fmt: skip
        return values

    def _describe(self) -> dict[str, float]:
        with self._lock:  # the sampler asks, too
            values = self.statuses.read("/camera: camera_status")
            return {
                "frames": self._camera.count(int(values.get("frames", 0))),
                "buffers_mb": float(values.get("buffers_mb", 0.0)),
            }

    @property
    def frames(self) -> int:
        """Frames of the camera so far, as diagnostics last said."""
        return int(self._describe()["frames"])

    def wait_for_frames(self, count: int) -> None:
        """Wait until the last task on the camera has had so many frames more."""
        before: int | None = None
        while count > 0:
            name = f"/{TASKS[-1]}: task_status"
            released = int(self.statuses.wait(name, lambda v: "released" in v)["released"])
            if before is not None:
                # It counts from 0 again when it becomes active.
                count -= released - before if released >= before else released
            before = released

    # -- services ------------------------------------------------------------------------------

    def call(self, kind: Any, name: str, request: Any) -> Any:
        """The answer of a service; None where none came in time."""
        client, done = self._find_client(kind, name), threading.Event()
        if client is None:
            return None
        future = self._ros.call(lambda: client.call_async(request))
        future.add_done_callback(lambda _: done.set())
        if done.wait(ANSWER_S):
            return future.result()
        client.remove_pending_request(future)
        return None

    def _find_client(self, kind: Any, name: str) -> Any:
        """The one client of a service; None where that is not there."""
        if name not in self._clients:
            self._clients[name] = self._ros.call(lambda: self._ros.probe.create_client(kind, name))
        client = self._clients[name]
        return client if client.wait_for_service(ANSWER_S) else None

    def set(self, node: str, **values: Any) -> bool:
        """Set parameters; whether all were accepted."""
        given = [Parameter(name, value=value).to_parameter_msg() for name, value in values.items()]
        request = SetParameters.Request(parameters=given)
        answer = self.call(SetParameters, f"{node}/set_parameters", request)
        return answer is not None and all(result.successful for result in answer.results)

    def read_state(self, node: str) -> str:
        """State of a node; empty where it does not answer."""
        answer = self.call(GetState, f"{node}/get_state", GetState.Request())
        return "" if answer is None else str(answer.current_state.label)

    def wait_for_state(self, node: str, goal: str, ask: Callable[[], None] | None = None) -> None:
        """Wait until a node is in a state; `ask` asks for that, again when it is forgotten."""
        end_s, ask_s = time.monotonic() + TIMEOUT_S, 0.0
        while (state := self.read_state(node)) != goal:
            if self.process.code is not None or time.monotonic() > end_s:
                raise TimeoutError(f"{node} is {state}, not {goal}:\n{self.process.said[-4000:]}")
            if ask is not None and state in PRIMARY and time.monotonic() > ask_s:
                ask_s = time.monotonic() + ANSWER_S
                ask()
            time.sleep(0.05)

    def change(self, node: str, *transitions: int) -> None:
        """Let a node make transitions, one after the other."""
        for number in transitions:
            request = ChangeState.Request()
            request.transition.id = number
            self.wait_for_state(
                node,
                GOALS[number],
                # Its answer comes when it is done; what counts is the state.
                lambda request=request: self._ask(f"{node}/change_state", request),
            )

    def _ask(self, name: str, request: Any) -> None:
        if (client := self._find_client(ChangeState, name)) is not None:
            self._ros.call(lambda: client.call_async(request))

    # -- what may happen -----------------------------------------------------------------------

    def restart(self) -> None:
        """Deactivate and activate everything."""
        self.change("/perception", DEACTIVATE, ACTIVATE)

    def reconfigure(self) -> None:
        """Clean everything up and begin again."""
        self.change("/perception", DEACTIVATE, CLEANUP, CONFIGURE, ACTIVATE)

    def restart_task(self) -> None:
        """Deactivate and activate one task while the others go on."""
        self.cycles_of_tasks += 1
        self.change(f"/{TASKS[0]}", DEACTIVATE, ACTIVATE)

    def add_variant(self) -> None:
        """Load the guest without one of its variants and add that while all tasks run.

        The library is there again when the task has found that the variant is missing, so that
        what would build it has only to look.
        """
        self.change(f"/{GUEST}", DEACTIVATE, CLEANUP)
        self._library.rename(self._hidden)
        self.change(f"/{GUEST}", CONFIGURE)
        if self._library.exists():
            shutil.rmtree(self._library)
        self._hidden.rename(self._library)
        self.change(f"/{GUEST}", ACTIVATE)
        self.wait_for_variant()

    def wait_for_variant(self) -> None:
        """Wait until the guest has all its variants."""

        def has_all(values: Values) -> bool:
            return values.get("left_out") == "none" and TUCKER in values["variants"]

        end_s = time.monotonic() + TIMEOUT_S
        while True:
            # Builds have the lowest priority: beside other work they would take minutes.
            for child in self.process.descendants():
                hurry(child)
            try:
                self.statuses.wait(f"/{GUEST}: task_status", has_all, 2.0)
                return
            except TimeoutError:
                if self.process.code is not None or time.monotonic() > end_s:
                    raise

    # -- the end -------------------------------------------------------------------------------

    def settle(self) -> dict[str, dict[str, int]]:
        """Stop the camera; the outcomes of each task of `TASKS` when its last frame has ended."""
        self.change("/camera", DEACTIVATE)
        found = {}
        for task in TASKS:
            for _ in range(2):  # the first may be older than the camera's last frame
                values = self.statuses.wait(
                    f"/{task}: task_status",
                    lambda v: v.get("released") == str(sum(read_outcomes(v).values())),
                )
            found[task] = read_outcomes(values)
        return found

    def end(self, result: program.Result, part: str = "") -> None:
        """End the process as Ctrl-C does, and judge whether it lived without a fault."""
        fault = self.fault
        self.sampler.stop()
        code = self.process.end(signal.SIGINT)
        if fault:
            result.faults.append(f"{part}{fault}")
        result.judge(
            f"{part}no fault in diagnostics, exit code 0",
            f"{fault or 'no fault'}, {code}",
            not fault and code == 0,
        )

    def __enter__(self) -> ComposedProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is not None:
            sys.stderr.write(self.process.said[-20_000:])
        self.close()

    def close(self) -> None:
        """End it in any case."""
        if hasattr(self, "sampler"):
            self.sampler.stop()
        self.process.close()

    @property
    def fault(self) -> str:
        """What its statuses say of faults, dead threads and losses, unless that is nothing."""
        process = self.statuses.read("/perception: process_status")
        session = self.statuses.read("/perception: perception_status")
        wanted = {"faults": "0", "dead_threads": "none", "records_lost": "0", "trace_lost": "0"}
        found = {**session, **process}
        return "" if wanted.items() <= found.items() else f"{process}, {session}"


def hurry(process: Path) -> None:
    """Give all threads of a process, by its folder in /proc, the priority of this one."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for thread in process.glob("task/*"):
        with contextlib.suppress(OSError):  # it has ended, or only root may
            os.setpriority(os.PRIO_PROCESS, int(thread.name), own)


class CameraCount:
    """Frames of a camera that counts from 0 again when it is configured."""

    def __init__(self) -> None:
        self._before = self._last = 0

    def count(self, frames: int) -> int:
        """All frames, given those since it was configured."""
        if frames < self._last:
            self._before += self._last
        self._last = frames
        return self._before + frames


class GuestFrames:
    """Sends images to `GUEST` at a steady rate, on a thread; `spoil` puts hostile ones between."""

    def __init__(self, ros: Ros, rate_hz: float = 5.0) -> None:
        topic = f"/{GUEST.rpartition('/')[0]}/image_raw"
        self._images = ros.advertise(Image, topic, QoSProfile(depth=10))
        self._period_s = 1.0 / rate_hz
        self.sent = self.hostile = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def spoil(self, seed: int) -> None:
        """Send one message that is not what it says."""
        self._send(mutate_fields(seed))
        self.hostile += 1

    def stop(self) -> None:
        """Send no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            self._send(make_fields())

    def _send(self, fields: dict[str, Any]) -> None:
        self._images.publish(fill_message(Image(), fields))
        self.sent += 1


def subscribe(ros: Ros, kind: Any, topic: str, take: Callable[[Any], None]) -> Callable[[], None]:
    """Subscribe to a topic until the returned function is called."""
    probe = ros.probe
    subscription = ros.call(
        lambda: probe.create_subscription(kind, topic, take, qos_profile_sensor_data)
    )
    return lambda: ros.call(lambda: probe.destroy_subscription(subscription))
