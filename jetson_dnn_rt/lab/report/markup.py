"""HTML from Python: everything that is not marked as markup is escaped."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence

from jetson_dnn_rt.lab.report.style import Picture
from jetson_dnn_rt.lab.report.style_sheet import PHONE_PX

_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|µs|s|min|h)\b|%)")
"""Between a number and its unit no line ends."""

_VOID = frozenset({"img", "source", "meta", "br"})


class Markup(str):
    """Text that is HTML already."""


Content = str | Iterable["Content"]


def render(content: Content) -> str:
    """Content as HTML: strings escaped, markup as it is, the rest one after the other."""
    if isinstance(content, Markup):
        return str(content)
    if isinstance(content, str):
        return _UNIT.sub("\u00a0", html.escape(content))
    return "".join(render(part) for part in content)


def element(tag: str, /, *content: Content, **attributes: str) -> Markup:
    """An element; attributes' trailing underscores go, those inside become hyphens."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    if tag in _VOID:
        return Markup(f"<{tag}{words}>")
    return Markup(f"<{tag}{words}>{render(content)}</{tag}>")


def paragraph(*content: Content, **attributes: str) -> Markup:
    """A paragraph."""
    return element("p", *content, **attributes)


def table(header: Sequence[Content], rows: Sequence[Sequence[Content]], **attrs: str) -> Markup:
    """A table that becomes a list of cards on a phone; the first cell of a row names it."""
    head = element("tr", [element("th", cell, scope="col") for cell in header])
    body = [
        element(
            "tr",
            [
                element("th", cell, scope="row")
                if number == 0
                else element("td", element("span", cell), data_label=_plain(header[number]))
                for number, cell in enumerate(row)
            ],
        )
        for row in rows
    ]
    return element("table", element("thead", head), element("tbody", body), **attrs)


def _plain(content: Content) -> str:
    return content if isinstance(content, str) else render(content)


def figure(picture: Picture, caption: Content = "") -> Markup:
    """A picture inside the page: its own drawing for a phone, no other file needed."""
    image = element(
        "picture",
        element(
            "source", media=f"(max-width: {PHONE_PX}px)", srcset=_data_address(picture.narrow)
        ),
        element("img", src=_data_address(picture.wide), alt=picture.alt, loading="lazy"),
    )
    text = element("figcaption", caption) if caption else ""
    return element("figure", image, text)


def _data_address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def mark_code(text: str) -> list[Content]:
    """Text with commands between backquotes."""
    pieces = text.split("`")
    return [element("code", p) if number % 2 else p for number, p in enumerate(pieces)]


def badge(text: str, level: str) -> Markup:
    """A word in a coloured pill; `level` is ``good``, ``warn``, ``bad`` or ``info``."""
    return element("span", text, class_=f"badge {level}")
