# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The page of ``top --web``: files and a stream of events, for reading only.

The page is for people who may see the machine's topics anyway, so there is no login; by default it
is on this machine's loopback alone. What a web site in their browser could do to it is prevented:
a request must name the server by an address or by this machine's name (a site can make its own
name lead here, but not become an address), nothing is for the pages of other origins, whether
they read it or only load it (as an image, which holds a stream), and the page loads and runs
nothing but its own files. No address can take all of the streams and connections.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import math
import socket
import socketserver
import sys
import threading
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.watch.graph import LARGEST_MS, MISSES, OUTCOMES, Graph, GraphView, TaskView
from jetson_dnn_rt.watch.json_view import describe_task, to_dict

logger = logging.getLogger(__name__)

PERIOD_S = 0.25
"""Between two events of a stream."""

MOST_STREAMS, MOST_STREAMS_EACH = 16, 8
MOST_CONNECTIONS, MOST_CONNECTIONS_EACH = 64, 32
"""At once, and at once of one address."""

TIMEOUT_S = 10.0
"""A client that neither sends nor reads for this long is dropped."""

SLOT_NS = 10_000_000
"""Time in which the page gets one frame of a task, the worst: two share a pixel."""

FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/plot.js": ("plot.js", "text/javascript"),
}

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Page:
    """The server of the page, listening from now on; port 0 = any that is free."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._server = _Server(host, port)
        except OSError as error:
            raise ConfigurationError(
                f"{host}:{port} cannot be served: {error.strerror or error}; take another --web "
                "PORT (0 = any), or another --host"
            ) from error

    @property
    def url(self) -> str:
        """Address of the page."""
        host, port = self._server.server_address[:2]
        name = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{name}:{port}/"

    def serve(self, graph: Graph, wait: Callable[[float], bool]) -> None:
        """Serve until `wait` says that the time is over."""
        self._server.graph = graph
        thread = threading.Thread(target=self._server.serve_forever, name="web", daemon=True)
        thread.start()
        try:
            while wait(1.0):
                pass
        finally:
            self._server.ending.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()


class _Places:
    """Places that clients take, of which no address gets all."""

    def __init__(self, count: int, each: int) -> None:
        self._free, self._each = count, each
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, address: str) -> bool:
        with self._lock:
            if not self._free or self._taken[address] >= self._each:
                return False
            self._free -= 1
            self._taken[address] += 1
            return True

    def give_back(self, address: str) -> None:
        with self._lock:
            self._free += 1
            self._taken[address] -= 1
            self._taken += Counter()  # forgets those without a place


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that does not read must not delay the end
    graph: Graph

    def __init__(self, host: str, port: int) -> None:
        self.host, self.ending = host, threading.Event()
        self.streams = _Places(MOST_STREAMS, MOST_STREAMS_EACH)
        self._connections = _Places(MOST_CONNECTIONS, MOST_CONNECTIONS_EACH)
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = infos[0][0]
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without the look-up of the host's name in HTTPServer, which may take a minute."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.host, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own, or close it when there are too many."""
        if self._connections.take(client_address[0]):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection on this thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.give_back(client_address[0])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what is not the client's doing."""
        if not isinstance(sys.exc_info()[1], OSError):
            logger.exception("a request of %s failed", client_address[0])

    def allows(self, host: str) -> bool:
        """Whether a request may name this server so: by an address, or by a name of its own."""
        name, _, port = host.rpartition(":")
        if not name or not port.isdecimal():
            name = host
        name = name.strip("[]").lower()
        if name in ("localhost", self.host.lower(), socket.gethostname().lower()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "jetson-dnn-rt", ""
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        """Answer with a file, or with the stream of events."""
        host = self.headers.get("Host", "")
        if not self.server.allows(host):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, f"{host!r} is not a name of this server")
        elif self._is_foreign(f"http://{host}"):
            self._refuse(HTTPStatus.FORBIDDEN, "not for pages of other sites")
        elif self.path == "/events":
            self._stream()
        elif self.path in FILES:
            name, kind = FILES[self.path]
            content = resources.files(__package__).joinpath("page", name).read_bytes()
            self._start(HTTPStatus.OK, f"{kind}; charset=utf-8", len(content))
            self.wfile.write(content)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "no such file")

    def _is_foreign(self, own: str) -> bool:
        """Whether a page of another origin asks, in whatever way; a link to ours is allowed.

        An image or a script of another page comes without an Origin. Browsers say who asks in
        Sec-Fetch-Site; older ones name the page in Referer, which our own page does not send.
        """
        headers = self.headers
        if headers.get("Origin", own) != own:
            return True
        if self.path == "/" and headers.get("Sec-Fetch-Mode", "navigate") == "navigate":
            return False
        site, referer = headers.get("Sec-Fetch-Site"), headers.get("Referer")
        if site is not None:
            return site not in ("same-origin", "none")
        return referer is not None and not f"{referer}/".startswith(f"{own}/")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing of requests."""

    def _start(self, status: HTTPStatus, kind: str, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        content = f"{text}\n".encode()
        self._start(status, "text/plain; charset=utf-8", len(content))
        self.wfile.write(content)

    def _stream(self) -> None:
        address = self.client_address[0]
        if not self.server.streams.take(address):
            text = f"{MOST_STREAMS} viewers are there, or {MOST_STREAMS_EACH} of {address}"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, text)
            return
        try:
            self._start(HTTPStatus.OK, "text/event-stream")
            seen: dict[str, int] = {}
            while True:
                event = json.dumps(make_event(self.server.graph.snapshot(), seen))
                self.wfile.write(f"data: {event}\n\n".encode())
                if self.server.ending.wait(PERIOD_S):
                    return
        finally:
            self.server.streams.give_back(address)


def make_event(view: GraphView, seen: dict[str, int]) -> dict[str, object]:
    """Make an event of a stream: all figures, and the frames since the stream's last event.

    `seen` has the arrival of the last frame by task, and is brought up to date.
    """
    event = to_dict(view)
    event["outcomes"], event["misses"] = OUTCOMES, MISSES
    event["now_s"] = view.at_ns / 1e9
    event["tasks"] = [_describe(task, seen, view.at_ns) for task in view.tasks]
    return event


def _describe(task: TaskView, seen: dict[str, int], now_ns: int) -> dict[str, object]:
    arrivals_ns = task.frames["arrival_ns"]
    frames = task.frames[np.searchsorted(arrivals_ns, seen.get(task.name, 0), side="right") :]
    if len(frames):
        seen[task.name] = int(frames["arrival_ns"][-1])
    points = [
        [round(arrival_ns / 1e9, 3), _ms(response_ms), _ms(deadline_ms), outcome, variant]
        for arrival_ns, _, response_ms, deadline_ms, outcome, variant in _thin(frames).tolist()
    ]
    table = task.outcomes_per_second(now_ns)
    missed = [[int(s), int(o), int(table[s, o])] for s, o in np.argwhere(table) if o in MISSES]
    return {
        **describe_task(task),
        "variants": task.variants,
        "points": points,
        "missed": missed,  # [second of the last minute, outcome, frames]
    }


def _ms(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)


def _thin(frames: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Take of frames in one slot of time the worst."""
    slots = frames["arrival_ns"] // SLOT_NS
    badness = np.nan_to_num(frames["response_ms"].astype(float))
    badness[np.isin(frames["outcome"], MISSES)] += LARGEST_MS
    order = np.lexsort((badness, slots))
    worst: npt.NDArray[Any] = frames[order[np.diff(slots[order], append=-1) != 0]]
    return worst
