# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""List what was built, remove what is no longer of use, copy it to another board.

`prune` removes entries that match any of its conditions; without one, stale entries: damaged, made
by another version of a back end, or for a device that is not here. Those of earlier exports to the
same file are named and kept, as they may take hours to be made again.

`export` writes entries into a file, `import` stores those of a file, each after all of it was
checked. Machine code (engines, compiled kernels) is neither exported nor imported: run
`jetson-dnn-rt build` on the other board, which makes it from the rest. A library is trusted code
all the same, since a tuning database decides what code is made: `import` takes a file only with
--trust.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.options import parse_positive
from jetson_dnn_rt.cli.text import Cell, format_rows
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.printable import make_printable
from jetson_dnn_rt.traces.summary import has_quantile
from jetson_dnn_rt.variants.library.entry import KINDS

if TYPE_CHECKING:
    from jetson_dnn_rt.variants.library.library import Library, Listing
    from jetson_dnn_rt.variants.library.transfer import Transfer
    from jetson_dnn_rt.variants.measuring.measurement import Measurement, TimeDistribution

HELP = "list what was built, remove what is no longer of use, copy it to another board"
COLUMNS = ("p50 ms", "p99 ms", "cancel ms", "memory MB", "agreement", "MACs M", "parameters k")

_HEADER = ["model", "variant", "kind", "state", *COLUMNS, "disk MB", "stored", "device"]
_AGREEMENT, _DISK = _HEADER.index("agreement"), _HEADER.index("disk MB")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add_action(name: str, text: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=text)
        text = "the library (default: ~/.cache/jetson_dnn_rt)"
        action.add_argument("--engine-cache", type=Path, metavar="DIR", help=text)
        action.add_argument("--json", action="store_true", help="one JSON object as the last line")
        return action

    add_action("list", "entries with their measured figures")
    add = add_action("prune", "remove what is no longer of use").add_argument
    add("--stale", action="store_true", help="damaged, of another back-end version or device")
    text = "of earlier exports to the same file, not used since"
    add("--superseded", action="store_true", help=text)
    text = "of this kind, all of them: split = choices of threads: auto, which are measured again"
    add("--kind", choices=KINDS, help=text)
    text = "neither stored nor loaded for this long"
    add("--older-than", type=parse_positive, metavar="DAYS", help=text)
    text = "least recently used ones, while the whole library is larger"
    add("--larger-than", type=parse_positive, metavar="MB", help=text)
    add("--dry-run", action="store_true", help="only report what would be removed")
    add = add_action("export", "write entries into a file").add_argument
    add("file", type=Path, metavar="FILE.tar", help="what is written")
    text = "only of this model, as `library list` names it: builtin:detector"
    add("--model", metavar="NAME", help=text)
    add("--variant", metavar="NAME", help="only this variant: full@tvm-fp32")
    add("--kind", choices=KINDS, help="only entries of this kind")
    add = add_action("import", "store the entries of a file").add_argument
    add("file", type=Path, metavar="FILE.tar", help="what `library export` wrote")
    add("--replace", action="store_true", help="replace entries that are there already")
    text = "needed: a library is trusted code, and whoever made the file can run code here"
    add("--trust", action="store_true", help=text)


def execute(args: argparse.Namespace) -> int:
    """List, prune, export or import.

    ConfigurationError: the library cannot be used, an entry cannot be removed, or the file is
    refused or not trusted.
    """
    from jetson_dnn_rt.variants.library.library import Library

    actions = {"list": _list, "prune": _prune, "export": _export, "import": _import}
    return actions[args.action](Library(args.engine_cache), args)


def _list(library: Library, args: argparse.Namespace) -> int:
    from jetson_dnn_rt.variants.measuring.machine import find_stale

    entries = []
    for listing in library.entries():
        measurement, unreadable = _read_measurement(listing)
        stale = find_stale(listing.header.key) if listing.header else ""
        entries.append((listing, measurement, listing.problem or unreadable or stale))
    if args.json:
        result = {
            "library": str(library.root),
            "size_mb": sum(listing.size_bytes for listing, _, _ in entries) / 1e6,
            "entries": [_entry_to_dict(*entry) for entry in entries],
        }
        print(json.dumps(result))
    else:
        print(_format_entries(library, entries))
    return 0


def _prune(library: Library, args: argparse.Namespace) -> int:
    from jetson_dnn_rt.variants.library.library import find_superseded
    from jetson_dnn_rt.variants.measuring.machine import find_stale

    others = (args.superseded, args.kind, args.older_than, args.larger_than)
    stale = args.stale or not any(others)
    limit = args.larger_than
    removals = library.prune(
        find_stale=find_stale if stale else None,
        superseded=args.superseded,
        kind=args.kind or "",
        unused_days=args.older_than,
        limit_bytes=None if limit is None else round(limit * 1e6),
        dry_run=args.dry_run,
    )
    size = sum(removal.listing.size_bytes for removal in removals)
    if args.json:
        removed = [
            {
                "path": str(r.listing.path),
                "reason": r.reason,
                "size_mb": r.listing.size_bytes / 1e6,
            }
            for r in removals
        ]
        result = {"library": str(library.root), "dry_run": args.dry_run, "removed": removed}
        result |= {"removed_mb": size / 1e6, "size_mb": library.size_bytes() / 1e6}
        print(json.dumps(result))
        return 0
    for removal in removals:
        print(f"{removal.listing.path}: {removal.reason}")
    verb = "would be removed" if args.dry_run else "removed"
    left = library.size_bytes() - (size if args.dry_run else 0)
    print(f"{len(removals)} entries, {size / 1e6:.1f} MB {verb}; {left / 1e6:.1f} MB stay")
    gone = {removal.listing.path for removal in removals}
    stay = [listing for listing in library.entries() if listing.path not in gone]
    if earlier := find_superseded(stay):
        size = sum(listing.size_bytes for listing in stay if listing.path in earlier)
        print(
            f"{len(earlier)} of them, {size / 1e6:.1f} MB, are of earlier exports to the same "
            "file: jetson-dnn-rt library prune --superseded"
        )
    return 0


def _export(library: Library, args: argparse.Namespace) -> int:
    from jetson_dnn_rt.variants.library.transfer import export_entries

    def is_wanted(listing: Listing) -> bool:
        header = listing.header
        return (
            header is not None
            and args.model in (None, header.model)
            and args.variant in (None, header.key.variant)
            and args.kind in (None, header.key.kind)
        )

    transfers = export_entries(library, args.file, is_wanted)
    _report_transfers(transfers, "written", library, args)
    return 0 if any(not transfer.reason for transfer in transfers) else 1


def _import(library: Library, args: argparse.Namespace) -> int:
    from jetson_dnn_rt.variants.library.transfer import import_entries

    if not args.trust:
        raise ConfigurationError(
            f"{args.file} is refused: a library is trusted code, and whoever made this file can "
            "run code as you; fix: add --trust if you made it or trust its maker"
        )
    library.check_writable()
    transfers = import_entries(library, args.file, replace=args.replace)
    _report_transfers(transfers, "taken", library, args)
    library.check_kept()
    return 0


def _report_transfers(
    transfers: Sequence[Transfer], verb: str, library: Library, args: argparse.Namespace
) -> None:
    from jetson_dnn_rt.variants.measuring.machine import find_stale

    if args.json:
        entries = [
            {
                "model": transfer.header.model,
                "variant": transfer.header.key.variant,
                "kind": transfer.header.key.kind,
                "size_mb": transfer.size_bytes / 1e6,
                "left_out": transfer.reason,
            }
            for transfer in transfers
        ]
        print(json.dumps({"library": str(library.root), "file": str(args.file), verb: entries}))
        return
    for transfer in transfers:
        key = transfer.header.key
        note = f"left out: {transfer.reason}" if transfer.reason else verb
        stale = find_stale(key)
        if verb == "taken" and stale and not transfer.reason:
            note += f", but of no use here: {stale}"
        print(f"{transfer.header.model or key.model_hash[:12]} {key.variant} {key.kind}: {note}")
    done = [transfer for transfer in transfers if not transfer.reason]
    size = sum(transfer.size_bytes for transfer in done) / 1e6
    print(f"{len(done)} of {len(transfers)} entries, {size:.1f} MB {verb}; {args.file}")


def _read_measurement(listing: Listing) -> tuple[Measurement | None, str]:
    """The measurement of an entry, or why it, or a choice, cannot be read."""
    from jetson_dnn_rt.runtime.sharing.split_choice import SPLIT, read_choice
    from jetson_dnn_rt.variants.measuring.measurement import Measurement

    if listing.header is None:
        return None, ""
    try:
        if listing.header.key.kind == SPLIT:
            read_choice(listing.header.facts)
        elif listing.header.key.kind == "measurement":
            return Measurement.from_json(listing.header.facts), ""
    except ValueError as error:
        return None, str(error)
    return None, ""


def _describe_split(listing: Listing) -> str:
    """The split of the cores that an entry keeps, with what decided; empty for other entries."""
    from jetson_dnn_rt.runtime.sharing.split_choice import SPLIT, read_choice

    if listing.header is None or listing.header.key.kind != SPLIT:
        return ""
    return make_printable(str(read_choice(listing.header.facts)))


def _format_entries(
    library: Library, entries: Sequence[tuple[Listing, Measurement | None, str]]
) -> str:
    if not entries:
        return f"{library.root} {'is empty' if library.root.is_dir() else 'does not exist'}"
    rows: list[list[Cell]] = []
    notes = []
    # A network that is cut has an artefact for each stage: one row with their number.
    alike: dict[tuple[str, str, str], list[Cell]] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for listing, measurement, problem in entries:
        model, variant, _ = listing.path.relative_to(library.root).parts
        kind, device, stored = "-", "-", "-"
        if listing.header is not None:
            model = listing.header.model or model
            kind, device = listing.header.key.kind, listing.header.key.device or "-"
            stored = f"{listing.header.created:%Y-%m-%d}"
        # The entry may come from elsewhere: no control characters for the terminal.
        refused = make_printable(measurement.refused) if measurement else ""
        state = "unusable" if problem else "refused" if refused else "ok"
        split = "" if problem else _describe_split(listing)
        for note in filter(None, (problem, refused, split)):
            notes.append(f"{listing.path.relative_to(library.root)}: {note}")
        size = listing.size_bytes / 1e6
        group = model, variant, kind
        if kind == "artefact" and state == "ok":
            counts[group] += 1
            if group in alike:
                row = alike[group]
                row[2], row[_DISK] = f"{kind} x{counts[group]}", float(row[_DISK] or 0.0) + size
                continue
        row = [model, variant, kind, state, *format_figures(measurement), size, stored, device]
        row[_AGREEMENT] = row[_AGREEMENT] or _describe_compared(listing)
        alike.setdefault(group, row)
        rows.append(row)
    for row in rows:
        row[_DISK] = round(float(row[_DISK] or 0.0), 2)
    total = sum(listing.size_bytes for listing, _, _ in entries)
    summary = f"{len(entries)} entries, {total / 1e6:.1f} MB in {library.root}"
    return "\n".join([format_rows(_HEADER, rows), *notes, summary])


def _describe_compared(listing: Listing) -> str | None:
    """The agreement of a decomposed network when it was made; None where it was not compared."""
    from jetson_dnn_rt.safety.records import read_record
    from jetson_dnn_rt.variants.measuring.agreement import Agreement
    from jetson_dnn_rt.variants.measuring.store import AGREEMENT_FACT

    facts = listing.header.facts.get(AGREEMENT_FACT) if listing.header else None
    try:
        return None if facts is None else make_printable(str(read_record(Agreement, facts)))
    except ValueError:  # of another version: `find_agreement` logs it where it matters
        return None


def _entry_to_dict(
    listing: Listing, measurement: Measurement | None, problem: str
) -> dict[str, Any]:
    header = listing.header
    key = header.key if header else None
    return {
        "path": str(listing.path),
        "model": header.model if header else None,
        "variant": key.variant if key else None,
        "kind": key.kind if key else None,
        "key": asdict(key) if key else None,
        "problem": problem,
        "refused": measurement.refused if measurement else "",
        "split": "" if problem else _describe_split(listing),
        "size_mb": listing.size_bytes / 1e6,
        "created": header.created.isoformat() if header else None,
        "used": listing.used.isoformat(timespec="seconds"),
        "measured": figures_to_dict(measurement) or None,
    }


def format_figures(measurement: Measurement | None) -> list[Cell]:
    """Measured figures for `COLUMNS`, memory in MB of 1e6 bytes; dashes without a measurement."""
    if measurement is None:
        return [None] * len(COLUMNS)
    agreement, macs = measurement.agreement, measurement.macs
    parameters, total, cancel = measurement.parameters, measurement.total, measurement.cancel
    return [
        f"{total.p50_ns / 1e6:.2f}",
        # Of less than 100 times it is the longest under another name.
        f"{total.p99_ns / 1e6:.2f}" if has_quantile(total.count, 0.99) else None,
        None if cancel is None else f"{cancel.max_ns / 1e6:.2f}",
        round((measurement.memory_bytes + measurement.device_memory_bytes) / 1e6, 1),
        None if agreement is None else str(agreement),
        None if macs is None else round(macs / 1e6, 1),
        None if parameters is None else round(parameters / 1e3, 1),
    ]


def figures_to_dict(measurement: Measurement | None) -> dict[str, Any]:
    """Measured figures for JSON, with the stages and what they were measured on."""
    if measurement is None:
        return {}
    agreement, bytes_ = measurement.agreement, measurement.parameter_bytes
    same = ("macs", "parameters", "threads", "frames", "machine", "date")
    return {
        "time_ms": _times_to_dict(measurement.total),
        "stages": {stage.name: _times_to_dict(stage) for stage in measurement.stages},
        "cancel_ms": None if (cancel := measurement.cancel) is None else _times_to_dict(cancel),
        "memory_mb": measurement.memory_bytes / 1e6,
        "device_memory_mb": measurement.device_memory_bytes / 1e6,
        "agreement": None if agreement is None else asdict(agreement),
        "parameters_mb": None if bytes_ is None else bytes_ / 1e6,
        "frame_size": list(measurement.frame_size),
        **{name: getattr(measurement, name) for name in same},
    }


def _times_to_dict(times: TimeDistribution) -> dict[str, float | int]:
    keys = ("p50", "p90", "p99", "max", "mean")
    return {**{key: getattr(times, f"{key}_ns") / 1e6 for key in keys}, "count": times.count}
