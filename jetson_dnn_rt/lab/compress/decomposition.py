"""A network with some of its layers decomposed: which, into what ranks, and why not the others.

`decompose` makes one from weights; `apply_structure` makes an empty one, to load weights into.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.spec import DecompositionSpec

if TYPE_CHECKING:
    from torch import fx

    from jetson_dnn_rt.lab.compress.covariance import Covariance
    from jetson_dnn_rt.lab.compress.layers import KeepIf

NOT_SMALLER = "not fewer multiply-accumulates"
SPARED = "the budget is met without it"


@dataclass(frozen=True)
class LayerDecomposition:
    """One layer and what became of it.

    Attributes
    ----------
    name : str
        Path of the submodule in the graph.
    kind : str
        ``conv`` or ``linear``.
    ranks : tuple of int
        (R3, R4) per group, or (R,); empty where the layer was never decomposed.
    macs_before, macs_after : int
        Multiply-accumulates per picture.
    error : float
        Relative error that the ranks bring, of what `metric` says; 0 without ranks.
    metric : str
        ``weight``, or ``output`` where the covariance of the inputs was known.
    kept : bool
        Whether the network has the decomposed layer.
    reason : str
        Why not: ``1x1``, ``depthwise``, ``not faster: 0.41 ms against 0.38``; empty where kept.
    """

    name: str
    kind: str
    ranks: tuple[int, ...]
    macs_before: int
    macs_after: int
    error: float
    metric: str
    kept: bool
    reason: str


@dataclass(frozen=True)
class Decomposition:
    """A network and what became of its layers.

    Attributes
    ----------
    spec : DecompositionSpec
        What was asked for.
    layers : tuple of LayerDecomposition
        Every convolution and linear layer, in the order of their first calls.
    macs_before, macs_after : int
        Of the whole network per picture, including what cannot be decomposed.
    parameters_before, parameters_after : int
        Of the whole network; batch norms are gone afterwards.
    note : str
        Where the budget could not be reached: why, and what was reached. Else empty.
    """

    spec: DecompositionSpec
    layers: tuple[LayerDecomposition, ...]
    macs_before: int
    macs_after: int
    parameters_before: int
    parameters_after: int
    note: str = ""

    @property
    def macs_kept(self) -> float:
        """Share of the multiply-accumulates that is left."""
        return self.macs_after / self.macs_before if self.macs_before else 1.0

    def to_json(self) -> dict[str, Any]:
        """Give all of it as values that `json` writes."""
        return {**asdict(self), "spec": str(self.spec)}

    @staticmethod
    def from_json(data: object) -> Decomposition:
        """Read what `to_json` gave.

        Raises
        ------
        ModelError
            When it is anything else.
        """
        values = _read_fields(data, Decomposition, "decomposition")
        layers = values.pop("layers")
        if not isinstance(layers, (list, tuple)):
            raise ModelError("decomposition: layers must be a list")
        try:
            spec = DecompositionSpec.parse(values.pop("spec"))
        except (ConfigurationError, TypeError) as error:
            raise ModelError(f"decomposition: {error}") from error
        read = tuple(_read_layer(layer) for layer in layers)
        if len({layer.name for layer in read}) != len(read):
            raise ModelError("decomposition: a layer is there twice")
        return Decomposition(spec, read, **values)


_COUNTS = ("macs_before", "macs_after", "parameters_before", "parameters_after")


def _read_fields(data: object, form: type, what: str) -> dict[str, Any]:
    names = [field.name for field in fields(form)]
    if not isinstance(data, Mapping) or set(data) != set(names):
        raise ModelError(f"{what} must have exactly the entries {', '.join(names)}")
    values = dict(data)
    for name in _COUNTS:
        if name in values and (type(values[name]) is not int or values[name] < 0):
            raise ModelError(f"{what}: {name} must be a whole number >= 0: {values[name]!r}")
    for name in ("name", "kind", "metric", "reason", "note"):
        if name in values and not isinstance(values[name], str):
            raise ModelError(f"{what}: {name} must be text: {values[name]!r}")
    return values


def _read_layer(data: object) -> LayerDecomposition:
    values = _read_fields(data, LayerDecomposition, "decomposed layer")
    name, ranks = values["name"], values["ranks"]
    if not isinstance(ranks, (list, tuple)) or not all(
        type(rank) is int and rank >= 1 for rank in ranks
    ):
        raise ModelError(f"layer {name!r}: ranks must be whole numbers >= 1: {ranks!r}")
    if values["kind"] not in ("conv", "linear") or values["metric"] not in ("weight", "output"):
        raise ModelError(f"layer {name!r}: kind or metric is unknown")
    allowed = (1 if values["kind"] == "linear" else 2,)
    if type(values["kept"]) is not bool or len(ranks) not in (
        allowed if values["kept"] else (0, *allowed)
    ):
        raise ModelError(f"layer {name!r}: kept or the number of ranks is wrong")
    error = values["error"]
    if type(error) not in (int, float) or not 0.0 <= error < float("inf"):
        raise ModelError(f"layer {name!r}: error must be a number >= 0: {error!r}")
    return LayerDecomposition(**{**values, "ranks": tuple(ranks), "error": float(error)})


def list_layers(graph: fx.GraphModule, method: str) -> tuple[str, ...]:
    """Paths of the layers that a method can decompose, in the order of their first calls."""
    from jetson_dnn_rt.lab.compress.layers import find_layers

    return tuple(name for name, layer in find_layers(graph, method).items() if not layer.reason)


def decompose(
    graph: fx.GraphModule,
    input_shape: tuple[int, ...],
    spec: DecompositionSpec,
    *,
    covariances: Mapping[str, Covariance] | None = None,
    sensitivities: Mapping[str, float] | None = None,
    keep_if: KeepIf | None = None,
    progress: Progress = ignore_progress,
) -> tuple[fx.GraphModule, Decomposition]:
    """Decompose a network.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        Left as it is. In evaluation mode.
    input_shape : tuple of int
        Of its input, ``(1, 3, H, W)``.
    spec : DecompositionSpec
        Method, rule and value.
    covariances : mapping of str to Covariance, optional
        Of the inputs of its layers (`lab.compress.covariance.collect`): the error of a
        layer's output is minimised, and decides on the ranks. A layer without one is decomposed
        by its weights, and its `metric` says so.
    sensitivities : mapping of str to float, optional
        What a squared relative error of each layer costs the network
        (`jetson_dnn_rt.lab.compress.sensitivity`): a ``macs`` budget is spent by that. By default
        all layers count alike; so does, as the mean of the others, one that is not named.
    keep_if : callable, optional
        Called with a layer's name, the layer, what would replace it and the shape of its input;
        says whether to replace it and, if not, why. Under a ``macs`` rule the budget is spent
        again on the other layers.
    progress : callable
        Called with ``("analyse" | "measure" | "factorise", layers done, layers in all)``.

    Returns
    -------
    graph : torch.fx.GraphModule
        A copy. Nodes have the same names; decomposed layers are `nn.Sequential` in their place.
    decomposition : Decomposition
        What became of each layer.

    Raises
    ------
    ConfigurationError
        When the budget of a ``macs`` rule is below the smallest possible share.
    ModelError
        When the graph cannot be run.
    """
    from jetson_dnn_rt.lab.compress.layers import find_layers
    from jetson_dnn_rt.lab.compress.planning import analyse, plan
    from jetson_dnn_rt.models.graph.layers import copy_folded, replace_module

    reduced = copy_folded(graph)
    analyses, costs = analyse(reduced, input_shape, spec.method, covariances or {}, progress)
    worth = sensitivities or {}
    if any(not 0.0 <= value < float("inf") for value in worth.values()):
        raise ValueError("sensitivities must be finite and >= 0")
    made = plan(reduced, spec, analyses, costs, worth, keep_if, progress)
    errors = {}
    kept = [name for name in made.ranks if name not in made.refused]
    for done, name in enumerate(kept):
        built, errors[name] = analyses[name].factorise(made.ranks[name])
        replace_module(reduced, name, built)
        progress("factorise", done + 1, len(kept))
    untouched = SPARED if spec.rule == "macs" else NOT_SMALLER
    layers = []
    for name, layer in find_layers(graph, spec.method).items():
        before = costs.layers[name].macs
        analysis, ranks = analyses.get(name), made.ranks.get(name, ())
        keep = name in errors
        layers.append(
            LayerDecomposition(
                name,
                layer.kind,
                ranks,
                before,
                analysis.macs(ranks) if analysis and keep else before,
                errors[name] if keep else made.errors.get(name, 0.0),
                analysis.metric if analysis else "weight",
                keep,
                "" if keep else made.refused.get(name) or layer.reason or untouched,
            )
        )
    saved = sum(layer.macs_before - layer.macs_after for layer in layers)
    return reduced, Decomposition(
        spec,
        tuple(layers),
        costs.macs,
        costs.macs - saved,
        sum(parameter.numel() for parameter in graph.parameters()),
        sum(parameter.numel() for parameter in reduced.parameters()),
        made.note,
    )


def apply_structure(graph: fx.GraphModule, decomposition: Decomposition) -> fx.GraphModule:
    """Make the network of a decomposition without its weights, to load a state dict into.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        The network that was decomposed; left as it is.
    decomposition : Decomposition
        What became of its layers.

    Returns
    -------
    torch.fx.GraphModule
        A copy; weights of decomposed layers are zero.

    Raises
    ------
    ModelError
        When the decomposition is not one of this graph.
    """
    from jetson_dnn_rt.lab.compress.layers import build_structure, find_layers
    from jetson_dnn_rt.models.graph.layers import copy_folded, replace_module

    reduced = copy_folded(graph)
    found = find_layers(graph, decomposition.spec.method)
    listed = {layer.name: layer for layer in decomposition.layers}
    if set(found) != set(listed):
        different = sorted(set(found) ^ set(listed))
        raise ModelError(f"the decomposition is of another network: see {different[0]!r}")
    for name, layer in listed.items():
        if layer.kind != found[name].kind:
            raise ModelError(f"layer {name!r} is a {found[name].kind}, not a {layer.kind}")
        if layer.kept:
            built = build_structure(reduced.get_submodule(name), layer.ranks)
            replace_module(reduced, name, built)
    return reduced
