"""What doctor says of clocks and power, on made-up machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from sysfs_trees import EMC, TREES, read_all, write_file, write_policy, write_tree

from jetson_dnn_rt.cli.checks import Check, check_platform


def look(root: Path) -> dict[str, Check]:
    checks = check_platform(root)
    assert not any(check.required for check in checks)
    return {check.name: check for check in checks}


@pytest.fixture
def board(tmp_path: Path) -> Path:
    write_tree(tmp_path, TREES["tx2"])
    return tmp_path


def test_board(board: Path) -> None:
    before = read_all(board)
    checks = look(board)
    assert checks["platform"].detail == "NVIDIA Jetson TX2 Developer Kit (jetson)"
    assert checks["clocks"].detail == (
        "little 2035.2 MHz x4, big 2035.2 MHz x2, gpu 140.25 MHz, emc 1866 MHz; "
        "11,760 configurations"
    )
    assert checks["power"].detail.startswith("5.28 W (VDD_SYS_GPU 2.29 W, ")
    assert checks["set clocks"].ok
    assert all(check.ok for check in checks.values())
    assert read_all(board) == before


def test_board_without_rights(board: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    check = look(board)["set clocks"]
    assert not check.ok
    assert "cannot be written" in check.detail
    assert "docs/platforms.md" in check.fix


def test_clock_that_cannot_be_read(board: Path) -> None:
    write_file(board, "sys/class/devfreq/17000000.gp10b/cur_freq", "")
    check = look(board)["clocks"]
    assert not check.ok
    assert "cur_freq" in check.detail


def test_board_without_a_meter(tmp_path: Path) -> None:
    write_tree(tmp_path, TREES["orin-nano"])
    (tmp_path / "sys/class/hwmon/hwmon3/name").write_text("other\n")
    (tmp_path / EMC / "rate").unlink()
    checks = look(tmp_path)
    assert not checks["power"].ok
    assert checks["power"].detail == "no INA3221 in /sys/class/hwmon"
    assert "emc" not in checks["clocks"].detail


def test_pc(tmp_path: Path) -> None:
    write_policy(tmp_path, [0, 1], [800, 1600])
    for name, text in (("name", "package-0"), ("energy_uj", 1), ("max_energy_range_uj", 9)):
        write_file(tmp_path, f"sys/class/powercap/intel-rapl:0/{name}", text)
    checks = look(tmp_path)
    assert checks["clocks"].detail == "cpu 1600 MHz; 2 configurations"
    assert checks["power"].ok


def test_virtual_machine(tmp_path: Path) -> None:
    checks = look(tmp_path)
    assert not any(check.ok for check in checks.values())
    assert "virtual machine" in checks["set clocks"].detail
