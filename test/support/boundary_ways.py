# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Every way by which a file from outside gets into the package, and the options that are none.

A way is a program text in which ``{given}`` stands for what an attack has laid. Those of the
nodes' parameters go through the functions that the nodes call.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from attack_arena import Arena
from attacks_on_libraries import CODE, COMPILE, RUN

from jetson_dnn_rt.cli.main import build_parser
from jetson_dnn_rt.config import nodes, process, task
from jetson_dnn_rt.config.declaration import describe


@dataclass(frozen=True)
class Way:
    """An option or parameter, and a program that uses it."""

    entry: str
    """``COMMAND OPTION`` or ``CLASS.parameter``."""
    kind: str
    """Of the file that it takes."""
    program: str
    slow: bool = False
    """More than some seconds: for the long form."""
    words: tuple[str, ...] = ()
    """Of a command line, which is run in a process of its own instead: the start of Python and
    what it imports are part of it."""

    def make_program(self, arena: Arena, given: str) -> str:
        """The program for an arena; sound files that it names are made."""
        return _fill(self.program, arena, given)

    def make_command(self, arena: Arena, given: str) -> list[str]:
        """The process of a way that is `fresh`: the script that users start."""
        script = Path(sys.prefix, "bin", "jetson-dnn-rt")
        code = f"{_SAFE}from jetson_dnn_rt.cli.main import main\nraise SystemExit(main())"
        start = [str(script)] if script.exists() else [sys.executable, "-c", code]
        return [*start, *(_fill(word, arena, given) for word in self.words)]


# Without the working folder, as scripts start.
_SAFE = "import sys\nsys.path[:] = [path for path in sys.path if path[:1] == '/']\n"


def _fill(text: str, arena: Arena, given: str) -> str:
    text = text.replace("{given}", given)
    for name, lay in _SOUND.items():
        if f"{{{name}}}" in text:
            text = text.replace(f"{{{name}}}", str(lay(arena)))
    return text


def _lay_photos(arena: Arena) -> Path:
    import cv2
    import numpy as np

    folder = arena.root / "sound photos"
    folder.mkdir(exist_ok=True)
    for number in range(2):
        picture = np.full((48, 64, 3), 90 * number, np.uint8)
        cv2.imwrite(str(folder / f"{number}.png"), picture)
    return folder


def _lay_results(arena: Arena) -> Path:
    box = {"class_id": 0, "label": "car", "score": 0.5, "xyxy": [0, 0, 4, 4]}
    lines = [{"task": "detector", "frame": n, "outcome": "met", "boxes": [box]} for n in range(2)]
    path = arena.root / "sound.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _lay_other_results(arena: Arena) -> Path:
    path = arena.root / "other.jsonl"
    path.write_text(_lay_results(arena).read_text().replace("[0, 0, 4, 4]", "[9, 9, 13, 13]"))
    return path


def _lay_params(arena: Arena) -> Path:
    path = arena.root / "sound.param.yaml"
    path.write_text(
        "/**:\n  ros__parameters:\n    tasks: [detector]\n"
        "/**/detector:\n  ros__parameters:\n    model: null:1\n    variants: [full@null]\n"
    )
    return path


def _lay_trace(arena: Arena) -> Path:
    from timing_traces import make_jobs, write_trace_of

    folder = arena.root / "sound trace"
    return folder if folder.exists() else write_trace_of(folder, make_jobs(60))


_SOUND = {
    "photos": _lay_photos, "results": _lay_results, "others": _lay_other_results,
    "params": _lay_params, "trace": _lay_trace,
    "out": lambda arena: arena.inside / "out",
    "cache": lambda arena: arena.root / "home" / ".cache" / "jetson_dnn_rt",
}  # fmt: skip


def _command(line: str) -> str:
    words = shlex.split(line)
    return f"from jetson_dnn_rt.cli.main import main\nraise SystemExit(main({words!r}))\n"


def _call(text: str) -> str:
    """Program text that ends as a command does when the package refuses something."""
    inner = "".join(f"    {line}\n" for line in text.strip().splitlines())
    return (
        "from jetson_dnn_rt.errors import JetsonDnnRtError\n"
        "from jetson_dnn_rt.printable import make_printable\n"
        f"try:\n{inner}except JetsonDnnRtError as error:\n"
        "    print(make_printable(str(error)))  # as nodes log it\n    raise SystemExit(1)\n"
    )


_SESSION = """
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.runtime.session import Session
given = {arguments}
with Session(PerceptionConfig(tasks=[TaskConfig('detector', warmup_runs=1, **given)])):
    pass
"""
_CAMERA = """
from jetson_dnn_rt.cameras.camera import open_camera
for frame in open_camera({source!r}, limit=4):
    pass
"""
_FRAMES = """
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames
list(open_frames({source!r}, 4))
"""


def _session(**given: object) -> str:
    return _call(_SESSION.replace("{arguments}", repr(given)))


def _camera(source: str) -> str:
    return _call(_CAMERA.replace("{source!r}", repr(source)))


def _frames(source: str) -> str:
    return _call(_FRAMES.replace("{source!r}", repr(source)))


_IN_LIBRARY = RUN.replace("{given!r}", "'{given}'").replace("{code!r}", repr(CODE))
_IMPORT = (
    "from jetson_dnn_rt.cli.main import main\n"
    "code = main(['library', 'import', '{given}', '--trust', '--engine-cache', '{cache}'])\n"
    + _IN_LIBRARY.replace("{given}", "{cache}")
    + "raise SystemExit(code)\n"
)


_NULL = "--task detector --set detector.model=null:1 --set detector.variants=[full@null]"
_SMALL = "--source synthetic:96x64"
_NET = "torchvision:resnet18"
_DET, _NO, _OUT = "--model builtin:detector", "--engine-cache none", "--output {out}"
_LIB = "--engine-cache {given}"
_RUN = f"run {_SMALL} --segmenter none --detector null:1"

_COMMANDS = f"""
model | inspect model | inspect {{given}}
model | compress --model * | compress --model {{given}} --frames-limit 2 {_NO}
model | profile --model * | profile --model {{given}} --runs 1
model | export-c --model * | export-c --model {{given}} {_OUT} {_NO}
model | run --detector * | run --detector {{given}} --segmenter none --frames 1 {_SMALL}
model | run --segmenter * | run --segmenter {{given}} --detector none --frames 1 {_SMALL}
weights | inspect --weights | inspect {_NET} --weights {{given}}
weights | compress --weights * | compress --model {_NET} --weights {{given}} {_NO}
weights | profile --weights * | profile --model {_NET} --weights {{given}} --runs 1
weights | export-c --model-weights * | export-c --model {_NET} --model-weights {{given}} {_OUT}
labels | inspect --labels | inspect builtin:detector --labels {{given}}
labels | evaluate --set | evaluate {{photos}} --task detector --set detector.labels=[{{given}}]
labels | run --set * | run --set detector.labels=[{{given}}] --frames 1 {_SMALL}
params | build --params | build --params {{given}}
params | run --params | run --params {{given}} --frames 1
params | compress --params | compress --params {{given}}
params | evaluate --params | evaluate {{photos}} --params {{given}}
video | bag source | bag {{given}} -o {{out}}
images | bag source | bag {{given}} -o {{out}}
images | evaluate bags | evaluate images:{{given}} {_NULL}
bag | evaluate bags | evaluate {{given}} {_NULL}
bag | agree --source | agree {{results}} {{others}} --source {{given}} {_OUT}
trace | report traces | report {{given}} {_OUT}
trace | export traces | export {{given}} {_OUT}/jobs.csv
trace | export traces | export {{given}} {_OUT}/jobs.xlsx
trace | export traces | export {{given}} {_OUT}/jobs.json
trace | wcet traces | wcet {{given}}
trace | wcet --validate | wcet {{trace}} --validate {{given}}
trace | compare before | compare {{given}} {{trace}}
trace | compare after | compare {{trace}} {{given}}
trace | evaluate bags | evaluate --mode simulated {{given}} --policy static
scenario | simulate --scenario | simulate --scenario {{given}} --policy static --frames 5
amp | profile --amp-lists * | profile {_DET} --variants full@tvm-fp16 --amp-lists {{given}}
results | agree a | agree {{given}} {{others}} --source images:{{photos}} {_OUT}
results | agree a | agree {{given}} {{given}}
results | agree b | agree {{results}} {{given}}
results | evaluate --truth | evaluate {{photos}} --truth {{given}} {_NULL}
truth | evaluate --truth | evaluate {{photos}} --truth {{given}} {_NULL}
truth | evaluate --streaming | evaluate {{photos}} --mode realtime --streaming {{given}} {_NULL}
library | library list --engine-cache | library list {_LIB}
library | library prune --engine-cache | library prune --stale --dry-run {_LIB}
library | library export --engine-cache | library export {{out}}.tar {_LIB}
library | library import --engine-cache | library import {{params}} --trust {_LIB}
library | build --engine-cache * | build --params {{params}} {_LIB} --runs 1
library | profile --engine-cache * | profile --model null:1 {_LIB} --runs 1
library | compress --engine-cache * | compress {_DET} --frames-limit 2 {_LIB}
library | export-c --engine-cache * | export-c {_DET} {_OUT} {_LIB}
journal | profile --output | profile --model null:1 --runs 1 --output {{given}}
"""
"""Kind of file, option (with * in the long form only), command line."""

_SOURCES = f"""
agree --source | agree {{results}} {{others}} --source SOURCE {_OUT}
run --source * | run --source SOURCE --frames 1 --segmenter none
inspect --frames * | inspect builtin:detector --frames SOURCE {_OUT}
compress --frames * | compress {_DET} --frames SOURCE --frames-limit 2 {_NO}
profile --frames * | profile {_DET} --variants full@onnxruntime-fp32 --frames SOURCE --runs 1
build --frames * | build --params {{params}} --frames SOURCE --runs 1
"""
"""Options that take frames as video:PATH or images:DIR."""

_IN_A_FOLDER = f"""
working folder | library list
working folder | simulate --list
working folder | doctor *
working folder | {_RUN} --frames 1 *
figures | report {{trace}} {_OUT}
figures | simulate --scenario tx2_alexnet --policies static --plot {{out}}*
figures | {_RUN} --frames 3 {_OUT} --video none *
graph | {_RUN} --frames 1
"""
"""Commands that are given nothing, in processes of their own, in a folder with hostile files."""

_CALLS = (
    ("tables", "CoordinatorConfig.tables",
     "from jetson_dnn_rt.coordinator.tables.files import load_tables as read"),
    ("tables", "TaskConfig.profile",
     "from jetson_dnn_rt.runtime.drift_watch import load_time_profiles\n"
     "def read(path): load_time_profiles(str(path), 'detector')"),
    ("amp", "TaskConfig.amp_lists",
     "from jetson_dnn_rt.models.graph.mixed_precision import read_colours as read"),
    ("calibration", "CameraConfig.camera_info_url",
     "from jetson_dnn_rt.nodes.cameras.camera_info import make_camera_info\n"
     "def read(path): make_camera_info(str(path), 4, 4)"),
)  # fmt: skip
"""Parameters of nodes, and the function with which the node reads the file."""


def _list_ways() -> Iterator[Way]:
    yield Way("TaskConfig.model", "model", _session(model="{given}"))
    weights = {"model": _NET, "kind": "classification", "weights": "{given}"}
    yield Way("TaskConfig.weights", "weights", _session(**weights))
    yield Way("TaskConfig.labels", "labels", _session(labels=("{given}",)))
    for kind in ("video", "images"):
        source = f"{kind}:{{given}}"
        yield Way("CameraConfig.source", kind, _camera(source))
        yield Way("TaskConfig.build_frames", kind, _frames(source))
        for entry, line, slow in _read_table(_SOURCES):
            yield Way(entry, kind, _command(line.replace("SOURCE", source)), slow)
    yield Way("TaskConfig.build_frames", "bag", _frames("bag:{given}"))
    yield Way("TaskConfig.engine_cache", "library", _IN_LIBRARY)
    yield Way("library import file", "tar", _IMPORT)
    code = COMPILE.format(careless="", given="{given}")
    yield Way("TaskConfig.engine_cache", "tuning", _call(code), slow=True)
    for kind, entry, text in _CALLS:
        call = f"from pathlib import Path\n{text}\nread(Path('{{given}}'))"
        yield Way(entry, kind, _call(call))
    for kind, entry, line, slow in _read_table(_COMMANDS):
        yield Way(entry, kind, _command(line), slow)
    for kind, line, slow in _read_table(_IN_A_FOLDER):
        words = tuple(shlex.split(line))
        yield Way(f"in a folder: {words[0]}", kind, "", slow, words)


def _read_table(text: str) -> Iterator[tuple[Any, ...]]:
    """Rows, and whether they are for the long form only."""
    for line in text.strip().splitlines():
        cells = [cell.strip() for cell in line.replace("*", "").split("|")]
        yield (*cells, "*" in line)


WAYS = tuple(_list_ways())

_WRITTEN = "it is written, where the user says; nothing of it is read"
_WORD = "a word that is compared with a list, or a number"
_NAME = "a name or a text of the user's own"
_PEER = "a machine that the user names and trusts (docs/security.md)"
_CODE = "code by its definition (docs/security.md)"

NO_FILES = {
    **dict.fromkeys((
        "run --output", "run --video", "run --results", "library export file", "inspect --output",
        "compress --output", "evaluate --output", "evaluate --trace", "bag --output",
        "agree --output", "report --output", "export --output", "simulate --trace",
        "simulate --plot", "export-c --output", "PerceptionNodeConfig.trace_dir",
        "ProcessConfig.trace_dir",
    ), _WRITTEN),
    **dict.fromkeys((
        "library export --kind", "library prune --kind", "inspect --kind",
        "compress --method", "compress --ranks",
        "compress --backend", "compress --recover-steps", "compress --seed",
        "build --recover-steps",
        "build --agreement", "profile --per", "profile --variants", "profile --clocks",
        "profile --interference", "profile --cold", "profile --operators", "profile --stages",
        "evaluate --mode", "evaluate --policy", "evaluate --discipline", "bag --format",
        "bag --zstd", "wcet --exceedance", "wcet --by", "wcet --times", "wcet --confidence",
        "compare --by", "compare --times", "compare --confidence", "export --format",
        "simulate --policy", "simulate --policies", "export-c --variant", "export-c --target",
        "export-c --weights", "top --web", "run --variant", "run --deadline", "evaluate --variant",
        "evaluate --deadline", "profile --deadline", "TaskConfig.variants", "TaskConfig.variant",
        "TaskConfig.debug_topics", "PerceptionNodeConfig.max_inflight",
        "ProcessConfig.max_inflight", "bench name", "bench options",
    ), _WORD),
    **dict.fromkeys((
        "build --namespace", "build --task", "library export --model", "library export --variant",
        "inspect --outputs", "inspect --constant-inputs", "compress --task", "evaluate --topic",
        "evaluate --task", "evaluate --cohort", "bag --topic", "agree --variants", "agree --task",
        "agree --topic", "report --label", "report --title", "export-c --name", "top --namespace",
        "TaskConfig.outputs", "TaskConfig.constant_inputs", "TaskConfig.camera",
        "TaskConfig.classes", "TaskConfig.class_thresholds", "PerceptionNodeConfig.tasks",
        "PerceptionNodeConfig.cameras", "CameraConfig.frame_id", "CoordinatorProcessConfig.tasks",
    ), _NAME),
    **dict.fromkeys((
        "build --tvm-rpc", "evaluate --scheduler", "top --host", "TaskConfig.tvm_rpc",
    ), _PEER),
    **dict.fromkeys(("inspect --head", "TaskConfig.head"), _CODE),
}  # fmt: skip
"""Options and parameters that take no file from outside, each with the reason."""

_NUMBERS = ("parse_count", "parse_positive", "parse_share", "parse_whole", "parse_limit", "int",
            "float")  # fmt: skip


def list_entries() -> list[str]:
    """Every option of the command line and parameter of a node that takes a text."""
    return [*_list_options(build_parser(), ""), *_list_parameters()]


def _list_options(parser: argparse.ArgumentParser, command: str) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _list_options(inner, f"{command} {name}".strip())
        elif action.nargs != 0 and getattr(action.type, "__name__", "") not in _NUMBERS:
            name = action.option_strings[-1] if action.option_strings else action.dest
            yield f"{command} {name}"


def _list_parameters() -> Iterator[str]:
    modules: tuple[ModuleType, ...] = (task, nodes, process)
    for module in modules:
        for name, found in vars(module).items():
            is_own = isinstance(found, type) and found.__module__ == module.__name__
            if is_own and dataclasses.is_dataclass(found):
                for item in describe(found):
                    if item.kind in (str, tuple[str, ...]) and not item.choices:
                        yield f"{name}.{item.name}"
