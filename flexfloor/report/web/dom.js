// Elements, numbers and colours, for the parts of the page that follow.

const byId = (id) => document.getElementById(id);

/** An element with attributes and children; text is always text, never markup. */
function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for a part of a drawing. */
function shape(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A number with thousands apart and at most so many digits behind the point; nothing becomes a dash. */
function figure(value, digits = 0) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

const percent = (share) => (share === null ? "–" : `${figure(100 * share, 1)} %`);

/** Seconds in a unit that suits them. */
function duration(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 1e-3) return `${figure(seconds * 1e6, 0)} µs`;
  if (seconds < 0.1) return `${figure(seconds * 1e3, 1)} ms`;
  return `${figure(seconds, seconds < 100 ? 2 : 1)} s`;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const minimum = (values) => values.reduce((a, b) => Math.min(a, b));
const maximum = (values) => values.reduce((a, b) => Math.max(a, b));

const between = (value, low, high) => Math.min(Math.max(value, low), high);

/** About `wanted` round values from `from` to `to`. */
function roundTicks(from, to, wanted, whole = false) {
  const rough = (to - from) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i++) ticks.push(i * step + 0);
  return ticks;
}

/** Digits behind the point that tell neighbouring ticks apart. */
function tickDigits(ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
  return between(-Math.floor(Math.log10(step) + 1e-9), 0, 9);
}

/** Call `draw` now, and again whenever the width of `host` or the colour scheme changes. */
function drawAlways(host, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (host.clientWidth === width) return;
    width = host.clientWidth;
    draw();
  }).observe(host);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

/** Show lines of text in a box beside a point of its figure. */
function showHover(box, lines, x, y) {
  box.replaceChildren(...lines.map((line) => element("p", {}, line)));
  box.hidden = false;
  const room = box.parentElement.clientWidth;
  const left = x + 14 + box.offsetWidth > room ? x - 14 - box.offsetWidth : x + 14;
  box.style.left = `${between(left, 0, Math.max(0, room - box.offsetWidth))}px`;
  box.style.top = `${Math.max(0, y + 12)}px`;
}
