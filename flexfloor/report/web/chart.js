// Small charts in SVG: two axes, marks that a caller draws, and words about the place under the pointer.

/** An axis from `from` to `to`; a logarithmic one has ticks at powers of two or ten. */
function makeAxis({ from, to, log = false, whole = false, wanted = 5, name = "", digits = null, text = null }) {
  const ease = log ? Math.log : (value) => value;
  const share = (value) => (ease(value) - ease(from)) / (ease(to) - ease(from));
  const ticks = log ? logTicks(from, to, wanted) : roundTicks(from, to, wanted, whole);
  const behind = digits ?? (log ? 0 : tickDigits(ticks));
  return { from, to, share, ticks, name, text: text ?? ((value) => figure(value, behind)) };
}

function logTicks(from, to, wanted) {
  const powers = (base) => {
    const ticks = [];
    for (let tick = 1; tick <= to * 1.0001; tick *= base) if (tick >= from * 0.9999) ticks.push(tick);
    return ticks;
  };
  return [2, 4, 10].map(powers).find((ticks) => ticks.length <= wanted + 2) ?? powers(100);
}

/** Draw a chart into `host`, anew whenever its width changes.
 *
 * `make` gives {x, y, label, marks, tell}: two axes, what a reader hears of the chart, a function from a frame to
 * shapes, and one from a frame and a place to {lines, x, y} or null. A frame is {x, y, left, right, top, bottom},
 * with x and y from values to pixels. Returns a function that draws it anew.
 */
function chart(host, height, make) {
  const hover = element("div", { class: "hover", hidden: "" });
  let frame = null;
  let tell = null;
  const draw = () => {
    const width = host.clientWidth;
    if (width < 60) return;
    const made = make();
    frame = makeFrame(made, width, height);
    tell = made.tell;
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": made.label });
    svg.append(...drawAxes(frame, made, width, height), ...made.marks(frame));
    host.replaceChildren(svg, hover);
    hover.hidden = true;
  };
  host.addEventListener("pointermove", (event) => {
    const box = host.getBoundingClientRect();
    const told = tell?.(frame, event.clientX - box.left, event.clientY - box.top);
    hover.hidden = !told;
    if (told) showHover(hover, told.lines, told.x, told.y);
  });
  host.addEventListener("pointerleave", () => (hover.hidden = true));
  drawAlways(host, draw);
  return draw;
}

function makeFrame({ x, y }, width, height) {
  const wide = Math.max(...y.ticks.map((tick) => y.text(tick).length));
  const frame = { left: 14 + 6.6 * wide, right: width - 12, top: 12, bottom: height - 38 };
  frame.x = (value) => frame.left + x.share(value) * (frame.right - frame.left);
  frame.y = (value) => frame.bottom - y.share(value) * (frame.bottom - frame.top);
  return frame;
}

function drawAxes(frame, { x, y }, width, height) {
  const shapes = y.ticks.flatMap((tick) => [
    shape("line", { class: "grid", x1: frame.left, x2: frame.right, y1: frame.y(tick), y2: frame.y(tick) }),
    shape("text", { x: frame.left - 6, y: frame.y(tick) + 4, "text-anchor": "end" }, y.text(tick)),
  ]);
  let free = 0;
  for (const tick of x.ticks) {
    const at = frame.x(tick);
    shapes.push(shape("line", { class: "axis", x1: at, x2: at, y1: frame.bottom, y2: frame.bottom + 4 }));
    const half = 3.3 * x.text(tick).length;
    const middle = Math.min(at, width - half);
    if (middle - half < free) continue;
    free = middle + half + 6;
    shapes.push(shape("text", { x: middle, y: frame.bottom + 17, "text-anchor": "middle" }, x.text(tick)));
  }
  shapes.push(shape("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }));
  const centre = (frame.left + frame.right) / 2;
  shapes.push(shape("text", { x: centre, y: height - 5, "text-anchor": "middle" }, x.name));
  return shapes;
}

/** A line through points of values. */
function curve(frame, points, attributes) {
  const path = points.map(([x, y], i) => `${i ? "L" : "M"}${frame.x(x).toFixed(1)} ${frame.y(y).toFixed(1)}`);
  const look = { fill: "none", "stroke-width": 1.6, "stroke-linejoin": "round", ...attributes };
  return shape("path", { d: path.join(""), ...look });
}

/** A legend of names and their colours' CSS names, and of what needs words alone. */
function legend(entries, words = []) {
  const items = entries.map(([name, look]) => {
    const swatch = element("span", { class: "swatch line" });
    swatch.style.background = `var(--${look})`;
    return element("li", {}, swatch, name);
  });
  return element("ul", { class: "legend" }, ...items, ...words.map((each) => element("li", {}, each)));
}
