"""`jetson-dnn-rt COMMAND`: one module for each command, in this package.

A command module has ``HELP`` (a line), ``add_arguments(parser)`` and ``execute(args) -> int``, the
exit code: 0 success, 1 a failed run or a bar not met, 2 bad arguments or configuration. It imports
nothing heavy before `execute`.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence

from jetson_dnn_rt import __version__
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.executor.realtime import set_library_defaults

COMMANDS = (
    *("run", "compress", "build", "profile", "evaluate", "wcet", "compare", "report", "export"),
    *("export-c", "library", "doctor", "simulate", "bench"),
)

FAILED = 1
BAD_ARGUMENTS = 2
INTERRUPTED = 130


def build_parser(only: str = "") -> argparse.ArgumentParser:
    """The parser of all commands, or of one alone, which then needs no module of the others."""
    parser = argparse.ArgumentParser(
        prog="jetson-dnn-rt", description="DNNs on camera frames, every frame with a deadline."
    )
    parser.add_argument("--version", action="version", version=f"jetson-dnn-rt {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in (only,) if only in COMMANDS else COMMANDS:
        module = importlib.import_module(f"jetson_dnn_rt.cli.{name.replace('-', '_')}")
        command = commands.add_parser(name, help=module.HELP, description=module.__doc__)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(command)
        command.set_defaults(execute=module.execute)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; whatever goes wrong is one line on stderr."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    args = build_parser(given[0] if given else "").parse_args(given)
    set_library_defaults()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        code = int(args.execute(args))
        # Here, and not by the interpreter at its end, where a closed pipe cannot be caught.
        sys.stdout.flush()
        return code
    except ConfigurationError as error:
        return _report(args.command, str(error), BAD_ARGUMENTS)
    except JetsonDnnRtError as error:
        return _report(args.command, str(error), FAILED)
    except BrokenPipeError:
        # Whoever read us has gone. The interpreter would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return _report(args.command, "interrupted", INTERRUPTED)


def _report(command: str, message: str, code: int) -> int:
    line = " ".join(message.split())
    print(f"jetson-dnn-rt {command}: error: {line}", file=sys.stderr)
    return code


def run() -> int:
    """`ros2 run jetson_dnn_rt run`."""
    return main(["run", *sys.argv[1:]])


def compress() -> int:
    """`ros2 run jetson_dnn_rt compress`."""
    return main(["compress", *sys.argv[1:]])


def doctor() -> int:
    """`ros2 run jetson_dnn_rt doctor`."""
    return main(["doctor", *sys.argv[1:]])


def build() -> int:
    """`ros2 run jetson_dnn_rt build`."""
    return main(["build", *sys.argv[1:]])


def profile() -> int:
    """`ros2 run jetson_dnn_rt profile`."""
    return main(["profile", *sys.argv[1:]])


def evaluate() -> int:
    """`ros2 run jetson_dnn_rt evaluate`."""
    return main(["evaluate", *sys.argv[1:]])


def wcet() -> int:
    """`ros2 run jetson_dnn_rt wcet`."""
    return main(["wcet", *sys.argv[1:]])


def compare() -> int:
    """`ros2 run jetson_dnn_rt compare`."""
    return main(["compare", *sys.argv[1:]])


def report() -> int:
    """`ros2 run jetson_dnn_rt report`."""
    return main(["report", *sys.argv[1:]])


def export() -> int:
    """`ros2 run jetson_dnn_rt export`."""
    return main(["export", *sys.argv[1:]])


def export_c() -> int:
    """`ros2 run jetson_dnn_rt export-c`."""
    return main(["export-c", *sys.argv[1:]])


def library() -> int:
    """`ros2 run jetson_dnn_rt library`."""
    return main(["library", *sys.argv[1:]])


def simulate() -> int:
    """`ros2 run jetson_dnn_rt simulate`."""
    return main(["simulate", *sys.argv[1:]])


def bench() -> int:
    """`ros2 run jetson_dnn_rt bench`."""
    return main(["bench", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
