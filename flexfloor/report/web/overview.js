// The whole run as a strip, with a frame around the part that is visible.

/** A function that draws the strip; the rows are painted anew only when `isStale`. */
function makeOverview(canvas, line) {
  const height = between(line.rows.length * 5, 24, 56);
  let rows = null;
  return (view, isStale) => {
    const pad = sized(canvas, height);
    const x = Math.round(GUTTER * pad.ratio);
    const place = { x: 0, y: 0, width: pad.width - x, rowHeight: pad.height / line.rows.length, gap: 0 };
    if (place.width < 20) return;
    if (isStale || !rows || rows.width !== place.width) rows = paintWhole(line, place, pad);
    pad.context.drawImage(rows, x, 0);
    frameVisible(pad, x, place.width, view);
  };
}

function paintWhole(line, place, { ratio, height }) {
  const canvas = element("canvas", { width: place.width, height });
  const fills = LOOKS.map((look) => colour(look) || colour("ground"));
  paintRows({ context: canvas.getContext("2d"), ratio }, line, { from: 0, to: line.total }, place, fills);
  return canvas;
}

function frameVisible({ context, ratio, height }, x, width, view) {
  const left = x + (view.from / view.total) * width;
  const right = x + (view.to / view.total) * width;
  context.fillStyle = colour("ground");
  context.globalAlpha = 0.6;
  context.fillRect(x, 0, left - x, height);
  context.fillRect(right, 0, x + width - right, height);
  context.globalAlpha = 1;
  context.strokeStyle = colour("ink");
  context.lineWidth = 2 * ratio;
  context.strokeRect(left, 0, Math.max(3 * ratio, right - left), height);
}

/** Drag over the strip to choose what is visible; a click moves what is visible there. */
function listenToOverview(canvas, view) {
  let began = null;
  const secondsAt = (event) => {
    const box = canvas.getBoundingClientRect();
    return between((event.clientX - box.left - GUTTER) / (box.width - GUTTER), 0, 1) * view.total;
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    began = { x: event.clientX, seconds: secondsAt(event) };
    const half = (view.to - view.from) / 2;
    if (view.to - view.from < view.total) view.show(began.seconds - half, began.seconds + half);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!began || Math.abs(event.clientX - began.x) < 4) return;
    view.show(...[began.seconds, secondsAt(event)].sort((a, b) => a - b));
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (began = null));
}
