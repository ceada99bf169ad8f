"use strict";
// The page of `jetson-dnn-rt top --web`: events in, table and plots out. Every text of an event
// comes from the network and is only ever set as text.

const byId = (id) => document.getElementById(id);
const figure = (value, digits = 1) => (value === null ? "–" : value.toFixed(digits));

const COLUMNS = [
  ["task", (t) => t.name, "text"],
  ["Hz", (t) => figure(t.rate_hz)],
  ["met", (t) => t.counts.met],
  ["late", (t) => t.counts.late, "miss"],
  ["skipped", (t) => t.counts.skipped, "miss"],
  ["aborted", (t) => t.counts.aborted, "miss"],
  ["failed", (t) => t.counts.failed, "miss"],
  ["superseded", (t) => t.counts.superseded],
  ["p50 ms", (t) => figure(t.p50_ms)],
  ["p99 ms", (t) => figure(t.p99_ms)],
  ["max ms", (t) => figure(t.hwm_ms)],
  ["deadline ms", (t) => figure(t.deadline_ms)],
  ["response / deadline", null, "text"],
  ["variant", (t) => t.variant || "–", "text"],
  ["budget ms", (t) => figure(t.budget_ms)],
  ["age", (t) => (t.present ? (t.age_s === null ? "–" : `${figure(t.age_s)} s`) : "gone")],
];

const FINISHED = ["met", "late"]; // outcomes with a response time

const minutes = new Map(); // task -> its points of the last minute
const cards = new Map(); // task -> the elements of its plots
let last = null; // the last event
let source = null; // of events, null while paused

function make(tag, text = "", kind = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (kind) element.className = kind;
  return element;
}

// From 0 to a third more than the deadline, whose mark is in page.css.
function makeBar(task) {
  const cell = make("td", "", "text"), bar = make("span", "", "bar");
  if (task.response_ms === null || !task.deadline_ms) return make("td", "–", "text");
  const share = task.response_ms / task.deadline_ms;
  const fill = make("i", "", share > 1 ? "over" : share > 0.8 ? "near" : "");
  fill.style.width = `${Math.min(100, 75 * share)}%`;
  bar.append(fill, make("b"));
  cell.append(bar, ` ${figure(task.response_ms)} ms`);
  return cell;
}

function makeRow(task) {
  const row = make("tr", "", task.present ? "" : "gone");
  for (const [, value, kind] of COLUMNS) {
    if (value === null) row.append(makeBar(task));
    else {
      const text = value(task);
      const cell = make("td", text, kind === "miss" ? (text ? "bad" : "") : kind);
      if (kind === "text") cell.title = text;
      row.append(cell);
    }
  }
  return row;
}

function describeCoordinator(one) {
  const parts = [one.policy || "–"];
  for (const [task, variant] of Object.entries(one.choices)) parts.push(`${task} ${variant}`);
  if (one.clocks) parts.push(`clocks ${one.clocks}`);
  if (one.power_w !== null) parts.push(`${figure(one.power_w)} W`);
  if (one.decisions_per_s !== null) parts.push(`${figure(one.decisions_per_s, 0)} decisions/s`);
  const line = make("div");
  line.append(make("strong", `${one.name} `), parts.join(" · "));
  return line;
}

function makeCard(name) {
  const card = make("section"), times = make("canvas", "", "times");
  const misses = make("canvas", "", "misses"), values = make("div", "", "values");
  times.setAttribute("role", "img");
  times.setAttribute("aria-label", `response times of ${name} against its deadline`);
  misses.setAttribute("role", "img");
  misses.setAttribute("aria-label", `deadline misses of ${name} per second`);
  times.addEventListener("mousemove", (event) => {
    if (last) values.textContent = describeNearest(name, times, event.offsetX);
  });
  card.append(make("h2", name), values, times, misses);
  byId("plots").append(card);
  return { card, times, misses, values };
}

function describeNearest(name, canvas, left) {
  const width = canvas.clientWidth - LEFT - RIGHT;
  const at = last.now_s - SECONDS * (1 - (left - LEFT) / width);
  let nearest = null;
  for (const point of minutes.get(name) || []) {
    if (nearest === null || Math.abs(point[0] - at) < Math.abs(nearest[0] - at)) nearest = point;
  }
  if (nearest === null) return "";
  const [second, response, deadline, outcome, variant] = nearest;
  const task = last.tasks.find((one) => one.name === name);
  return `${figure(last.now_s - second)} s ago: ${last.outcomes[outcome]}, ` +
    `${figure(response)} of ${figure(deadline)} ms, ${task?.variants[variant] || "–"}`;
}

function drawPlots() {
  if (!last) return;
  const finished = new Set(FINISHED.map((name) => last.outcomes.indexOf(name)));
  for (const task of last.tasks) {
    if (!cards.has(task.name)) cards.set(task.name, makeCard(task.name));
    const { card, times, misses } = cards.get(task.name);
    card.style.opacity = task.present ? 1 : 0.5;
    const place = card.getBoundingClientRect();
    if (place.bottom < 0 || place.top > window.innerHeight) continue;
    plotTimes(times, minutes.get(task.name) || [], last.now_s, last.outcomes, finished);
    plotMisses(misses, task.missed, last.outcomes);
  }
  for (const [name, { card }] of cards) {
    if (last.tasks.some((task) => task.name === name)) continue;
    card.remove();
    cards.delete(name);
    minutes.delete(name);
  }
}

function show() {
  byId("state").textContent = last.tasks.length
    ? `${last.tasks.length} tasks` : "no task found yet";
  byId("coordinators").replaceChildren(...last.coordinators.map(describeCoordinator));
  byId("tasks").replaceChildren(...last.tasks.map(makeRow));
  const lines = last.warnings.map((one) =>
    make("li", `${one.level} ${one.name}: ${one.message}`, one.level));
  for (const [reason, count] of Object.entries(last.dropped_messages)) {
    lines.push(make("li", `messages not used: ${count} (${reason})`));
  }
  byId("warnings").replaceChildren(...lines);
  if (!byId("legend").childElementCount) byId("legend").append(...makeLegend(last.outcomes));
  drawPlots();
}

function makeLegend(outcomes) {
  return [...outcomes, "deadline"].map((name) => {
    const item = make("span"), sign = make("i", "", name === "deadline" ? name : "");
    sign.style.background = `var(--${name})`;
    item.append(sign, name);
    return item;
  });
}

function take(event) {
  for (const task of event.tasks) {
    const points = (minutes.get(task.name) || []).concat(task.points);
    const first = points.findIndex((point) => point[0] > event.now_s - SECONDS);
    minutes.set(task.name, first < 0 ? [] : points.slice(first));
  }
  last = event;
  byId("state").className = "";
  show();
}

function connect() {
  source = new EventSource("/events");
  // Each connection begins with the whole minute.
  source.onopen = () => minutes.clear();
  source.onmessage = (message) => take(JSON.parse(message.data));
  source.onerror = () => {
    byId("state").className = "lost";
    byId("state").textContent = source.readyState === EventSource.CLOSED
      ? "refused: too many viewers?" : "connection lost";
  };
}

function pause() {
  if (source) {
    source.close();
    source = null;
    byId("state").textContent = "paused";
  } else connect();
  byId("pause").textContent = source ? "Pause" : "Go on";
  byId("pause").setAttribute("aria-pressed", !source);
}

byId("titles").append(...COLUMNS.map(([title, , kind]) =>
  make("th", title, kind === "text" ? kind : "")));
byId("pause").addEventListener("click", pause);
window.addEventListener("resize", drawPlots);
window.addEventListener("scroll", drawPlots, { passive: true });
connect();
