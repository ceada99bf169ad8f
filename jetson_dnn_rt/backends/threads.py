"""How many threads the libraries below take, so that together they take no more than was decided.

What each of them has to be told, and where:

=============  ====================================================================================
ONNX Runtime   each session: threads of one run, no inter-op threads, no spinning
OpenVINO       each compiled network: threads of one run, one stream, not pinned
torch          each calling thread: under OpenMP the number is the thread's own (`TorchRunner`)
OpenCV         the process: `limit_opencv`
=============  ====================================================================================
"""

from __future__ import annotations

import os
from pathlib import Path

THREADS = Path("/proc/self/task")


def limit_opencv(threads: int) -> None:
    """Let one call of OpenCV take so many threads, in the whole process; the last call decides.

    Without a word it takes all cores: with two workers, preprocessing would run on twice as many
    threads as there are cores.

    Parameters
    ----------
    threads : int
        >= 1; with 1 the calling thread does everything.
    """
    import cv2

    # A change makes its pool anew, also when it is none.
    if cv2.getNumThreads() != threads:
        cv2.setNumThreads(threads)


def count_cores() -> int:
    """Cores that the calling thread may run on."""
    return len(os.sched_getaffinity(0))


def read_thread_times(folder: Path = THREADS) -> dict[int, int]:
    """How long each thread of the process has been on a core.

    Parameters
    ----------
    folder : Path
        Of the threads, as the kernel has it.

    Returns
    -------
    dict of int to int
        Nanoseconds by the kernel's number of the thread; threads that end meanwhile are left out.

    Raises
    ------
    OSError
        When the kernel does not count (CONFIG_SCHED_INFO).
    """
    times_ns = {}
    for thread in os.listdir(folder):
        try:
            text = (folder / thread / "schedstat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            if (folder / thread).exists():
                raise
            continue
        times_ns[int(thread)] = int(text.split()[0])
    return times_ns
