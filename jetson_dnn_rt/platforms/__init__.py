"""Clocks and power: Jetson sysfs, generic Linux, NVML, fixed."""
