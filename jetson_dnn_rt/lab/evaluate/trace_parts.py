"""A job trace of chunks that come ready from workers: no queue, no thread, no job lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jetson_dnn_rt.traces.part import StreamPart, turn_into_parquet
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import TraceMetadata, make_schema, require_pyarrow


class TraceParts:
    """A folder of trace parts; while one is written a crash leaves it readable.

    Parameters
    ----------
    folder : Path
        Made when it is not there; what an earlier evaluation left in it goes.
    metadata : TraceMetadata
        Into every part.
    room : TraceRoom, optional
        How much of the disk it may take.
    part_bytes : int, optional
        A part is closed and the next one begun at this size; by default that of `room`.

    Raises
    ------
    ConfigurationError
        When pyarrow is missing.
    OSError
        When the folder cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        metadata: TraceMetadata,
        *,
        room: TraceRoom | None = None,
        part_bytes: int | None = None,
    ) -> None:
        self._pa = require_pyarrow()
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("jobs-*.*"):
            old.unlink()
        self.folder = folder
        self.written = 0
        self._schema = make_schema(metadata)
        self._room = room or TraceRoom(ring=False)
        self._part_bytes = part_bytes or self._room.part_bytes
        self._number = 0
        self._part: StreamPart | None = None

    def write(self, rows: bytes) -> None:
        """Append `ChunkResult.rows`.

        Raises
        ------
        OSError
            When the disk does not take them, or there is no room.
        """
        with self._pa.ipc.open_stream(self._pa.BufferReader(rows)) as stream:
            for batch in stream:
                self._append(batch)

    def _append(self, batch: Any) -> None:
        # The worker did not know what the evaluation as a whole is about.
        batch = self._pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        size = self._part.size if self._part else 0
        self._room.make(self.folder, size, StreamPart.measure(batch))
        if self._part is None:
            path = self.folder / f"jobs-{self._number:04d}.arrows"
            self._part = StreamPart(path, self._schema)
            self._number += 1
        self._part.append(batch)
        self.written += batch.num_rows
        if self._part.size >= self._part_bytes:
            self.close()

    def close(self) -> None:
        """Turn the open part into Parquet; a later `write` begins another one."""
        if self._part is not None:
            part, self._part = self._part, None
            part.close()
            path = turn_into_parquet(part.path, self._schema)
            self._room.add(path, lambda: None)

    def __enter__(self) -> TraceParts:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
