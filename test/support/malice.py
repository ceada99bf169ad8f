# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What a file from a stranger may hold."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path


class Malicious:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


_CALLS = {
    "x86_64": ("leaq 2f(%rip), %rdi", "movl $420, %esi", "jmp creat@PLT"),
    "aarch64": ("adrp x0, 2f", "add x0, x0, :lo12:2f", "mov w1, #420", "b creat"),
}


def make_llvm_constructor(path: Path) -> str:
    """LLVM IR that makes a file when the library that it was linked into is loaded."""
    lines = (
        ".text",
        "1:",
        *_CALLS[platform.machine()],
        '.section .init_array,"aw"',
        ".quad 1b",
        ".section .rodata",
        "2:",
        f'.asciz "{path}"',
        ".text",
    )
    return "".join('module asm "' + line.replace('"', "\\22") + '"\n' for line in lines)


def make_library(path: Path, marker: Path) -> Path | None:
    """A shared library that makes a file when it is loaded; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    text = (
        "#include <fcntl.h>\n"
        "__attribute__((constructor)) static void run(void) "
        f"{{ (void)!creat({json.dumps(os.fspath(marker))}, 0644); }}\n"
    )
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", os.fspath(path)]
    subprocess.run(command, input=text, text=True, check=True)
    return path


def annotate_records(records: bytes, key: str, value: object) -> bytes:
    """Let every schedule of a tuning database do nothing but annotate its kernel's first block."""
    lines = []
    for line in records.splitlines():
        record = json.loads(line)
        instructions, decisions = record[1][0]
        first = next(i for i in instructions if i[0] == "GetSBlock")
        text = f'"{value}"' if isinstance(value, str) else value
        annotate = ["Annotate", [first[3][0], text], [key], []]
        instructions[:], decisions[:] = [first, annotate], []
        lines.append(json.dumps(record))
    return "".join(line + "\n" for line in lines).encode()
