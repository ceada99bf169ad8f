"""List what was built, remove what is of no more use, copy it to another board.

`prune` removes what any of its conditions says; without a condition, what is stale: damaged, made
by another version of a back end, or for a device that is not here.

`export` writes entries into a file, `import` takes those of a file, after all of it was checked.
Machine code (engines, compiled kernels) is neither written nor taken: run `jetson-dnn-rt build` on
the other board, which makes it out of the rest. A library is trusted code all the same, since a
tuning database decides what code is made: `import` takes a file only with --trust.
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
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.variants.library.entry import KINDS

if TYPE_CHECKING:
    from jetson_dnn_rt.variants.library.library import Library, Listing, Removal
    from jetson_dnn_rt.variants.library.transfer import Transfer
    from jetson_dnn_rt.variants.measuring.measurement import Measurement

HELP = "list what was built, remove what is of no more use, copy it to another board"


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
    export = actions.add_parser("export", help="write entries into a file")
    _add_common(export)
    add = export.add_argument
    add("file", type=Path, metavar="FILE.tar", help="what is written")
    add(
        "--model",
        metavar="NAME",
        help="only of this model, as `library list` names it: builtin:detector",
    )
    add("--variant", metavar="NAME", help="only this variant: full@tvm-fp32")
    add("--kind", choices=KINDS, help="only entries of this kind")
    taken = actions.add_parser("import", help="take the entries of a file")
    _add_common(taken)
    add = taken.add_argument
    add("file", type=Path, metavar="FILE.tar", help="what `library export` wrote")
    add("--replace", action="store_true", help="take those too that are there already")
    add(
        "--trust",
        action="store_true",
        help="needed: a library is trusted code, and whoever made the file can run code here",
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine-cache",
        type=Path,
        metavar="DIR",
        help="the library (default: ~/.cache/jetson_dnn_rt)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """List, prune, export or import.

    Raises
    ------
    ConfigurationError
        When the library cannot be used, an entry cannot be removed, or the file is refused or not
        trusted.
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
        return 0
    print(_format_entries(library, entries))
    return 0


def _prune(library: Library, args: argparse.Namespace) -> int:
    from jetson_dnn_rt.variants.measuring.machine import find_stale

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
    _say_transfers(transfers, "written", library, args)
    return 0 if any(not transfer.reason for transfer in transfers) else 1


def _import(library: Library, args: argparse.Namespace) -> int:
    from jetson_dnn_rt.variants.library.transfer import import_entries

    if not args.trust:
        raise ConfigurationError(
            f"{args.file} is not taken: a library is trusted code, whoever made this file can run "
            "code as you; with --trust it is taken, if you made it or trust whoever did"
        )
    library.check_writable()
    transfers = import_entries(library, args.file, replace=args.replace)
    _say_transfers(transfers, "taken", library, args)
    return 0


def _say_transfers(
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
    """What was measured, or why that cannot be read."""
    from jetson_dnn_rt.variants.measuring.measurement import Measurement

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
