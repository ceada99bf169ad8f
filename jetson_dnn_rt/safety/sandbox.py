# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Runs a function of this package on untrusted bytes in a child process that has no rights.

Untrusted files are parsed by large C++ and Python libraries. In the child these get the bytes
through a pipe and can do no harm if an attack succeeds: no writing of files, no network, no
processes, bounded memory and time. Only when the child has succeeded does this process parse the
bytes itself.

The function's module is imported first, with all rights: it belongs to this package. Then the
child drops its rights: the user (``nobody`` where root starts it and the installation is readable
to all, else without capabilities), resource limits, a filter of system calls (seccomp), a network
of its own that leads nowhere, and an audit hook of Python, which also refuses imports of modules
that the function's module does not expect. Each is set where the kernel allows it; `Report.guards`
lists those in effect.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import importlib
import importlib.machinery
import json
import os
import platform
import resource
import selectors
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.safety.children import CHILD_FOLDER, child_environment, python_command

MAX_RESULT_BYTES = 1 << 20
"""Limit of a child's answer, and of its output; a child that writes more is killed."""

_KEPT_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 16


class SandboxError(JetsonDnnRtError):
    """The function failed in the child, was refused something, or hit a limit: see the text."""


@dataclass(frozen=True)
class Limits:
    """Memory, time and imports allowed to a child."""

    memory_bytes: int = 4 << 30  # address space, beyond what the imports took
    cpu_s: int = 60
    wall_s: float = 120.0  # after which it is killed
    # Top-level packages that may still be imported, besides the standard library and those that
    # the function's module has imported.
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """Result of a child, and the guards under which it ran."""

    result: Any  # the function's return value, from JSON
    # Guards in effect: "own network", "user nobody", "no capabilities", "limits", "seccomp",
    # "audit hook"
    guards: tuple[str, ...]


def run_restricted(function: str, data: bytes, limits: Limits = Limits()) -> Report:
    """Call ``jetson_dnn_rt.MODULE:NAME`` with bytes in a child without rights, and wait for it.

    The function takes bytes and returns what JSON can hold. SandboxError when it raised, tried
    something forbidden, or was killed.
    """
    command = python_command(
        __name__, function, json.dumps(dataclasses.asdict(limits)), str(os.getpid())
    )
    # Threads that exist already would keep the rights that the first one drops.
    threads = {f"{name}_NUM_THREADS": "1" for name in ("MKL", "OMP", "OPENBLAS")}
    environment = {**child_environment(), **threads}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=CHILD_FOLDER,
            env=environment,
            start_new_session=True,  # without a terminal, into which it could type
        )
    except OSError as error:
        raise SandboxError(f"no child process for {function}: {error}") from error
    with process:
        try:
            answered, printed = _exchange(process, function, data, limits.wall_s)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise SandboxError(f"{function} was ended by {_name_end(process.returncode, printed)}")
    try:
        answer = json.loads(answered)
        error_text, guards = answer["error"], tuple(answer["guards"])
        result = answer["result"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SandboxError(f"{function} gave no result: {answered[-200:]!r}") from error
    if error_text:
        raise SandboxError(str(error_text)[:1000])
    return Report(result, guards)


def _exchange(
    process: subprocess.Popen[bytes], function: str, data: bytes, wall_s: float
) -> tuple[bytes, bytes]:
    """Send `data`; returns the child's answer, and the end of what it printed, when it ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    deadline = time.monotonic() + wall_s
    rest = memoryview(data)
    answered, printed, all_printed = bytearray(), b"", 0
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as pipes:
        pipes.register(process.stdin, selectors.EVENT_WRITE)
        pipes.register(process.stdout, selectors.EVENT_READ)
        pipes.register(process.stderr, selectors.EVENT_READ)
        while pipes.get_map():
            ready = pipes.select(max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline:
                raise SandboxError(f"{function} took longer than {wall_s:g} s")
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    with contextlib.suppress(BlockingIOError):
                        try:
                            rest = rest[os.write(key.fd, rest[:_CHUNK_BYTES]) :]
                        except BrokenPipeError:  # it has exited; its end tells why
                            rest = rest[:0]
                    if not rest:
                        pipes.unregister(process.stdin)
                        process.stdin.close()
                    continue
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if not chunk:
                    pipes.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    answered += chunk
                else:
                    printed = (printed + chunk)[-_KEPT_BYTES:]
                    all_printed += len(chunk)
                if max(len(answered), all_printed) > MAX_RESULT_BYTES:
                    raise SandboxError(f"{function} gave more than {MAX_RESULT_BYTES} bytes")
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{function} took longer than {wall_s:g} s") from error
    return bytes(answered), printed


def _name_end(code: int, stderr: bytes) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    lines = stderr.decode(errors="replace").strip().splitlines()
    return f"exit code {code}: {(lines or [''])[-1][:300]}"


# -- in the child ------------------------------------------------------------------------------


def main(function: str, described: str, parent: str) -> None:
    """Import the function's module, give rights up, read, call, answer."""
    given = json.loads(described)
    limits = Limits(**{**given, "packages": tuple(given["packages"])})
    answer = os.dup(1)
    os.dup2(2, 1)  # the output of libraries is not the answer
    _die_with_parent(int(parent))
    module_name, _, name = function.partition(":")
    called = getattr(importlib.import_module(module_name), name)
    refused: list[str] = []
    guards = give_up_rights(limits, refused)
    result, error_text = None, ""
    try:
        result = called(sys.stdin.buffer.read())
    except BaseException as error:
        error_text = f"{type(error).__name__}: {error}"[:900]
    if refused:  # some code swallows the exception and goes on
        error_text = f"it was refused: {'; '.join(refused[:5])}"
    text = json.dumps({"result": result, "error": error_text, "guards": guards})
    with open(answer, "w", closefd=False) as stream:
        stream.write(text)
    os._exit(0)  # no exit handler of loaded code runs


def give_up_rights(limits: Limits, refused: list[str]) -> list[str]:
    """Leave this process only its memory and its open descriptors.

    What is refused to Python code later is appended to `refused`. Returns the guards in effect.
    """
    guards = []
    if _leave_network():
        guards.append("own network")
    guards += _drop_user()
    _prctl(_PDEATHSIG, signal.SIGKILL)  # another user's is forgotten
    _set_limits(limits)
    guards.append("limits")
    if _prctl(_NO_NEW_PRIVS, 1) == 0 and _filter_calls():
        guards.append("seccomp")
    _watch(limits, refused)
    guards.append("audit hook")
    return guards


_PDEATHSIG, _CAPBSET_DROP, _NO_NEW_PRIVS = 1, 24, 38
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_NOBODY = 65534
_LIBC = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, *values: int) -> int:
    padded = (*values, 0, 0, 0, 0)[:4]
    return int(_LIBC.prctl(option, *(ctypes.c_ulong(value) for value in padded)))


def _die_with_parent(parent: int) -> None:
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _leave_network() -> bool:
    ways = (_CLONE_NEWNET, _CLONE_NEWNET | _CLONE_NEWUSER)
    return any(_LIBC.unshare(flags) == 0 for flags in ways)


def _drop_user() -> list[str]:
    """Become ``nobody``; if it cannot read the packages, stay root without capabilities."""
    guards = []
    if os.geteuid() == 0:
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        os.seteuid(_NOBODY)
        readable = all(os.access(f, os.R_OK, effective_ids=True) for f in files if f)
        os.seteuid(0)
        for capability in range(64):
            _prctl(_CAPBSET_DROP, capability)
        with contextlib.suppress(OSError):
            os.setgroups([])
        if readable:
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
            guards.append("user nobody")
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread
    if _LIBC.capset(header, (ctypes.c_uint32 * 6)()) == 0:
        guards.append("no capabilities")
    return guards


def _set_limits(limits: Limits) -> None:
    with open("/proc/self/statm") as stream:
        mapped = int(stream.read().split()[0]) * resource.getpagesize()
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent_s = int(used.ru_utime + used.ru_stime) + 1
    for kind, value in (
        (resource.RLIMIT_AS, mapped + limits.memory_bytes),
        (resource.RLIMIT_CPU, spent_s + limits.cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (lowest, lowest))


# -- system calls ------------------------------------------------------------------------------

# Numbers by machine. Not a list of what is needed, which differs from library to library, but of
# all that reaches beyond the process.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_REFUSED_CALLS = {
    # name: (x86_64, aarch64); None: there is none
    # network
    "socket": (41, 198), "connect": (42, 203), "sendto": (44, 206), "sendmsg": (46, 211),
    "sendmmsg": (307, 269), "bind": (49, 200), "socketpair": (53, 199),
    # processes
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "kill": (62, 129), "tkill": (200, 130), "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "kcmp": (312, 272), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    # files
    "truncate": (76, 45), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "creat": (85, None),
    "link": (86, None), "linkat": (265, 37), "unlink": (87, None), "unlinkat": (263, 35),
    "symlink": (88, None), "symlinkat": (266, 36), "chmod": (90, None), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "utimensat": (280, 88), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "mknod": (133, None), "mknodat": (259, 33),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466), "file_setattr": (469, 469),
    # the kernel
    "bpf": (321, 280), "perf_event_open": (298, 241), "init_module": (175, 105),
    "finit_module": (313, 273), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "unshare": (272, 97), "setns": (308, 268), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    # memory and queues that processes share
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190),
    "semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191), "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # priorities and places
    "move_pages": (279, 239), "migrate_pages": (256, 238), "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122), "sched_setattr": (314, 274), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "setpriority": (141, 140),
}  # fmt: skip
# Told that it does not exist, callers fall back to the older call, whose flags a filter can see.
_MISSING_CALLS = {"openat2": (437, 437), "clone3": (435, 435)}
_OPEN, _OPENAT, _CLONE = (2, None), (257, 56), (56, 220)
_FCNTL, _SIGNALLING = (72, 25), (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX
_PRLIMIT, _TGKILL, _SECCOMP_CALL = (302, 261), (234, 131), (317, 277)

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CLONE_THREAD = 0x00010000

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def _filter_calls() -> bool:
    """Let the kernel refuse system calls that reach beyond the process."""
    if platform.machine() not in _MACHINES or sys.maxsize < 1 << 32:
        return False
    machine, column = _MACHINES[platform.machine()]
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_EQUAL, 1, 0, machine),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if column == 0:  # the second set of numbers of x86-64
        code += [(_ANY_BIT, 0, 1, 0x40000000), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for calls, error in ((_REFUSED_CALLS, errno.EPERM), (_MISSING_CALLS, errno.ENOSYS)):
        for numbers in calls.values():
            number = numbers[column]
            if number is not None:
                code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    refuse, allow = (_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ALLOW)
    for numbers, argument, test, values, refuses in (
        (_OPEN, 1, _ANY_BIT, (_WRITING,), True),
        (_OPENAT, 2, _ANY_BIT, (_WRITING,), True),
        (_CLONE, 0, _ANY_BIT, (_CLONE_THREAD,), False),
        (_FCNTL, 1, _EQUAL, _SIGNALLING, True),
        (_PRLIMIT, 0, _EQUAL, (0,), False),
        (_TGKILL, 0, _EQUAL, (os.getpid(),), False),  # which `abort` needs
    ):
        number = numbers[column]
        if number is not None:
            then, otherwise = (refuse, allow) if refuses else (allow, refuse)
            code += [
                (_EQUAL, 0, 2 + 2 * len(values), number),
                (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument),
            ]
            for value in values:
                code += [(test, 0, 1, value), then]
            code.append(otherwise)
    code.append((_RETURN, 0, 0, _ALLOW))
    packed = b"".join(struct.pack("=HBBI", *step) for step in code)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    program = _Program(len(code), ctypes.cast(buffer, ctypes.c_void_p))
    mode, every_thread = 1, 1  # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC
    call = _SECCOMP_CALL[column] or 0
    return int(_LIBC.syscall(call, mode, every_thread, ctypes.byref(program))) == 0


# -- Python ------------------------------------------------------------------------------------

_REFUSED_EVENTS = (
    "os.exec", "os.fork", "os.kill", "os.posix_spawn", "os.spawn", "os.startfile", "os.system",
    "pty.", "subprocess.", "ctypes.dlopen",
    "ftplib.", "http.", "imaplib.", "nntplib.", "poplib.", "smtplib.", "socket.", "telnetlib.",
    "urllib.", "webbrowser.",
    "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir",
    "os.symlink", "os.truncate", "shutil.",
)  # fmt: skip
"""Prefixes of audit events: processes, network, files."""


def _watch(limits: Limits, refused: list[str]) -> None:
    """Refuse, and note in `refused`, what Python code must not do."""
    expected = {name.partition(".")[0] for name in sys.modules}
    expected |= {*sys.stdlib_module_names, *limits.packages}

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import":
            top = str(arguments[0]).partition(".")[0]
            if top in expected:
                return
            # Libraries probe for optional packages everywhere: one not installed is not reported.
            if importlib.machinery.PathFinder.find_spec(top) is not None:
                refused.append(f"import of {arguments[0]!s:.100}")
            raise ModuleNotFoundError(f"import of {arguments[0]} is refused", name=top)
        if event == "open":
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            if isinstance(arguments[0], int) or not flags & _WRITING:
                return
            if os.fspath(arguments[0]) == os.devnull:
                return
        elif not event.startswith(_REFUSED_EVENTS):
            return
        words = ", ".join(f"{argument!s:.60}" for argument in arguments[:2])
        refused.append(f"{event} ({words})")
        raise PermissionError(f"{event} is refused")

    sys.addaudithook(check)


if __name__ == "__main__":
    main(*sys.argv[1:])
