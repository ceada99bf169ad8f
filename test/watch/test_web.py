# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The page's server: who is answered, with what, and that it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import socket
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.watch import web
from jetson_dnn_rt.watch.graph import OUTCOMES, Graph
from jetson_dnn_rt.watch.web import Page, make_event

TIMEOUT_S = 30
FRAME = {"outcome": "late", "response_ms": "40", "deadline_ms": "33", "variant": "<b>full</b>"}


@pytest.fixture
def graph():
    return Graph()


@pytest.fixture
def port(graph):
    """Of a page that is being served."""
    page, end = Page("127.0.0.1", 0), threading.Event()
    thread = threading.Thread(target=page.serve, args=(graph, lambda s: not end.wait(s)))
    thread.start()
    yield int(page.url.rstrip("/").rpartition(":")[2])
    end.set()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def get(port, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    with closing(connection):
        connection.request(headers.pop("method", "GET"), path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


@contextlib.contextmanager
def stream(port, **options):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S, **options)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    try:
        yield answer
    finally:
        answer.close()  # it holds the socket, too
        connection.close()


def read_event(answer):
    line = answer.readline()
    assert line.startswith(b"data: ")
    assert answer.readline() == b"\n"
    return json.loads(line[6:])


def test_every_file_comes_with_the_headers_that_bind_it(port):
    for path, (_, kind) in web.FILES.items():
        status, headers, body = get(port, path)
        assert status == 200
        assert headers["Content-Type"] == f"{kind}; charset=utf-8"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers
        assert body
        # Nothing is loaded from elsewhere.
        assert "http:" not in body
        assert "https:" not in body


@pytest.mark.parametrize("path", ["/x", "/../web.py", "//etc/passwd", "/page.html", "/events?x"])
def test_nothing_else_is_served(path, port):
    assert get(port, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_it_is_for_reading_only(method, port):
    assert get(port, "/", method=method)[0] == 501


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:{}", 200),
        ("127.0.0.1:{}", 200),
        ("[::1]:{}", 200),
        ("robot.evil.example:{}", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
        ("[", 421),
    ],
)
def test_names_that_others_can_point_here_are_refused(host, status, port):
    assert get(port, "/", Host=host.format(port))[0] == status


def test_pages_of_other_sites_get_no_stream(port):
    assert get(port, "/events", Origin="http://evil.example")[0] == 403
    assert get(port, "/events", Origin="null")[0] == 403


OWN = "http://127.0.0.1:{}"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        # <img src> of another page, which the browser says; another port is another origin.
        ("/events", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ("/events", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ("/page.js", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ("/events", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ("/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        # An older browser.
        ("/events", {"Referer": "http://evil.example/"}, 403),
        ("/events", {"Referer": "http://127.0.0.1.evil.example/"}, 403),
        ("/page.js", {"Referer": OWN + "/"}, 200),
        ("/page.js", {"Referer": OWN}, 200),
        # Our own page, an address that was typed, and a link to us.
        ("/page.js", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "no-cors"}, 200),
        ("/", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200),
        ("/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
    ],
)
def test_what_another_page_loads_without_reading_it_is_refused(path, headers, status, port):
    """Before, images of another origin held all streams, and the own page got 503."""
    given = {name: value.format(port) for name, value in headers.items()}
    assert get(port, path, **given)[0] == status


def test_a_stream_begins_with_the_minute_and_goes_on_with_what_is_new(port, graph):
    graph.add_frame("/a", FRAME)
    with stream(port) as answer:
        (task,) = read_event(answer)["tasks"]
        assert task["variants"] == ["<b>full</b>"]
        assert [point[1:] for point in task["points"]] == [[40.0, 33.0, 1, 0]]
        assert [o for _, o, _ in task["missed"]] == [OUTCOMES.index("late")]
        graph.add_frame("/a", {"outcome": "skipped"})
        while not (points := read_event(answer)["tasks"][0]["points"]):
            pass
        assert [point[1:] for point in points] == [[None, None, OUTCOMES.index("skipped"), 1]]


def test_viewers_are_limited_and_leave_room_when_they_go(port):
    with contextlib.ExitStack() as viewers:
        for _ in range(web.MOST_STREAMS_EACH):
            read_event(viewers.enter_context(stream(port)))
        assert get(port, "/events")[0] == 503
        assert get(port, "/")[0] == 200
        # Another address has its own.
        with stream(port, source_address=("127.0.0.2", 0)) as answer:
            assert answer.status == 200
    # That they are gone is noticed when their next events are written.
    status, end_s = 503, time.monotonic() + TIMEOUT_S
    while status == 503 and time.monotonic() < end_s:
        with stream(port) as answer:
            status = answer.status
    assert status == 200


def test_connections_are_limited(port):
    # One that says nothing holds a connection until its time is over.
    silent = [
        socket.create_connection(("127.0.0.1", port)) for _ in range(web.MOST_CONNECTIONS_EACH)
    ]
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        get(port, "/")
    with stream(port, source_address=("127.0.0.2", 0)) as answer:
        assert answer.status == 200
    for one in silent:
        one.close()


def test_no_address_takes_all_places():
    places = web._Places(5, 2)
    taken = "".join(name for name in "aaabbcd" if places.take(name))
    assert taken == "aabbc"
    places.give_back("a")
    assert places.take("d")
    assert not places.take("a")


def test_a_port_in_use_is_named():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{taken} cannot be served"):
            Page("127.0.0.1", taken)


def test_a_host_that_is_none_is_named():
    with pytest.raises(ConfigurationError, match=r"no-such-host\.invalid:0 cannot be served"):
        Page("no-such-host.invalid", 0)


def test_ipv6():
    try:
        page = Page("::1", 0)
    except ConfigurationError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    assert page.url.startswith("http://[::1]:")
    page._server.server_close()


def test_many_frames_become_the_worst_of_each_slot():
    now_ns = [0]
    graph = Graph(lambda: now_ns[0])
    for number in range(10_000):  # 1000 Hz
        now_ns[0] += 10**6
        outcome = "skipped" if number == 5000 else "met"
        graph.add_frame("/a", {"outcome": outcome, "response_ms": str(number % 10)})
    seen = {}
    (task,) = make_event(graph.snapshot(), seen)["tasks"]
    assert len(task["points"]) == pytest.approx(10_000 * 10**6 / web.SLOT_NS, abs=1)
    responses = [p[1] for p in task["points"] if p[3] == OUTCOMES.index("met")]
    assert set(responses[1:-1]) == {9.0}
    assert sum(p[3] == OUTCOMES.index("skipped") for p in task["points"]) == 1
    assert np.all(np.diff([p[0] for p in task["points"]]) > 0)
    (task,) = make_event(graph.snapshot(), seen)["tasks"]
    assert task["points"] == []


def test_what_is_not_known_is_null():
    graph = Graph()
    graph.set_present(["/a"])
    event = make_event(graph.snapshot(), {})
    text = json.dumps(event, allow_nan=False)
    (task,) = json.loads(text)["tasks"]
    assert (task["age_s"], task["p99_ms"], task["miss_ratio"]) == (None, None, None)
    assert not math.isnan(event["now_s"])
