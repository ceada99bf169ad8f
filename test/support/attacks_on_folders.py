# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Files that lie where the user stands, or where a command goes on, and that nobody named."""

from __future__ import annotations

import json
import os
import sys

from attack_arena import Arena, Hostile, attack
from attacks_on_models import TERMINAL
from traps import lay_traps

_START = (
    "import os, subprocess, sys\nos.environ.pop('PYTHONSAFEPATH', None)\n"
    "subprocess.run([sys.executable, '-m', 'jetson_dnn_rt.cli.main', '--version'])"
)


@attack("working folder", "modules of every name", edge=16)
def lay_modules(arena: Arena) -> Hostile:
    lay_traps(arena.inside, arena.marker)
    return Hostile(os.fspath(arena.inside / "nothing"), _START, sees=False)


@attack("working folder", "modules of every name, and compiled ones")
def lay_packages(arena: Arena) -> Hostile:
    text = f"open({os.fspath(arena.marker)!r}, 'w').close()\n"
    for name in (*sorted(sys.stdlib_module_names), "numpy", "torch", "jetson_dnn_rt", "cv2"):
        arena.write(f"{name}/__init__.py", text)
    arena.write("pyvenv.cfg", f"home = {arena.inside}\n")
    arena.write("own.pth", f"import os; {text}")
    return Hostile(os.fspath(arena.inside / "nothing"), _START, sees=False)


@attack("figures", "settings of matplotlib that run TeX")
def lay_matplotlibrc(arena: Arena) -> Hostile:
    for name in ("latex", "dvipng", "kpsewhich", "luatex", "pdftocairo"):
        arena.program(name)
    path = arena.write(
        "matplotlibrc",
        "text.usetex: True\ntext.latex.preamble: \\input{/etc/passwd}\nbackend: module://trapped\n",
    )
    control = (
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', "
        '\'import matplotlib.figure as f; f.Figure().text(0, 0, "x").figure.savefig("x.png")\'])'
    )
    return Hostile(os.fspath(path), control, sees=False)


@attack("graph", "settings of Fast DDS")
def lay_profiles(arena: Arena) -> Hostile:
    text = (
        '<?xml version="1.0"?><dds xmlns="http://www.eprosima.com"><profiles>'
        '<participant profile_name="own" is_default_profile="true"/></profiles></dds>'
    )
    for name in ("DEFAULT_FASTDDS_PROFILES.xml", "DEFAULT_FASTRTPS_PROFILES.xml"):
        arena.write(name, text)
    control = (
        "import os\n[os.environ.pop(n, None) for n in ('SKIP_DEFAULT_XML', )]\n"
        "import rclpy\nrclpy.init()\nrclpy.create_node('own')\nrclpy.shutdown()"
    )
    return Hostile(os.fspath(arena.inside / "nothing"), control, sees=False)


@attack("journal", "lines of a stranger in a folder that is gone on with")
def lay_journal(arena: Arena) -> Hostile:
    lines = [
        {
            "format": "jetson_dnn_rt-profile-journal",
            "version": 1,
            "settings": {TERMINAL: TERMINAL},
        },
        {"piece": TERMINAL, "value": f"!!python/object/apply:os.mkdir ['{arena.marker}']"},
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    arena.write("profile/progress.jsonl", text)
    return Hostile(os.fspath(arena.inside / "profile"))


@attack("journal", "a link to a file elsewhere, which would be cut off")
def lay_linked_journal(arena: Arena) -> Hostile:
    secret = arena.secret("precious")
    (arena.inside / "profile").mkdir()
    (arena.inside / "profile" / "progress.jsonl").symlink_to(secret)
    control = (
        f"open({os.fspath(arena.inside / 'profile' / 'progress.jsonl')!r}, 'a+b').truncate(0)"
    )
    return Hostile(os.fspath(arena.inside / "profile"), control, sees=False)
