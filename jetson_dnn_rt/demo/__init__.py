"""Drawn roads and the two small networks that were trained on them."""
