"""How many stages may run at once on a device, as text: ``cuda=2, dla0=1``."""

from __future__ import annotations

from jetson_dnn_rt.errors import ConfigurationError


def parse_device_limits(text: str) -> dict[str, int]:
    """Read the value of ``max_inflight``.

    Parameters
    ----------
    text : str
        ``DEVICE=NUMBER``, several separated by commas; devices as stages call them (`Stage`):
        ``cpu``, ``cuda``, ``dla0``. Empty = no limit.

    Raises
    ------
    ConfigurationError
        When it is not of that form, a number is below 1, or a device is named twice.
    """
    limits: dict[str, int] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        device, _, number = (part.strip() for part in item.partition("="))
        if not device or not number.isdecimal() or int(number) < 1 or device in limits:
            raise ConfigurationError(
                f"max_inflight must be DEVICE=NUMBER, separated by commas, each device once and "
                f"each number >= 1, such as cuda=2: {text!r}"
            )
        limits[device] = int(number)
    return limits
