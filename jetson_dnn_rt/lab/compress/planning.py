"""Which layers of a network to decompose into what ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import fx, nn

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.compress.budget import Options, allocate
from jetson_dnn_rt.lab.compress.covariance import Covariance
from jetson_dnn_rt.lab.compress.factorisation import LayerAnalysis
from jetson_dnn_rt.lab.compress.layers import KeepIf
from jetson_dnn_rt.variants.decomposition import Ranks, find_layers
from jetson_dnn_rt.variants.measuring.macs import Costs, count
from jetson_dnn_rt.variants.progress import Progress
from jetson_dnn_rt.variants.spec import DecompositionSpec

_ROUNDS = 3  # of asking which layers are faster and spending the budget on those


@dataclass
class Plan:
    """Ranks by layer.

    Attributes
    ----------
    ranks : dict of str to tuple of int
        Of each layer that is to be decomposed, or was refused.
    refused : dict of str to str
        Layers that are not decomposed after all, and why.
    errors : dict of str to float
        Relative errors of the refused ones.
    note : str
        Where a budget could not be reached: why. Else empty.
    """

    ranks: dict[str, Ranks]
    refused: dict[str, str] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    note: str = ""


def analyse(
    graph: fx.GraphModule,
    input_shape: tuple[int, ...],
    method: str,
    covariances: Mapping[str, Covariance],
    progress: Progress,
) -> tuple[dict[str, LayerAnalysis], Costs]:
    """Analyse all layers that a method can decompose.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        Batch norms folded.
    input_shape : tuple of int
        Of its input.
    method, covariances, progress
        As in `jetson_dnn_rt.lab.compress.decomposition.decompose`.

    Raises
    ------
    ModelError
        When the graph cannot be run.
    """
    costs = count(graph, input_shape)
    found = {
        name: layer
        for name, layer in find_layers(graph, method).items()
        if not layer.reason and name in costs.layers
    }
    analyses = {}
    for done, (name, layer) in enumerate(found.items()):
        module = graph.get_submodule(name)
        assert isinstance(module, (nn.Conv2d, nn.Linear))
        analyses[name] = LayerAnalysis(
            module, layer, costs.layers[name], method, covariances.get(name)
        )
        progress("analyse", done + 1, len(found))
    return analyses, costs


def plan(
    graph: fx.GraphModule,
    spec: DecompositionSpec,
    analyses: Mapping[str, LayerAnalysis],
    costs: Costs,
    sensitivities: Mapping[str, float],
    keep_if: KeepIf | None,
    progress: Progress,
) -> Plan:
    """Choose ranks, and leave out the layers that are refused.

    Raises
    ------
    ConfigurationError
        When the budget of a ``macs`` rule is below the smallest possible share.
    """
    if spec.rule == "macs":
        return _plan_budget(graph, spec, analyses, costs, sensitivities, keep_if, progress)
    chosen = {name: analysis.choose(spec) for name, analysis in analyses.items()}
    made = Plan({name: ranks for name, ranks in chosen.items() if ranks})
    if keep_if is not None:
        judge = _Judge(graph, analyses, keep_if, progress)
        made.refused = judge.refuse(made.ranks)
        made.errors = judge.errors
    return made


def _plan_budget(
    graph: fx.GraphModule,
    spec: DecompositionSpec,
    analyses: Mapping[str, LayerAnalysis],
    costs: Costs,
    sensitivities: Mapping[str, float],
    keep_if: KeepIf | None,
    progress: Progress,
) -> Plan:
    offers = {name: analysis.options() for name, analysis in analyses.items()}
    mean = sum(sensitivities.values()) / len(sensitivities) if sensitivities else 1.0
    options = {
        name: Options(offer[0].costs, _lose(offer[0].errors) * sensitivities.get(name, mean))
        for name, offer in offers.items()
    }
    fixed = costs.macs - sum(analysis.cost.macs for analysis in analyses.values())
    limit = int(spec.value * costs.macs) - fixed
    least = _least(options)
    if least > limit:
        raise ConfigurationError(
            f"{spec}: cannot keep {spec.value:.2f} of the multiply-accumulates: the smallest "
            f"share possible is {_share(least + fixed, costs):.4f}"
        )
    judge = _Judge(graph, analyses, keep_if, progress) if keep_if is not None else None
    refused: dict[str, str] = {}
    ranks: dict[str, Ranks] = {}
    note = ""
    for _ in range(_ROUNDS):
        left = {name: option for name, option in options.items() if name not in refused}
        room = limit - sum(analyses[name].cost.macs for name in refused)
        if _least(left) > room:
            # The cheapest ranks everywhere would ruin the network and still miss the budget. So
            # the others give what was asked of the whole.
            room = int(spec.value * sum(analyses[name].cost.macs for name in left))
        ranks = {name: offers[name][1][index] for name, index in allocate(left, room).items()}
        ranks = {name: pair for name, pair in ranks.items() if pair}
        found = judge.refuse(ranks) if judge is not None else {}
        refused.update(found)
        if not found:
            break
    kept = costs.macs - sum(
        analyses[name].cost.macs - analyses[name].macs(pair)
        for name, pair in ranks.items()
        if name not in refused
    )
    if kept > int(spec.value * costs.macs):
        note = (
            f"budget {spec.value:.2f} not reached: {_share(kept, costs):.4f} of the "
            f"multiply-accumulates kept, because {len(refused)} layers stay as they are"
        )
    if judge is None:
        return Plan(ranks, note=note)
    tried = {name: judge.ranks[name] for name in refused}
    return Plan({**ranks, **tried}, refused, judge.errors, note)


def _lose(errors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """What squared relative errors cost: -log of the share of the signal that is left.

    Layers follow one another, so these shares multiply. Small errors cost themselves; one that
    leaves nothing of a layer is dearer than any sum of small ones.
    """
    return np.asarray(-np.log1p(-np.minimum(errors, 1.0 - 1e-9)))


def _least(options: Mapping[str, Options]) -> int:
    return sum(int(option.costs.min()) for option in options.values())


def _share(macs: int, costs: Costs) -> float:
    return macs / costs.macs


class _Judge:
    """Asks about each layer and its ranks once."""

    def __init__(
        self,
        graph: fx.GraphModule,
        analyses: Mapping[str, LayerAnalysis],
        keep_if: KeepIf,
        progress: Progress,
    ) -> None:
        self._graph, self._analyses = graph, analyses
        self._keep_if, self._progress = keep_if, progress
        self._verdicts: dict[tuple[str, Ranks], tuple[bool, str]] = {}
        self.ranks: dict[str, Ranks] = {}
        self.errors: dict[str, float] = {}

    def refuse(self, chosen: Mapping[str, Ranks]) -> dict[str, str]:
        """Layers that are not to be decomposed so, with the reasons."""
        refused = {}
        for done, (name, ranks) in enumerate(chosen.items()):
            key = (name, ranks)
            if key not in self._verdicts:
                self._verdicts[key] = self._ask(name, ranks)
            self._progress("measure", done + 1, len(chosen))
            keep, reason = self._verdicts[key]
            if not keep:
                refused[name] = reason or "refused"
        return refused

    def _ask(self, name: str, ranks: Ranks) -> tuple[bool, str]:
        analysis = self._analyses[name]
        # Only time is asked for, so the first approximation will do.
        built, self.errors[name] = analysis.factorise(ranks, refine=False)
        self.ranks[name] = ranks
        shape = analysis.cost.input_shapes[0]
        return self._keep_if(name, self._graph.get_submodule(name), built, shape)
