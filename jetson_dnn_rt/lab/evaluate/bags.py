"""Bags as `evaluate` reads them: every message in its place, none left out, none of them twice."""

from __future__ import annotations

from jetson_dnn_rt.cameras.bags.image_bag import BadMessage, BagImage, ImageBag, open_image_bag

__all__ = ["BadMessage", "BagImage", "ImageBag", "open_image_bag"]
