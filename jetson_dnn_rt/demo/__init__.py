"""Procedural road scenes and the two small networks trained on them."""
