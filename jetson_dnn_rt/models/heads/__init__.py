"""Layouts of outputs, their decoders, and names of classes."""
