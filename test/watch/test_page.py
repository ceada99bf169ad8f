# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The page in a real browser: what it shows, and that nothing that was sent runs in it."""

from __future__ import annotations

import threading

import pytest
from chromium import BROWSER, Browser

from jetson_dnn_rt.watch.graph import Graph
from jetson_dnn_rt.watch.web import Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed: apt install chromium"),
]

TIMEOUT_S = 30
HOSTILE = "<img src=x onerror=document.title='taken'>"
CELLS = "[...document.querySelectorAll('#tasks tr')].map(r => [...r.cells].map(c => c.innerText))"


@pytest.fixture
def graph():
    return Graph()


@pytest.fixture
def page(graph):
    """The address of a page that is being served."""
    page, end = Page("127.0.0.1", 0), threading.Event()
    thread = threading.Thread(target=page.serve, args=(graph, lambda s: not end.wait(s)))
    thread.start()
    yield page.url
    end.set()
    thread.join(TIMEOUT_S)


@pytest.fixture
def browser(page, tmp_path):
    browser = Browser(page, tmp_path / "profile")
    yield browser
    browser.close()


def add(graph, task, outcome="met", response_ms=20.0, variant="full@null"):
    graph.add_frame(
        task,
        {
            "outcome": outcome,
            "response_ms": str(response_ms),
            "deadline_ms": "33.3",
            "variant": variant,
        },
    )


def test_figures_and_plots_follow_the_graph(browser, graph):
    browser.wait("document.getElementById('state').textContent === 'no task found yet'")
    for number in range(50):
        add(graph, "/front/detector", "late" if number == 10 else "met", 10.0 + number)
    graph.set_present(["/front/detector", "/rear/detector"])
    graph.add_status(
        "/coordinator: policy_status", 0, "", {"policy": "neuos", "front/detector.variant": "full"}
    )
    graph.add_status("/front/detector: camera_status", 1, "12.1 Hz", {})
    browser.wait("document.querySelectorAll('#tasks tr').length === 2")
    front, rear = browser.run(CELLS)
    titles = browser.run("[...document.querySelectorAll('#titles th')].map(t => t.textContent)")
    front, rear = (dict(zip(titles, cells, strict=True)) for cells in (front, rear))
    assert (front["task"], front["met"], front["late"]) == ("/front/detector", "49", "1")
    assert (front["max ms"], front["deadline ms"]) == ("59.0", "33.3")
    assert (rear["task"], rear["met"], rear["p99 ms"], rear["age"]) == (
        *("/rear/detector", "0", "–", "–"),
    )
    text = browser.run("document.body.innerText")
    assert "neuos · front/detector full" in text
    assert "WARN /front/detector: camera_status: 12.1 Hz" in text
    for kind in ("times", "misses"):
        assert browser.run(count_coloured(kind, "late")) > 0
    # A missed frame more shows at once.
    before = browser.run(count_coloured("times", "skipped"))
    add(graph, "/front/detector", "skipped")
    browser.wait(f"({count_coloured('times', 'skipped')}) > {before}")
    graph.set_present(["/rear/detector"])
    browser.wait("document.querySelector('#tasks tr.gone') !== null")
    assert browser.errors == []


def count_coloured(kind, outcome):
    """Make a script that counts the pixels of the first plot in the colour of an outcome."""
    return f"""(() => {{
      const canvas = document.querySelector("canvas.{kind}");
      const probe = document.createElement("canvas").getContext("2d");
      probe.fillStyle = colour("{outcome}");
      probe.fillRect(0, 0, 1, 1);
      const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
      const {{ data }} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let count = 0;
      for (let i = 0; i < data.length; i += 4) {{
        const same = data[i] === r && data[i + 1] === g && data[i + 2] === b;
        if (same && data[i + 3] === 255) count += 1;
      }}
      return count;
    }})()"""


def test_what_was_sent_is_text_and_never_runs(browser, graph):
    add(graph, "/a", variant=HOSTILE)
    values = {"policy": HOSTILE, "clocks": HOSTILE, f"{HOSTILE}.variant": HOSTILE}
    graph.add_status(f"{HOSTILE}: policy_status", 2, HOSTILE, values)
    browser.wait("document.querySelectorAll('#warnings li').length === 1")
    assert HOSTILE in browser.run(CELLS)[0]
    assert browser.run("document.body.innerText").count(HOSTILE) >= 7
    assert browser.run("document.images.length + document.scripts.length") == 2
    assert browser.run("document.title") == "jetson_dnn_rt"
    # Nor would anything that came into the page run, or call home.
    browser.run("document.body.append(Object.assign(document.createElement('script'), "
                "{textContent: 'document.title = \"taken\"'}))")  # fmt: skip
    assert browser.run("document.title") == "jetson_dnn_rt"
    assert (
        browser.run("fetch('http://127.0.0.2/').then(() => 'sent', () => 'refused')") == "refused"
    )


def test_paused_it_stays_and_goes_on_with_the_whole_minute(browser, graph):
    add(graph, "/a")
    browser.wait("document.querySelectorAll('#tasks tr').length === 1")
    browser.run("document.getElementById('pause').click()")
    add(graph, "/a")
    add(graph, "/b")
    assert browser.run("document.getElementById('state').textContent") == "paused"
    assert len(browser.run(CELLS)) == 1
    browser.run("document.getElementById('pause').click()")
    browser.wait("document.querySelectorAll('#tasks tr').length === 2")
    assert browser.run("minutes.get('/a').length") == 2


@pytest.mark.parametrize("width", [1300, 1024])
def test_every_column_is_in_sight(width, page, graph, tmp_path):
    """Before, the last one was cut at 1,300 pixels."""
    for task in ("/front/detector", "/a/rather/long/namespace/segmenter_of_lanes"):
        for outcome in ("met", "late", "skipped", "aborted", "failed", "superseded"):
            add(graph, task, outcome, 123.4, "tucker-0.50@tensorrt-fp16")
        graph.set_present([task])
    browser = Browser(page, tmp_path / "profile", width)
    try:
        browser.wait("document.querySelectorAll('#tasks tr').length === 2")
        table, window = browser.run(
            "(t => [t.getBoundingClientRect().right, document.querySelector('.scroll')"
            ".getBoundingClientRect().right])(document.querySelector('table'))"
        )
        assert table <= window
        # Whatever the table's width, no text runs out of its cell but names, which have a tip.
        assert browser.run(
            "[...document.querySelectorAll('td:not(.text), th')]"
            ".every(c => c.scrollWidth <= c.clientWidth)"
        )
    finally:
        browser.close()
