"""Which of many things to take when fewer are wanted."""

from __future__ import annotations


def spread(count: int, limit: int) -> list[int]:
    """Indices of at most `limit` of `count` things, ascending, from the first to the last."""
    if count <= limit:
        return list(range(count))
    if limit == 1:
        return [count // 2]
    return [round(i * (count - 1) / (limit - 1)) for i in range(limit)]
