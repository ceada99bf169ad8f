"""Real-time perception on NVIDIA Jetson: DNNs on camera frames with a deadline for every frame."""

__version__ = "0.1.0"
