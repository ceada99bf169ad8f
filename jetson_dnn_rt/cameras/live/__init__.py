"""Frames of devices and of the drawn camera."""
