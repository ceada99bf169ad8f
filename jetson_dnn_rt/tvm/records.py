# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Checks of tuning databases: allowed file content, and what a schedule may add to a kernel.

A record is a list of instructions that TVM applies to a kernel before it compiles it. Some carry
code: the annotation ``pragma_import_llvm`` links a module of the record's choice into the library,
an index map may call functions. So instructions, annotations and index maps are allow-listed, and
TVM reads a copy written from the checked content. A scheduled kernel is compared with the one that
was lowered here: a schedule rearranges, it calls nothing and imports nothing.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.safety.records import DAMAGE

if TYPE_CHECKING:
    import tvm


class DatabaseError(ModelError):
    """A tuning database is damaged, refused, or does not match what is compiled."""


# Written by MetaSchedule's rules and steps, for CPUs and for CUDA. Left out: instructions that
# change types or hide accesses (`Unsafe...`), and those that no rule uses.
_INSTRUCTIONS = frozenset((
    "AddUnitLoop", "Annotate", "Bind", "Blockize", "CacheRead", "CacheWrite", "ComputeAt",
    "ComputeInline", "DecomposeReduction", "EnterPostproc", "Fuse", "GetChildBlocks",
    "GetConsumers", "GetLoops", "GetOutputBlocks", "GetProducers", "GetSBlock", "Merge",
    "PadEinsum", "Parallel", "RFactor", "ReIndex", "ReindexCacheRead", "ReindexCacheWrite",
    "Reorder", "ReorderBlockIterVar", "ReverseComputeAt", "ReverseComputeInline",
    "SampleCategorical", "SampleComputeLocation", "SamplePartitionedTile", "SamplePerfectTile",
    "SetScope", "Split", "StorageAlign", "Tensorize", "TransformBlockLayout", "TransformLayout",
    "Unannotate", "Unroll", "Vectorize",
))  # fmt: skip
_WITH_INDEX_MAP = (
    "ReindexCacheRead",
    "ReindexCacheWrite",
    "TransformBlockLayout",
    "TransformLayout",
)

# Positions in an instruction's attributes that switch off a check of TVM, with their required
# values: `disable_predication`, and a padding that is not checked against the buffer.
_FIXED: dict[str, dict[int, object]] = {"Split": {1: 0}, "TransformLayout": {2: None}}

ANNOTATIONS = frozenset((
    "double_buffer_scope", "meta_schedule.auto_tensorize", "meta_schedule.auto_tensorize_init",
    "meta_schedule.cache_type", "meta_schedule.cooperative_fetch",
    "meta_schedule.cross_thread_reduction_applied", "meta_schedule.inline_rule",
    "meta_schedule.layout_rewrite_preproc", "meta_schedule.parallel",
    "meta_schedule.random_compute_producer", "meta_schedule.tensor_core_enabled",
    "meta_schedule.thread_extent_high_inclusive", "meta_schedule.thread_extent_low_inclusive",
    "meta_schedule.tiling_structure", "meta_schedule.unroll_explicit",
    "meta_schedule.unroll_implicit", "meta_schedule.vectorize", "pragma_auto_unroll_max_step",
    "pragma_unroll_explicit", "software_pipeline_async_stages", "software_pipeline_order",
    "software_pipeline_stage", "tirx.manifest_shared_memory_local_stage", "vector_bytes",
    "warp_execution",
))  # fmt: skip
"""Annotations of loops and blocks; their values are numbers, words or lists of them."""

# In scheduled kernels without being annotated by a record: of the function, of ``StorageAlign``,
# and of tensor intrinsics.
_NEW_KEYS = frozenset({"tirx.is_scheduled", "buffer_dim_align"})

_NEW_OPERATORS = re.compile(
    r"(prim|tirx)\.(if_then_else|likely|min_value|max_value|reinterpret)"
    # Tensor-core instructions, which come with TVM's own intrinsics.
    r"|tirx\.(tvm_(load|store)_matrix_sync|tvm_mma_sync|tvm_fill_fragment|tvm_access_ptr"
    r"|tvm_storage_sync|type_annotation|address_of|(ptx_)?(mma_fill|mma_store)(_legacy)?"
    r"|buffer_data|ptx_(ldmatrix|mma|cp_async|commit_group|wait_group)(_legacy)?)"
)
_NEW_STATEMENTS = frozenset({"thread_extent", "virtual_thread", "warp_execution"})

_VARIABLE = re.compile(r"[a-z]{1,8}\d{1,6}|None", re.ASCII)
_WORD = re.compile(r"[\w.:@-]{0,200}", re.ASCII)
_QUOTED = re.compile(r'"[\w.:@-]{0,200}"', re.ASCII)

_KERNEL_TYPES = re.compile(
    r"None|int|float|bool|ffi\.(Array|Map|String)"
    r"|(prim|tirx|s_tir|relax|relax\.expr)\.\w+"
    r"|ir\.(Call|DictAttrs|FloatImm|GlobalVar|IRModule|IntImm|Op|PointerType|PrimType|Range"
    r"|SequentialSpan|SourceMap|SourceName|Span|StringImm|StringType|TensorLoad|TensorRegion|TupleType|Type|Var)",
    re.ASCII,
)
_INDEX_TYPES = re.compile(
    r"None|int|bool|ffi\.(Array|String)|tirx\.IndexMap|ir\.(IntImm|PrimType|Range|Type|Var)"
    r"|prim\.(Add|Cast|Div|FloorDiv|FloorMod|Max|Min|Mod|Mul|Sub)"
)

_MAX_DEPTH = 8


def check_workloads(data: bytes) -> bytes:
    """Read the kernels of a database and write them again; they are compared, and never run.

    Raises `DatabaseError` when a kernel is damaged or contains anything else.
    """
    lines = []
    for place, content in _read_lines("kernel", data):
        try:
            number, text = content
            packed = base64.b64decode(text, validate=True)
            size = int.from_bytes(packed[:8], "little")
            if not re.fullmatch(r"\d{1,20}", number) or len(packed) != 8 + size:
                raise ValueError("its number or its length is wrong")
            graph = _write(_check_graph(json.loads(packed[8:]), _KERNEL_TYPES)).encode()
        except DAMAGE as error:
            raise DatabaseError(f"the tuning database is refused: {place}: {error}") from error
        packed = len(graph).to_bytes(8, "little") + graph
        lines.append(_write([number, base64.b64encode(packed).decode()]))
    return _join(lines)


def check_records(data: bytes, target: tvm.target.Target) -> bytes:
    """Read the schedules of a database, one per line, and write them again.

    Raises `DatabaseError`, which names the record and the instruction, when one is damaged, for
    another target, or could do more than rearrange a kernel.
    """
    expected = _to_plain(target.export())
    lines = []
    for place, content in _read_lines("record", data):
        try:
            _check_record(content, expected)
        except DAMAGE as error:
            raise DatabaseError(f"the tuning database is refused: {place}: {error}") from error
        lines.append(_write(content))
    return _join(lines)


def register_intrinsics(records: bytes) -> None:
    """Let TVM know the tensor intrinsics where checked records use any: it takes half a minute."""
    if b'"Tensorize"' in records:
        import tvm.s_tir.tensor_intrin  # noqa: F401  # only tuning imports it by itself


def check_scheduled(lowered: tvm.IRModule, scheduled: tvm.IRModule) -> None:
    """Compare scheduled kernels with those that were lowered here, before they are compiled.

    Raises `DatabaseError`, which names the kernel, when a schedule added a call, an import or a
    function.
    """
    before, after = list_kernels(lowered), list_kernels(scheduled)
    if set(before) != set(after):
        names = ", ".join(sorted(set(before) ^ set(after)))
        raise DatabaseError(f"the tuning database is refused: schedules changed kernels: {names}")
    for name, kernel in after.items():
        if kernel.same_as(before[name]):
            continue
        known, found = _summarise(before[name]), _summarise(kernel)
        added = {
            "the operator": {o for o in found[0] - known[0] if not _NEW_OPERATORS.fullmatch(o)},
            "the annotation": found[1] - known[1] - ANNOTATIONS - _NEW_KEYS,
            "the statement": found[2] - known[2] - _NEW_STATEMENTS - ANNOTATIONS,
            "an object of type": {
                t for t in found[3] - known[3] if not _KERNEL_TYPES.fullmatch(t)
            },
        }
        for what, items in added.items():
            if items:
                raise DatabaseError(
                    f"the tuning database is refused: its record for the kernel {name} adds "
                    f"{what} {min(items)!r:.100}; a schedule only rearranges: tune again"
                )


def list_kernels(module: tvm.IRModule) -> dict[str, Any]:
    """TIR functions of a lowered network, by name."""
    from tvm import tirx

    return {
        str(variable.name_hint): function
        for variable, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }


def _summarise(kernel: Any) -> tuple[set[str], ...]:
    """Operators, keys of annotations and attributes, keys of statements, object types."""
    import tvm

    nodes = json.loads(tvm.ir.save_json(kernel))["nodes"]
    found: tuple[set[str], ...] = (set(), set(), set(), set())
    operators, keys, statements, types = found
    for node in nodes:
        kind, content = node["type"], node.get("data")
        types.add(kind)
        if kind == "ir.Op":
            operators.add(content)
        elif kind == "ir.Call" and nodes[content["op"]]["type"] != "ir.Op":
            operators.add(nodes[content["op"]]["type"])  # a function, by its name
        elif kind == "ffi.Map":
            keys.update(
                nodes[key]["data"] for key in content[::2] if nodes[key]["type"] == "ffi.String"
            )
        elif kind == "tirx.AttrStmt":
            statements.add(nodes[content["attr_key"]]["data"])
    return found


# -- records -----------------------------------------------------------------------------------


def _check_record(content: Any, expected: Any) -> None:
    workload, (trace, seconds, target, arguments) = content
    if not _is_count(workload):
        raise ValueError(f"its kernel is {workload!r:.40}")
    if not isinstance(seconds, list) or not all(_is_number(s) and s >= 0 for s in seconds):
        raise ValueError(f"its times are {seconds!r:.100}")
    if target != expected:
        raise ValueError(f"its target is {target!r:.200}, not {expected!r:.200}")
    _check_values("the arguments", arguments, _WORD)
    instructions, decisions = trace
    for number, (kind, inputs, attributes, outputs) in enumerate(instructions):
        place = f"instruction {number} ({kind!r:.40})"
        if kind not in _INSTRUCTIONS:
            raise ValueError(f"{place} is not one that tuning here writes")
        if kind in ("Annotate", "Unannotate") and not set(attributes) <= ANNOTATIONS:
            raise ValueError(
                f"{place} has the key {attributes!r:.100}, which no tuning here writes"
            )
        for position, wanted in _FIXED.get(kind, {}).items():
            if attributes[position] != wanted:
                raise ValueError(f"{place} has {attributes!r:.100}, which switches a check off")
        _check_values(place, outputs, _VARIABLE)
        for values, words in ((attributes, _WORD), (inputs, _VARIABLE)):
            for value in values:
                text = value if isinstance(value, str) else ""
                if kind in _WITH_INDEX_MAP and text.startswith("{"):
                    _check_index_map(text)
                elif not (kind == "Annotate" and _QUOTED.fullmatch(text)):
                    _check_values(place, value, words)
    _check_decisions(instructions, decisions)


def _check_decisions(instructions: Any, decisions: Any) -> None:
    """Check that whatever samples has its decision: without one TVM writes beyond its memory."""
    made = {}
    for number, value in decisions:
        if not _is_count(number) or number in made:
            raise ValueError(f"a decision is for {number!r:.40}")
        made[number] = value
    for number, (kind, _, attributes, outputs) in enumerate(instructions):
        if not kind.startswith("Sample"):
            continue
        value = made.pop(number, None)
        if kind == "SampleCategorical":
            fits = _is_count(value) and value < len(attributes[0])
        elif kind == "SampleComputeLocation":
            fits = value in (-2, -1) or _is_count(value)  # inlined, at the root, or in a loop
        else:
            fits = isinstance(value, list) and all(_is_count(size) and size for size in value)
            fits = fits and len(value) == attributes[0] == len(outputs)
        if not fits:
            raise ValueError(f"a decision of instruction {number} ({kind}) is {value!r:.100}")
    if made:
        raise ValueError(f"a decision is for instruction {min(made)}, which samples nothing")


def _check_values(place: str, value: Any, words: re.Pattern[str], depth: int = 0) -> None:
    """Check numbers, words and lists of them."""
    if isinstance(value, list) and depth < _MAX_DEPTH:
        for item in value:
            _check_values(place, item, words, depth + 1)
    elif isinstance(value, str):
        if not words.fullmatch(value):
            raise ValueError(f"{place} has {value!r:.100}")
    elif not (value is None or isinstance(value, bool) or _is_number(value)):
        raise ValueError(f"{place} has {value!r:.100}")


# A database has few distinct ones, each in thousands of records.
@functools.lru_cache(256)
def _check_index_map(text: str) -> None:
    _check_graph(json.loads(text.encode()), _INDEX_TYPES)


def _check_graph(graph: Any, types: re.Pattern[str]) -> Any:
    """Check that a JSON graph of TVM objects has allowed types only."""
    for node in graph["nodes"]:
        if not types.fullmatch(node["type"]):
            raise ValueError(f"it holds an object of type {node['type']!r:.100}")
    return graph


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and abs(value) < 1 << 62


# -- JSON --------------------------------------------------------------------------------------


def _read_lines(kind: str, data: bytes) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(data.splitlines()):
        try:
            yield f"{kind} {number}", json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DatabaseError(
                f"the tuning database is damaged: {kind} {number}: {error}"
            ) from error


def _write(content: Any) -> str:
    # TVM's reader may read an odd file differently from Python's: it gets a plain one.
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def _join(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def _to_plain(value: Any) -> Any:
    """Convert TVM's containers to Python's; of TVM's, only maps have items."""
    if hasattr(value, "items"):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "__len__"):
        return [_to_plain(item) for item in value]
    return value
