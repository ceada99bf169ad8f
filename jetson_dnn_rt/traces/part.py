"""One file of a trace: an Arrow stream that outlives its process, in the end a Parquet file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.traces.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 65536
"""Jobs of a Parquet row group: what is in memory at once while a stream is turned into one."""


class StreamPart:
    """A new Arrow IPC stream on disk that is whole after every `append`.

    A batch that fails half-way (the disk is full) is cut off again, so that those before and after
    it can be read.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.size = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            self._write(schema.serialize())
        except OSError:
            os.close(self._file)
            path.unlink(missing_ok=True)
            raise

    def append(self, batch: pa.RecordBatch) -> None:
        """Write a batch; OSError when it does not fit, and nothing of it is in the file then."""
        self._write(batch.serialize())

    def sync(self) -> None:
        """Flush to the disk, so that a power cut loses nothing."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    @staticmethod
    def measure(batch: pa.RecordBatch) -> int:
        """Bytes by which `append` makes the file longer."""
        return int(require_pyarrow().ipc.get_record_batch_size(batch))

    def _write(self, data: pa.Buffer) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += data.size


def turn_into_parquet(path: Path, schema: pa.Schema) -> Path:
    """Convert a closed stream to Parquet with this schema's metadata, then remove the stream.

    Whenever it breaks off, one of the two is whole. OSError when it cannot be written.
    """
    pa = require_pyarrow()
    from pyarrow import parquet

    target, partial = path.with_suffix(".parquet"), path.with_suffix(".partial")
    try:
        with pa.OSFile(os.fspath(path)) as source:
            stream = pa.ipc.open_stream(source)
            with parquet.ParquetWriter(os.fspath(partial), schema) as writer:
                waiting = []
                rows = 0
                for batch in stream:
                    waiting.append(batch)
                    rows += batch.num_rows
                    if rows >= ROW_GROUP:
                        writer.write_table(pa.Table.from_batches(waiting))
                        waiting, rows = [], 0
                if waiting:
                    writer.write_table(pa.Table.from_batches(waiting))
        partial.replace(target)
    except (OSError, pa.ArrowException):
        partial.unlink(missing_ok=True)
        raise
    path.unlink()
    return target
