# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`jetson-dnn-rt COMMAND`: one module for each command; plug-ins register theirs.

A command module has ``HELP`` (a line), ``add_arguments(parser)`` and ``execute(args) -> int``, the
exit code: 0 success, 1 a failed run or a bar not met, 2 bad arguments or configuration. It imports
nothing heavy before `execute`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from jetson_dnn_rt import __version__
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError, describe_os_error
from jetson_dnn_rt.plugins import collect
from jetson_dnn_rt.printable import PrintableFormatter, make_printable
from jetson_dnn_rt.runtime.realtime import set_library_defaults

COMMANDS = {
    name: f"jetson_dnn_rt.cli.{name}"
    for name in ("run", "build", "library", "inspect", "doctor", "bench")
}
"""The robot's own commands; plug-ins add the others."""

_OPTIONAL = ("torch", "onnx", "safetensors")
"""Packages that some commands need and others do without."""

FAILED = 1
BAD_ARGUMENTS = 2
INTERRUPTED = 130


def list_commands() -> dict[str, str]:
    """Every command that is installed and its module."""
    return {**COMMANDS, **collect("COMMANDS")}


def build_parser(only: str = "") -> argparse.ArgumentParser:
    """The parser of all commands, or of one alone, which imports no module of the others."""
    parser = argparse.ArgumentParser(
        prog="jetson-dnn-rt", description="DNNs on camera frames, every frame with a deadline."
    )
    parser.add_argument("--version", action="version", version=f"jetson-dnn-rt {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    modules = list_commands()
    for name in (only,) if only in modules else modules:
        module = importlib.import_module(modules[name])
        command = commands.add_parser(name, help=module.HELP, description=module.__doc__)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(command)
        command.set_defaults(execute=module.execute)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; every error is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8
    given = sys.argv[1:] if arguments is None else list(arguments)
    args = build_parser(given[0] if given else "").parse_args(given)
    set_library_defaults()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        code = int(args.execute(args))
        # Flushed here: the interpreter flushes at its end, where a closed pipe cannot be caught.
        sys.stdout.flush()
        return code
    except ConfigurationError as error:
        return _report(args.command, str(error), BAD_ARGUMENTS)
    except JetsonDnnRtError as error:
        return _report(args.command, str(error), FAILED)
    except ModuleNotFoundError as error:
        if error.name not in _OPTIONAL:
            raise
        text = f"it needs {error.name}, which is not installed: pip install {error.name}"
        return _report(args.command, text, FAILED)
    except BrokenPipeError:
        _drain(sys.stdout)
        return FAILED
    except OSError as error:
        # Of the machine, not of the code: its disk is full or broken, a file is not there.
        _drain(sys.stdout)
        return _report(args.command, describe_os_error(error), FAILED)
    except KeyboardInterrupt:
        return _report(args.command, "interrupted", INTERRUPTED)


def _report(command: str, message: str, code: int) -> int:
    line = make_printable(" ".join(message.split()))
    with contextlib.suppress(OSError):
        print(f"jetson-dnn-rt {command}: error: {line}", file=sys.stderr)
    _drain(sys.stderr)
    return code


def _drain(stream: TextIO) -> None:
    """Write what waits, or drop it: the interpreter would try again, and fail, at its end."""
    try:
        stream.flush()
    except OSError:  # the reader is gone, or the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run_command() -> int:
    """`ros2 run jetson_dnn_rt COMMAND`: the command is the name of the executable."""
    name = Path(sys.argv[0]).name
    return main([name.removeprefix("jetson-dnn-rt-"), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
