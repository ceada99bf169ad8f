"""List what was built, or remove what is of no more use.

`prune` removes what any of its conditions says; without a condition, what is stale: damaged, made
by another version of a back end, or for a device that is not here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.measured import COLUMNS, figures_to_dict, format_figures
from jetson_dnn_rt.cli.options import parse_positive
from jetson_dnn_rt.cli.text import Cell, format_rows

if TYPE_CHECKING:
    from jetson_dnn_rt.variants.library import Library, Listing, Removal
    from jetson_dnn_rt.variants.measurement import Measurement

HELP = "list what was built, or remove what is of no more use"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_common(actions.add_parser("list", help="what there is, with the figures measured"))
    prune = actions.add_parser("prune", help="remove what is of no more use")
    _add_common(prune)
    add = prune.add_argument
    add("--stale", action="store_true", help="damaged, of another back-end version or device")
    add(
        "--older-than",
        type=parse_positive,
        metavar="DAYS",
        help="neither stored nor loaded for so long",
    )
    add(
        "--larger-than",
        type=parse_positive,
        metavar="MB",
        help="while the whole library is larger: what was used longest ago",
    )
    add("--dry-run", action="store_true", help="only say what would be removed")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine-cache",
        type=Path,
        metavar="DIR",
        help="the library (default: ~/.cache/jetson_dnn_rt)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """List or prune.

    Raises
    ------
    ConfigurationError
        When the library cannot be used, or an entry cannot be removed.
    """
    from jetson_dnn_rt.variants.library import Library

    library = Library(args.engine_cache)
    return _list(library, args) if args.action == "list" else _prune(library, args)


def _list(library: Library, args: argparse.Namespace) -> int:
    from jetson_dnn_rt.variants.machine import find_stale

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
        return 0
    print(_format_entries(library, entries))
    return 0


def _prune(library: Library, args: argparse.Namespace) -> int:
    from jetson_dnn_rt.variants.machine import find_stale

    conditions = args.stale, args.older_than, args.larger_than
    stale = args.stale or not any(conditions)
    limit = args.larger_than
    removals = library.prune(
        find_stale=find_stale if stale else None,
        unused_days=args.older_than,
        limit_bytes=None if limit is None else round(limit * 1e6),
        dry_run=args.dry_run,
    )
    size = sum(removal.listing.size_bytes for removal in removals)
    if args.json:
        result = {
            "library": str(library.root),
            "dry_run": args.dry_run,
            "removed": [_removal_to_dict(removal) for removal in removals],
            "removed_mb": size / 1e6,
            "size_mb": library.size_bytes() / 1e6,
        }
        print(json.dumps(result))
        return 0
    for removal in removals:
        print(f"{removal.listing.path}: {removal.reason}")
    verb = "would be removed" if args.dry_run else "removed"
    left = library.size_bytes() - (size if args.dry_run else 0)
    print(f"{len(removals)} entries, {size / 1e6:.1f} MB {verb}; {left / 1e6:.1f} MB stay")
    return 0


def _read_measurement(listing: Listing) -> tuple[Measurement | None, str]:
    """What was measured, or why that cannot be read."""
    from jetson_dnn_rt.variants.measurement import Measurement

    if listing.header is None or listing.header.key.kind != "measurement":
        return None, ""
    try:
        return Measurement.from_json(listing.header.facts), ""
    except ValueError as error:
        return None, str(error)


def _format_entries(
    library: Library, entries: Sequence[tuple[Listing, Measurement | None, str]]
) -> str:
    if not entries:
        return f"{library.root} is empty"
    rows: list[list[Cell]] = []
    notes = []
    for listing, measurement, problem in entries:
        model, variant, _ = listing.path.relative_to(library.root).parts
        kind, device, stored = "-", "-", "-"
        if listing.header is not None:
            model = listing.header.model or model
            kind, device = listing.header.key.kind, listing.header.key.device or "-"
            stored = f"{listing.header.created:%Y-%m-%d}"
        refused = measurement.refused if measurement else ""
        state = "unusable" if problem else "refused" if refused else "ok"
        for note in filter(None, (problem, refused)):
            notes.append(f"{listing.path.relative_to(library.root)}: {note}")
        size = round(listing.size_bytes / 1e6, 2)
        rows.append(
            [model, variant, kind, state, *format_figures(measurement), size, stored, device]
        )
    header = ["model", "variant", "kind", "state", *COLUMNS, "disk MB", "stored", "device"]
    total = sum(listing.size_bytes for listing, _, _ in entries)
    summary = f"{len(entries)} entries, {total / 1e6:.1f} MB in {library.root}"
    return "\n".join([format_rows(header, rows), *notes, summary])


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
        "key": key.to_json() if key else None,
        "problem": problem,
        "refused": measurement.refused if measurement else "",
        "size_mb": listing.size_bytes / 1e6,
        "created": header.created.isoformat() if header else None,
        "used": listing.used.isoformat(timespec="seconds"),
        "measured": figures_to_dict(measurement) or None,
    }


def _removal_to_dict(removal: Removal) -> dict[str, Any]:
    return {
        "path": str(removal.listing.path),
        "reason": removal.reason,
        "size_mb": removal.listing.size_bytes / 1e6,
    }
