"""Scenarios by their path or by their name."""

from __future__ import annotations

from pathlib import Path

from jetson_dnn_rt.cli.environment import find_shared_file
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.recording import RecordedLaboratory
from jetson_dnn_rt.lab.simulate.scenario import NETWORKS, Scenario, load_scenario
from jetson_dnn_rt.lab.simulate.session import Source

SCENARIOS = "config/scenarios"


def scenario_folder() -> Path:
    """Where the package's scenarios are: in the checkout, else where it is installed.

    Raises
    ------
    ConfigurationError
        When they are not installed.
    """
    networks = find_shared_file(f"{SCENARIOS}/{NETWORKS}")
    if networks is None:
        raise ConfigurationError(f"{SCENARIOS} of this package is not installed")
    return networks.parent


def scenario_names() -> list[str]:
    """Names of the package's scenarios."""
    return sorted(path.stem for path in scenario_folder().glob("*.yaml") if path.name != NETWORKS)


def open_scenario(text: str) -> Scenario:
    """Read a scenario.

    Parameters
    ----------
    text : str
        A file, or the name of one of the package's scenarios.

    Raises
    ------
    ConfigurationError
        When there is none, or it cannot be used.
    """
    folder = scenario_folder()
    for path in (Path(text), folder / f"{text}.yaml"):
        if path.is_file() and path.resolve() != (folder / NETWORKS).resolve():
            return load_scenario(path, (folder,))
    raise ConfigurationError(
        f"--scenario {text}: neither a file nor one of {', '.join(scenario_names())}"
    )


def make_source(scenario: Scenario) -> Source:
    """What the worlds of a scenario come from: its models, or its recording."""
    if scenario.recording is not None:
        return RecordedLaboratory(scenario)
    return Laboratory(scenario)
