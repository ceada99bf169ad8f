# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0
"""Count the frames in the folders of job traces, by pyarrow alone; exit 1 when one is wrong."""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

from pyarrow import ipc, parquet

ANY = dict.fromkeys(("skipped", "aborted", "superseded", "failed"), (False, True))
LATE = defaultdict(set, met={False}, late={True}, **ANY)
seen, outcomes, faults, lost = defaultdict(Counter), defaultdict(Counter), [], 0
for folder in map(Path, sys.argv[1:]):
    streams = [p for p in folder.glob("jobs-*.arrows") if not p.with_suffix(".parquet").exists()]
    parts = [ipc.open_stream(part.read_bytes()).read_all() for part in streams]
    parts += [parquet.ParquetFile(part).read() for part in folder.glob("jobs-*.parquet")]
    lost += max(json.loads(part.schema.metadata[b"jetson_dnn_rt"])["lost"] for part in parts)
    for row in (row for part in parts for row in part.drop(["stages"]).to_pylist()):
        seen[row["task"]][row["sequence"]] += 1
        outcomes[row["task"]][row["outcome"]] += 1
        if (row["completion_ns"] > row["absolute_deadline_ns"]) not in LATE[row["outcome"]]:
            faults.append(f"{row['task']} {row['sequence']}: {row['outcome']!r} cannot be")
ends = {task: (min(numbers), max(numbers)) for task, numbers in seen.items()}
faults += [f"{t} {n}: {k} times" for t in seen for n, k in seen[t].items() if k > 1]
if (gaps := sum(last + 1 - first - len(seen[t]) for t, (first, last) in ends.items())) > lost:
    faults.append(f"{gaps} frames are missing, {lost} of them lost by the trace's own count")
print(json.dumps({"outcomes": outcomes, "ends": ends, "lost": lost, "faults": faults[:20]}))
sys.exit(bool(faults) or not seen)
