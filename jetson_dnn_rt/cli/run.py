# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Run camera, detector and segmenter in one process: the graph of the launch file.

Without --params the package's config/perception.param.yaml is used. Without --frames and --seconds
it runs until its video or folder has been played once, whatever `loop` in the file says, or until
Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jetson_dnn_rt.cli.environment import find_picture_bytes, find_shared_file, prepare_environment
from jetson_dnn_rt.cli.options import (
    NONE,
    add_trace_limit,
    parse_assignment,
    parse_count,
    parse_deadline,
    parse_positive,
    parse_setting,
)
from jetson_dnn_rt.cli.progress import Progress
from jetson_dnn_rt.config.camera_sources import SOURCE_FORMS
from jetson_dnn_rt.config.nodes import DEFAULT_TASKS, PERCEPTION
from jetson_dnn_rt.config.parameter_file import read_parameter_file
from jetson_dnn_rt.config.perception import read_config
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError, SourceError, blaming, naming
from jetson_dnn_rt.safety.utf8_paths import escape, is_utf8

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jetson_dnn_rt.cli.recorder import Recorder
    from jetson_dnn_rt.config.perception import PerceptionConfig
    from jetson_dnn_rt.nodes.process.graph import GraphInfo, GraphReport

HELP = "run the graph on a camera, a video or the synthetic drive, and report"
PARAMETERS = "config/perception.param.yaml"
_REPEATED: dict[str, Any] = {"action": "append", "default": []}

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("--params", type=Path, metavar="FILE", help="ROS parameter file")
    add("--source", metavar="S", help=", ".join(SOURCE_FORMS))
    models = "builtin:detector, onnx:PATH, torchvision:NAME, exported:PATH"
    add("--detector", metavar="MODEL|none", help=f"{models}; none = without this task")
    add("--segmenter", metavar="MODEL|none", help="the same")
    text = "as in detector=full@openvino-fp32 (docs/variants.md lists the names); may be repeated"
    add("--variant", **_REPEATED, type=parse_assignment, metavar="TASK=NAME", help=text)
    text = "relative deadline; may be repeated"
    add("--deadline", **_REPEATED, type=parse_deadline, metavar="TASK=MS", help=text)
    text = "any parameter, as in detector.confidence_threshold=0.4; may be repeated"
    add("--set", **_REPEATED, type=parse_setting, metavar="TASK.PARAMETER=VALUE", help=text)
    add("--rate", type=parse_positive, metavar="HZ", help="of the frames (default: the source's)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--frames", type=parse_count, metavar="N", help="end after N frames")
    length.add_argument("--seconds", type=parse_positive, metavar="S", help="end after S seconds")
    add("--output", type=Path, metavar="DIR", help="write pictures, plot, trace and summary")
    text = "every frame with what was found, .mp4 or .avi (default: DIR/annotated.mp4)"
    add("--video", metavar="FILE|none", help=text)
    add_trace_limit(parser, "at the limit its oldest parts make room for new ones")
    add("--results", type=Path, metavar="FILE.jsonl", help="write what was found in every frame")
    add("--masks", action="store_true", help="with --results: whole masks, as PNG, for agree")
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Run the graph and report.

    ConfigurationError: the options or the configuration cannot be used. SourceError: no frame
    came, or the source failed midway.
    """
    if args.masks and args.results is None:
        raise ConfigurationError("--masks needs --results FILE.jsonl, which the masks go into")
    stop = threading.Event()
    report, recorder = _run(args, stop)
    from jetson_dnn_rt.cli.run_report import format_table, list_videos, to_dict, write_output

    files: list[Path] = []
    incomplete: JetsonDnnRtError | None = None
    if args.output:
        try:
            files += write_output(args.output, report, recorder)
        except JetsonDnnRtError as error:
            incomplete = error  # what happened to the frames is reported all the same
    videos = list_videos(recorder)
    files += [video.file for video in videos]
    table = format_table(report, recorder.summary)
    print(table, file=sys.stderr if args.json else sys.stdout)
    for video in videos:
        if video.left_out:
            print(
                f"{video.file}: {video.frames} frames, {video.left_out} left out because the "
                "encoder, which gets what the tasks leave, could not keep up",
                file=sys.stderr,
            )
    if files:
        print(f"written: {', '.join(map(str, files))}", file=sys.stderr)
    if args.json:
        print(json.dumps(to_dict(report, recorder.summary)))
    _check(report, recorder, interrupted=stop.is_set())
    if incomplete is not None:
        raise incomplete
    return 0


def _has_length(args: argparse.Namespace) -> bool:
    return args.frames is not None or args.seconds is not None


def make_overrides(args: argparse.Namespace, params: Path) -> dict[str, dict[str, object]]:
    """The options as parameters by node; ``--set`` wins over an option that means the same."""
    overrides: dict[str, dict[str, object]] = {}

    def put(name: str, parameter: str, value: object) -> None:
        if value is not None:
            overrides.setdefault(name, {})[parameter] = value

    put("camera", "source", args.source)
    put("camera", "rate", args.rate)
    if args.source is not None and _has_length(args):
        put("camera", "loop", True)
    for task in DEFAULT_TASKS:
        if getattr(args, task) == NONE:
            tasks = overrides.get(PERCEPTION, {}).get("tasks", read_parameter_file(params).tasks)
            left = [name for name in cast("Sequence[str]", tasks) if name != task]
            if not left:
                raise ConfigurationError(f"no task is left without the {task}")
            put(PERCEPTION, "tasks", left)
        else:
            put(task, "model", getattr(args, task))
    for task, variant in args.variant:
        put(task, "variants", [variant])
        put(task, "variant", variant)
    for task, deadline_ms in args.deadline:
        put(task, "deadline_ms", deadline_ms)
    for task, parameter, value in args.set:
        overrides.setdefault(task, {})[parameter] = value
    return overrides


def _refuse_other_names(overrides: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse names of files that are not UTF-8, which parameters of ROS must be."""
    for node, values in overrides.items():
        for parameter, value in values.items():
            if isinstance(value, str) and not is_utf8(value):
                raise ConfigurationError(
                    f"{node}: {parameter} {escape(value)} is not UTF-8, as ROS needs "
                    "its arguments; fix: rename the file or folder, or give a link to it (ln -s)"
                )


def _check_configuration(
    params: Path, overrides: dict[str, dict[str, object]]
) -> PerceptionConfig:
    """Find mistakes before anything is loaded; ConfigurationError says what was meant."""
    from jetson_dnn_rt.cameras.source import split_source
    from jetson_dnn_rt.models.sources.registry import split_model
    from jetson_dnn_rt.variants.spec import parse_variants

    file = read_parameter_file(params)
    config = read_config(file, overrides, only_ours=True, namespace="/")
    node = ""
    try:
        for camera in config.cameras:
            node = camera.name
            with blaming("source"):
                split_source(camera.source)
        for task in config.tasks:
            node = task.name
            with blaming("model"):
                scheme, _ = split_model(task.model)
            # A node keeps them for the model that is set next.
            if scheme != "torchvision" and task.weights not in ("DEFAULT", NONE):
                raise ConfigurationError(
                    f"weights is for torchvision: models, not for {task.model}: {task.weights!r}",
                    "weights",
                )
            parse_variants(task)
    except JetsonDnnRtError as error:
        text = file.explain(node, error, overrides.get(node, ()))
        raise ConfigurationError(text) from error
    return config


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse a file where a folder is needed, and a folder where a file is."""
    if args.results and args.results.is_dir():
        raise ConfigurationError(
            f"--results {args.results} is a folder: give a file, as {args.results}/found.jsonl"
        )
    for folder in filter(None, (args.output, args.results and args.results.parent)):
        for one in (folder, *folder.parents):
            if one.is_file():
                raise ConfigurationError(
                    f"cannot write into {folder}: {one} is a file; give another folder"
                )


def _list_defaults(args: argparse.Namespace, overrides: dict[str, dict[str, object]]) -> list[str]:
    """Say that a task runs with its defaults where the options give another a model."""
    modelled = [task for task in DEFAULT_TASKS if "model" in overrides.get(task, {})]
    if args.params is not None or not modelled or "tasks" in overrides.get(PERCEPTION, {}):
        return []
    others = [task for task in DEFAULT_TASKS if task not in overrides]
    return [
        f"the {task} runs, too, with its default model; without it: --{task} {NONE}"
        for task in others
    ]


def _run(args: argparse.Namespace, stop: threading.Event) -> tuple[GraphReport, Recorder]:
    from jetson_dnn_rt.cli.recorder import Recorder
    from jetson_dnn_rt.cli.run_report import TRACE, VIDEO
    from jetson_dnn_rt.cli.video import RunVideo
    from jetson_dnn_rt.nodes.process.graph import run_graph
    from jetson_dnn_rt.nodes.process.running import stop_on_signals
    from jetson_dnn_rt.runtime.start_times import find_birth_ns
    from jetson_dnn_rt.traces.metadata import describe_run
    from jetson_dnn_rt.traces.schema import TraceMetadata

    params = args.params or find_shared_file(PARAMETERS)
    if params is None:
        raise ConfigurationError(f"{PARAMETERS} of this package is not installed: give --params")
    overrides = make_overrides(args, params)
    _refuse_other_names({"run": {"--params": str(params)}, **overrides})
    config = _check_configuration(params, overrides)
    sizes = [(camera.width, camera.height) for camera in config.cameras]
    prepare_environment(picture_bytes=find_picture_bytes(sizes))
    if not _has_length(args):
        for camera in config.cameras:  # a source with an end is played once
            overrides.setdefault(camera.name, {}).setdefault("loop", False)
    for note in _list_defaults(args, overrides):
        logger.warning("%s", note)
    _check_outputs(args)
    trace = args.output / TRACE if args.output else None
    if args.output:
        # Imported while the models load, so that the end does not wait for it.
        threading.Thread(target=__import__, args=("matplotlib.figure",), daemon=True).start()
    ready = threading.Event()
    video = args.video or (args.output / VIDEO if args.output else NONE)
    parent = args.results.parent if args.results else None
    made = parent if parent is not None and not parent.exists() else None
    with naming(args.output or args.results or Path(video)):
        recorder = Recorder(
            args.results,
            trace,
            masks=args.masks,
            video=None if video == NONE else RunVideo(Path(video)),
            keep_sight=args.output is not None,
            trace_limit_mb=args.trace_limit_mb,
        )
    if made is not None:
        logger.info("made the folder %s", made)
    with stop_on_signals(stop), recorder, Progress() as progress:

        def on_ready(info: GraphInfo) -> None:
            metadata = TraceMetadata()
            if trace is not None:
                traced = {name: task.traced for name, task in info.tasks.items()}
                metadata = describe_run(
                    "run", traced, settings=info.settings, parameters=info.parameters
                )
            with naming(trace or Path(video)):
                recorder.introduce(info.tasks, metadata, info.clocks_at)
            ready.set()
            _announce(info)
            progress.start(recorder.summary)

        future: Future[GraphReport] = Future()

        def run() -> None:
            try:
                report = run_graph(
                    params,
                    overrides,
                    frames=args.frames,
                    seconds=args.seconds,
                    observer=recorder.observe,
                    on_ready=on_ready,
                    stop=stop,
                    begin_ns=find_birth_ns(),
                )
                future.set_result(report)
            except BaseException as error:
                future.set_exception(error)

        # Not on the main thread: loading a model can take long, and a signal must end that too.
        threading.Thread(target=run, name="session", daemon=True).start()
        while not wait([future], timeout=0.1).done:
            if stop.is_set() and not ready.is_set():
                print("interrupted before the first frame", file=sys.stderr, flush=True)
                os._exit(0)
    return future.result(), recorder


def _announce(info: GraphInfo) -> None:
    """Say what the nodes have not logged."""
    for name, task in info.tasks.items():
        deadline_ms = task.traced.deadline_ns / 1e6
        logger.info(
            "%s: %s, %s, deadline %g ms", name, task.traced.model, task.variant, deadline_ms
        )


def _check(report: GraphReport, recorder: Recorder, *, interrupted: bool) -> None:
    """Fail a run whose results, trace, video or counts are incomplete."""
    lost = recorder.lost - recorder.removed  # jobs removed to make room are as configured
    if recorder.error is not None or lost:
        missing = f"{lost} jobs are not in the trace" if lost else ""
        why = "; ".join(filter(None, (missing, str(recorder.error or ""))))
        raise SourceError(f"results, trace or video are incomplete: {why}")
    for name, counts in report.counts.items():
        seen = recorder.summary.tasks[name].released
        if counts.released != seen:
            raise SourceError(f"{name}: {counts.released} frames released, {seen} accounted for")
    for camera in report.cameras.values():
        if camera.error:
            raise SourceError(f"{camera.name}: {camera.error}")
    if not interrupted and not any(counts.released for counts in report.counts.values()):
        raise SourceError("no frame came")
    if silent := [name for name, counts in report.counts.items() if not counts.released]:
        raise SourceError(
            f"no frame reached {', '.join(silent)}; fix: in its section `camera: NAME`, one of "
            f"{', '.join(report.cameras) or 'none, for there is none'}; or leave the task out"
        )
