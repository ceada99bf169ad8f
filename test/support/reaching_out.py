# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What a function in a child without rights may try; each returns what it got."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import time
from typing import Any

import numpy as np


def _raw(data: bytes) -> bool:
    """Whether to go past Python's own hooks, as native code would that was led astray."""
    return data.startswith(b"raw ")


def _libc(name: str, *arguments: Any) -> int:
    result = int(getattr(_LIBC, name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


_LIBC = ctypes.CDLL(None, use_errno=True)


def identify(data: bytes) -> dict[str, Any]:
    """The ids, groups and effective capabilities of this process."""
    with open("/proc/self/status") as stream:
        status = dict(line.split(":", 1) for line in stream)
    capabilities = int(status["CapEff"], 16)
    return {
        "ids": [*os.getresuid(), *os.getresgid()],
        "groups": os.getgroups(),
        "capabilities": capabilities,
    }


def write(data: bytes) -> str:
    path = data.removeprefix(b"raw ")
    if _raw(data):
        _libc("open", path, os.O_WRONLY | os.O_CREAT, 0o600)
    else:
        with open(path, "wb") as stream:
            stream.write(b"x")
    return "written"


def remove(data: bytes) -> str:
    path = data.removeprefix(b"raw ")
    if _raw(data):
        _libc("unlink", path)
    else:
        os.unlink(path)
    return "removed"


def connect(data: bytes) -> str:
    port = int(data.removeprefix(b"raw "))
    if _raw(data):
        _libc("socket", socket.AF_INET, socket.SOCK_STREAM, 0)
    else:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    return "connected"


def spawn(data: bytes) -> str:
    path = data.removeprefix(b"raw ")
    if _raw(data):
        if _libc("fork") == 0:
            os._exit(0)
    else:
        os.system(f"touch {path.decode()}")
    return "spawned"


def execute(data: bytes) -> str:
    arguments = (ctypes.c_char_p * 3)(b"touch", data.removeprefix(b"raw "), None)
    _libc("execv", b"/usr/bin/touch", arguments)
    return "executed"


def signal_parent(data: bytes) -> str:
    _libc("kill", os.getppid(), 0)
    return "signalled"


def fill_memory(data: bytes) -> int:
    return int(np.ones(int(data), np.uint8).sum())


def count(data: bytes) -> int:
    return len(data)


def run_for_ever(data: bytes) -> None:
    while True:
        if data:
            time.sleep(1)


def import_module(data: bytes) -> str:
    try:
        __import__(data.decode())
    except ImportError:
        return "swallowed"
    return "imported"


def fail(data: bytes) -> None:
    raise ValueError(data.decode())


def call_kernel(data: bytes) -> dict[str, int]:
    """Numbers of the errors of system calls, by name; nothing is called without a filter."""
    with open("/proc/self/status") as status:
        if "Seccomp:\t2\n" not in status.readlines():
            raise RuntimeError("no filter")
    errors = {}
    for name, numbers in json.loads(data).items():
        ctypes.set_errno(0)
        _LIBC.syscall(*(ctypes.c_long(number) for number in numbers))
        errors[name] = ctypes.get_errno()
    return errors


def flood(data: bytes) -> str:
    for _ in range(64):
        os.write(int(data), b"x" * (1 << 20))
    return "flooded"


def answer_much(data: bytes) -> str:
    return "x" * int(data)


def list_descriptors(data: bytes) -> list[str]:
    return [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3, 256) if _is_open(fd)]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def print_much(data: bytes) -> str:
    os.write(1, b"noise")
    print("noise", flush=True)
    return "quiet"
