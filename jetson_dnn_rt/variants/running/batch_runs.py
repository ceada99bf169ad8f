# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The stages of one variant, run for the frames of several tasks at once.

The tasks' input buffers are *slots* of one array ``[n, 3, H, W]``, and the outputs of a batch are
one array per boundary value, of which every task gets its row. So a batch of neighbouring slots
that went through the stages before as the same batch copies nothing. What is copied otherwise is
counted in `Work.copied_bytes`:

* inputs that do not lie side by side (slots 0 and 2, or members that ran a stage by themselves);
* outputs of a batch that not all tasks are in, where the runner would write over them: one of the
  others may form the next batch of that size before a member has read them. A full batch cannot
  come again before every member has ended its frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array, HostArrays, Parts, Runner, as_host
from jetson_dnn_rt.errors import NotANumberError
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running.frame_processor import (
    OUTPUTS,
    ROWS,
    SLOT,
    VALUES,
    Row,
    holds_nan,
)
from jetson_dnn_rt.variants.running.pipeline import Pipeline


class BatchRuns:
    """Runs batches of tasks in one variant, one batch at a time; `pipelines` are in slot order."""

    def __init__(self, pipelines: Sequence[Pipeline]) -> None:
        self.pieces = tuple(segment.piece for segment in pipelines[0].segments)
        self._own = [[segment.runner for segment in p.segments] for p in pipelines]
        self._processors = [pipeline.processor for pipeline in pipelines]
        self._name = str(pipelines[0].spec)
        self._runners: dict[int, tuple[Runner, ...] | None] = {}
        self._joined: dict[tuple[int, int, int], npt.NDArray[Any]] = {}
        self._kept: dict[tuple[int, int, int], npt.NDArray[Any]] = {}
        self._views: dict[tuple[int, int], Array] = {}

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes that can be run."""
        return tuple(sorted(self._runners))

    def add(self, size: int, runners: Sequence[Runner] | None) -> None:
        """Add runners for batches of one size, one for each piece; they are closed with this.

        None: the leader's own runners take any number of images (`Runner.takes_any_batch`).
        """
        self._runners[size] = None if runners is None else tuple(runners)

    def drop(self, size: int) -> None:
        """Close the runners of a size, which must not be running."""
        for runner in self._runners.pop(size) or ():
            runner.close()
        for key in [key for key in self._joined if key[2] == size]:
            del self._joined[key]

    def close(self) -> None:
        """Close all runners; a second call does nothing."""
        for size in self.sizes:
            self.drop(size)

    def run(self, index: int, works: Sequence[Work]) -> None:
        """Run segment `index` of the network for frames that are at it.

        Parameters
        ----------
        works : sequence of Work
            Of different tasks of the group, the leader's first; as many as one of `sizes`.

        Raises
        ------
        NotANumberError
            When the outputs hold NaN and NaN was seen before in one of the tasks.
        """
        leader, urgency = cast(int, works[0].scratch[SLOT]), works[0].urgency
        works = sorted(works, key=lambda work: cast(int, work.scratch[SLOT]))
        slots = [cast(int, work.scratch[SLOT]) for work in works]
        runners = self._runners[len(works)]
        runner = (self._own[leader] if runners is None else runners)[index]
        piece = self.pieces[index]
        inputs = [
            self._join(runner, (index, position, len(works)), name, works)
            for position, name in enumerate(piece.inputs)
        ]
        for work in works:  # before the run, so that memory can be used again from the last use on
            for name in piece.dead:
                _values(work).pop(name)
                _rows(work).pop(name, None)
        suspicious = any(self._processors[slot].suspicious for slot in slots)
        runner.urgency = urgency
        # The outputs are waited for where they are copied to the host.
        given = runner.queue(inputs) if piece.is_last and not suspicious else runner.run(inputs)
        if suspicious and holds_nan(given):
            raise NotANumberError(
                f"a batch of {len(works)} of {piece.part.name} in {self._name} gives NaN",
                piece.part.name,
            )
        # Arrays of their own are not written over; see the module's docstring for full batches.
        stays = runners is None or len(works) == len(self._processors)
        # Only the decoder reads the outputs of the last one.
        boundary = () if piece.results else piece.outputs
        for position, (name, whole) in enumerate(zip(boundary, given)):  # noqa: B905
            for place, (slot, work) in enumerate(zip(slots, works, strict=True)):
                part = whole[place : place + 1]
                _rows(work).pop(name, None)
                if stays:
                    _rows(work)[name] = Row(whole, place, part)
                else:
                    part = self._keep((slot, index, position), part, work)
                _values(work)[name] = part
        if piece.is_last:
            self._bring_outputs(runner, index, works, slots, given, stays=stays)
        for work in works:
            work.copied_bytes += runner.copied_bytes // len(works)

    def _join(
        self, runner: Runner, key: tuple[int, int, int], name: str, works: Sequence[Work]
    ) -> Array:
        """Join the works' values of a name; neighbours are not copied."""
        parts = [_values(work)[name] for work in works]
        rows = [_rows(work).get(name) for work in works]
        first = rows[0]
        if first is not None and all(
            row is not None
            and row.part is part
            and row.whole is first.whole
            and row.place == first.place + place
            for place, (row, part) in enumerate(zip(rows, parts, strict=True))
        ):
            return self._view(first.whole, first.place, len(works))
        if runner.device != "cpu":
            return Parts(parts)  # it copies its inputs anyway, part by part
        if key not in self._joined:
            shape = (len(works), *parts[0].shape[1:])
            # In the layout of the parts.
            self._joined[key] = np.empty_like(as_host(parts[0]), shape=shape)
        joined = self._joined[key]
        for place, (work, part) in enumerate(zip(works, parts, strict=True)):
            np.copyto(joined[place : place + 1], as_host(part))
            work.copied_bytes += joined[place].nbytes
        return joined

    def _view(self, whole: Array, first: int, count: int) -> Array:
        if first == 0 and count == whole.shape[0]:
            return whole
        image = self._processors[0].whole_image
        if image is None or whole is not image:
            return whole[first : first + count]
        # The same object each time: runners need not bind it again.
        if (first, count) not in self._views:
            self._views[first, count] = image[first : first + count]
        return self._views[first, count]

    def _keep(self, key: tuple[int, int, int], part: Array, work: Work) -> npt.NDArray[Any]:
        """Copy a task's part into memory of its own."""
        array = as_host(part)
        kept = self._kept.get(key)
        if kept is None or kept.shape != array.shape:
            kept = self._kept[key] = np.empty_like(array)
        np.copyto(kept, array)
        work.copied_bytes += kept.nbytes
        return kept

    def _bring_outputs(
        self,
        runner: Runner,
        index: int,
        works: Sequence[Work],
        slots: Sequence[int],
        given: tuple[Array, ...],
        *,
        stays: bool,
    ) -> None:
        """Give every work its outputs of the network, on the host."""
        piece = self.pieces[index]
        results = piece.results or tuple(f"output-{place}" for place in range(len(given)))
        names = piece.outputs or results
        wanted = [name for name in results if name in names]
        here = runner.to_host([given[names.index(name)] for name in wanted])
        wholes = dict(zip(wanted, here, strict=True))
        for place, (slot, work) in enumerate(zip(slots, works, strict=True)):
            outputs: list[npt.NDArray[Any]] = []
            for position, name in enumerate(results):
                if name not in wholes:  # from an earlier stage
                    (earlier,) = runner.to_host([_values(work)[name]])
                    key = (slot, index, len(given) + position)
                    outputs.append(self._keep(key, earlier, work))
                    continue
                part = wholes[name][place : place + 1]
                if not stays:
                    part = self._keep((slot, index, len(given) + position), part, work)
                outputs.append(part)
            work.scratch[OUTPUTS] = cast(HostArrays, tuple(outputs))


def _values(work: Work) -> dict[str, Array]:
    return cast("dict[str, Array]", work.scratch[VALUES])


def _rows(work: Work) -> dict[str, Row]:
    return cast("dict[str, Row]", work.scratch[ROWS])
