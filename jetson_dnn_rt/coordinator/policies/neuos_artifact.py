# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""NeuOS as its authors published it in code, which is not what their paper's algorithms say.

A reconstruction from facts about the artifact (github.com/Soroosh129/NeuOS, commit 97e1264:
``src/caffe/net.cpp``, ``include/triangle/schedule.h``, ``examples/triangle/all-TX2.config`` and
``all-AGX.config``); `jetson_dnn_rt.coordinator.policies.neuos` is the reading of the paper
(Bateni & Liu, USENIX ATC 2020).

Clocks. The configurations are a list, sorted by memory clock, then that of the (little) cores, of
the GPU, the number of big cores on and their clock. Each layer of each instance has a place in it,
which stays from frame to frame. At the boundary before a layer, of usefulness U (see
`usefulness`), its place becomes::

    place + 100 / U        below 0 slack
    place * p - 10 / U     else, of a U above 3
    place * p + 100 / U    else: a faster configuration costs no more energy

and the instance sets the board's clocks for all. The first layer of a frame keeps those it finds.
Slack is measured less expected time of its finished layers: so it is the priority that makes an
instance faster that is behind, and one that is ahead becomes faster, too, in small steps.

Priority p, which is what makes it a cohort: the mean over the instances of ``1 + eps / D``, eps
being an instance's slack and D its deadline. For ``max accuracy`` all of them count with the
largest eps, for ``min energy`` with the smallest. Instances whose slack is exactly 0 do not count
in the mean, while unused places of the shared memory count as 0 in the largest and the smallest:
so p is at least 1 for max accuracy, at most 1 for min energy, also for an instance alone.

Variants. With ``max`` = number of layers, less 0.5 for each that already runs as low rank in this
frame, and ``min`` = half of the layers, a convolution runs as low rank when
``ceil(p * min + (1 - p) * max) < max``. A frame begins with p = 1. Max accuracy never does.

Readings, where the code as it stands cannot be meant or repeated:

* It divides microseconds by a constant of 30 milliseconds without converting. Here D is each
  instance's own deadline, in the same unit, and eps is compared as a share of it.
* All places begin at a random configuration. Here in the middle of the list, the mean of that.
* Expected times are those of a run at that configuration, and the slack starts at the deadline
  less their sum. Here they are the sub-deadlines: the run that just fills the deadline, where that
  difference is 0. What a frame is behind is owed in the next one, as in the reading of the paper.
* A place outside the list becomes the last one, also below 0; here the nearest.
* A configuration is used again when it once gave the needed speed-up to six decimals, which
  practically never happens: left out.
* It knows one low-rank version of each layer: here the variant nearest to half of the time. What
  is a layer there is a stage here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision
from jetson_dnn_rt.coordinator.policies.neuos import Account, lag_of, most_accurate, settle
from jetson_dnn_rt.coordinator.policies.predjoule import CONFIGURATIONS, FREE_GAIN, usefulness
from jetson_dnn_rt.coordinator.policy import Policy
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Integers, TaskTable

LOW_RANK_SCORE = 0.5  # what a low-rank layer takes off the score
LEAST_SCORE = 0.5  # least score, as a share of the layers


class Instance(NamedTuple):
    """Memory of one instance."""

    places: tuple[float, ...]  # of each layer in the list of configurations, [K]
    low_rank: tuple[bool, ...]  # whether each layer of the frame in flight runs as low rank, [K]
    stages_done: int  # the member's count at its last move: a boundary is one move


class Memory(NamedTuple):
    """Memory of the cohort."""

    accounts: tuple[Account, ...]
    instances: tuple[Instance, ...]


class NeuOSArtifact(Policy):
    """The artifact's rule; a mode adds its priority."""

    adjusts_clocks = clocks_at_boundaries = adjusts_variants = True

    approximates = True
    """Whether layers may run as low rank."""

    def prepare(self) -> None:
        """Sort the configurations; compute the steps and low-rank versions of all layers."""
        self._order: list[int] = list_order(self.clock_table).tolist()
        steps = {id(table): self._steps(table) for table in self.tables}
        versions = {id(table): low_rank_version(table) for table in self.tables}
        self._member_steps = [steps[id(table)] for table in self.tables]
        self._versions = [versions[id(table)] for table in self.tables]

    def _steps(self, table: TaskTable) -> list[tuple[float, float]]:
        """Step of each layer with a slack below 0, and from 0 on."""
        count = len(self.clock_table)
        scale = count / max(len(self.clock_table.space), CONFIGURATIONS)
        return [
            (scale * 100.0 / gain, scale * (100.0 if gain <= FREE_GAIN else -10.0) / gain)
            for gain in usefulness(table)
        ]

    @abstractmethod
    def eps(self, slacks: Sequence[float]) -> float:
        """Slack that the priority is made of, from all but zero ones, each as a share of D."""

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Clocks and version of the deciding instance's next layer."""
        members = cohort.members
        accounts, instances = self._recall(cohort)
        variants = [member.variant for member in members]
        clocks, deciding = cohort.clocks_target, cohort.deciding
        if deciding >= 0:
            member, mine = members[deciding], instances[deciding]
            stage, priority = member.stage, 1.0
            if stage:
                slacks = [
                    -lag_of(each, account) / each.deadline_ns
                    for each, account in zip(members, accounts, strict=True)
                ]
                priority = 1.0 + self.eps([slack for slack in slacks if slack])
                places = mine.places
                if mine.stages_done != member.stages_done:
                    below, above = self._member_steps[deciding][stage]
                    place = places[stage]
                    place = place + below if slacks[deciding] < 0.0 else place * priority + above
                    place = min(max(place, 0.0), self.clock_table.fastest)
                    places = (*places[:stage], place, *places[stage + 1 :])
                    mine = mine._replace(places=places, stages_done=member.stages_done)
                clocks = self._order[round(places[stage])]
            version, convolutions = self._versions[deciding]
            before = mine.low_rank[:stage]
            low = (
                self.approximates
                and convolutions[stage]
                and member.usable[version]
                and approximates(priority, len(mine.places), sum(before))
            )
            variants[deciding] = version if low else most_accurate(member)
            rest = (False,) * (len(mine.places) - stage - 1)
            mine = mine._replace(low_rank=(*before, low, *rest))
            instances = (*instances[:deciding], mine, *instances[deciding + 1 :])
        return Decision(tuple(variants), clocks, Memory(accounts, instances))

    def _recall(self, cohort: Cohort) -> Memory:
        """The memory with the frames that ended since; at first all places are the middle one."""
        members, memory = cohort.members, cohort.memory
        if isinstance(memory, Memory):
            return memory._replace(accounts=settle(memory.accounts, members))
        begin = self.clock_table.fastest / 2.0
        instances = []
        for member in members:
            layers = len(member.table.stages)
            instances.append(Instance((begin,) * layers, (False,) * layers, member.stages_done))
        return Memory(settle(None, members), tuple(instances))


def approximates(priority: float, layers: int, low_rank: int) -> bool:
    """Whether the next convolution runs as low rank, after `low_rank` of them in this frame."""
    most = layers - LOW_RANK_SCORE * low_rank
    least = LEAST_SCORE * layers
    return ceil(priority * least + (1.0 - priority) * most) < most


def list_order(table: ClockTable) -> Integers:
    """Positions of a clock table in the order of the artifact's list, [C].

    A domain that the board does not have, or that is not in the list, decides nothing. The
    artifact leaves the number of little cores open: here more of them come later.
    """
    names = table.space.names
    frequencies = table.space.frequencies_hz()[table.indices]
    cores = table.space.core_counts()[table.indices]
    nothing = np.zeros(len(table), np.int64)

    def column(values: Integers, *domains: str) -> Integers:
        found = next((name for name in domains if name in names), None)
        return nothing if found is None else np.asarray(values[:, names.index(found)])

    small = ("little", "cpu")
    keys = (
        column(frequencies, "emc"),
        column(frequencies, *small),
        column(frequencies, "gpu"),
        column(cores, "big"),
        column(frequencies, "big"),
        column(cores, *small),
    )
    return np.asarray(np.lexsort(keys[::-1]), np.int64)


def low_rank_version(table: TaskTable) -> tuple[int, tuple[bool, ...]]:
    """Variant nearest to half of the full network's time, and which stages it makes faster."""
    times = table.times_ns.mean(axis=2)
    ratios = times.sum(axis=1) / times[0].sum()
    version = int(np.abs(ratios - 0.5).argmin())
    return version, tuple((times[version] < times[0]).tolist())


class NeuOSArtifactBalanced(NeuOSArtifact):
    """Every instance counts with its own slack."""

    def eps(self, slacks: Sequence[float]) -> float:
        """The mean."""
        return sum(slacks) / len(slacks) if slacks else 0.0


class NeuOSArtifactMaxAccuracy(NeuOSArtifact):
    """All count with the slack of the one that is furthest behind, and nothing is approximated."""

    approximates = False

    def eps(self, slacks: Sequence[float]) -> float:
        """The largest, at least 0."""
        return max([0.0, *slacks])


class NeuOSArtifactMinEnergy(NeuOSArtifact):
    """All count with the slack of the one that is furthest ahead."""

    def eps(self, slacks: Sequence[float]) -> float:
        """The smallest, at most 0."""
        return min([0.0, *slacks])
