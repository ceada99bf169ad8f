"use strict";
// Two plots of a task on canvases: response times against the deadline, and misses per second.

const SECONDS = 60, LEFT = 46, RIGHT = 8, TOP = 22, BOTTOM = 20;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
}

// Clears a canvas at the screen's resolution; returns its context and its size in CSS pixels.
function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const draw = canvas.getContext("2d");
  draw.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw.clearRect(0, 0, width, height);
  draw.font = "11px system-ui, sans-serif";
  return { draw, width, height };
}

// The least of 1, 2, 5, 10, ... that gives at most `count` ticks up to `top`.
function tick(top, count) {
  const power = 10 ** Math.floor(Math.log10(top / count));
  return power * [1, 2, 5, 10].find((step) => step * power * count >= top);
}

// Draws the axes; returns functions from seconds before now, and from values, to pixels.
function axes({ draw, width, height }, top, count, unit) {
  const x = (age) => LEFT + (width - LEFT - RIGHT) * (1 - age / SECONDS);
  const y = (value) => height - BOTTOM - (height - TOP - BOTTOM) * (value / top);
  draw.strokeStyle = colour("line");
  draw.fillStyle = colour("quiet");
  draw.lineWidth = 1;
  draw.textAlign = "right";
  draw.textBaseline = "middle";
  const step = tick(top, count);
  for (let i = 0; i * step <= top * 1.0001; i += 1) {
    const at = Math.round(y(i * step)) + 0.5;
    draw.beginPath();
    draw.moveTo(LEFT, at);
    draw.lineTo(width - RIGHT, at);
    draw.stroke();
    draw.fillText(`${+(i * step).toPrecision(6)}`, LEFT - 5, at);
  }
  draw.textBaseline = "alphabetic";
  for (let age = SECONDS; age >= 0; age -= 10) {
    draw.textAlign = age === SECONDS ? "left" : age ? "center" : "right";
    draw.fillText(age ? `−${age} s` : "now", x(age), height - 5);
  }
  draw.textAlign = "left";
  draw.fillText(unit, 0, 10);
  return { x, y };
}

// `points` are [second, response, deadline, outcome, variant], oldest first. Frames without a
// result are marks at the upper edge.
function plotTimes(canvas, points, now, outcomes, finished) {
  const area = prepare(canvas), { draw } = area;
  let top = 1;
  for (const [, response, deadline, outcome] of points) {
    if (finished.has(outcome)) top = Math.max(top, response ?? 0);
    top = Math.max(top, deadline ?? 0);
  }
  const { x, y } = axes(area, top * 1.15, 5, "response, ms");
  draw.strokeStyle = colour("deadline");
  draw.lineWidth = 1.5;
  draw.beginPath();
  let before = null;
  for (const [at, , deadline] of points) {
    if (deadline === null) continue;
    if (before === null) draw.moveTo(x(now - at), y(deadline));
    else {
      draw.lineTo(x(now - at), y(before));
      draw.lineTo(x(now - at), y(deadline));
    }
    before = deadline;
  }
  if (before !== null) draw.lineTo(x(0), y(before));
  draw.stroke();
  outcomes.forEach((name, number) => {
    draw.fillStyle = colour(name);
    const size = name === "met" ? 2.5 : 4;
    for (const [at, response, , outcome] of points) {
      if (outcome !== number) continue;
      if (!finished.has(outcome)) draw.fillRect(x(now - at) - 1, TOP - 8, 2, 9);
      else if (response !== null) {
        draw.fillRect(x(now - at) - size / 2, y(response) - size / 2, size, size);
      }
    }
  });
}

// `missed` are [second of the minute, outcome, frames].
function plotMisses(canvas, missed, outcomes) {
  const area = prepare(canvas), { draw } = area;
  const sums = new Array(SECONDS).fill(0);
  for (const [second, , frames] of missed) sums[second] += frames;
  const top = Math.max(4, ...sums);
  const { x, y } = axes(area, top, 4, "misses per second");
  const stacked = new Array(SECONDS).fill(0);
  const width = x(0) - x(1);
  for (const [second, outcome, frames] of missed) {
    draw.fillStyle = colour(outcomes[outcome]);
    const bottom = y(stacked[second]);
    stacked[second] += frames;
    const up = y(stacked[second]);
    draw.fillRect(x(SECONDS - second) + 0.5, up, width - 1, bottom - up);
  }
}
