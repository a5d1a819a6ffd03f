// How the time line is drawn: rows of ranks, steps above, active ranks below, all over the same seconds.

const GUTTER = 52;
const HEAD = 38;
const ACTIVE = 64;
const AXIS = 34;
const GAP = 16;

/** Everything that the time line draws from. */
function readTimeline(timeline) {
  const kinds = timeline.kinds.map((kind) => ({
    ...kind, active: kind.is_active, look: LOOKS.indexOf(lookOf(kind)),
  }));
  const last = timeline.blocks.at(-1);
  const rows = unpackRows(timeline);
  const height = between(Math.floor(440 / rows.length), 1, 24);
  return { ...timeline, kinds, rows, rowHeight: height, total: last.start_s + last.seconds };
}

/** Fills of the looks; what is idle is hatched, what is released dotted. */
function makeFills(context, ratio) {
  return LOOKS.map((look) => {
    if (look === "idle") return pattern(context, ratio, colour("idle"), colour("generating"), "hatch");
    if (look === "released") return pattern(context, ratio, colour("ground"), colour("dots"), "dot");
    return colour(look);
  });
}

function pattern(context, ratio, ground, ink, form) {
  const size = Math.round(6 * ratio);
  const tile = element("canvas", { width: size, height: size });
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, size, size);
  pen.fillStyle = pen.strokeStyle = ink;
  pen.lineWidth = 0.8 * ratio;
  if (form === "dot") pen.fillRect(size / 3, size / 3, ratio * 1.3, ratio * 1.3);
  else {
    pen.beginPath();
    for (const shift of [-size, 0, size]) {
      pen.moveTo(shift, size);
      pen.lineTo(shift + size, 0);
    }
    pen.stroke();
  }
  return context.createPattern(tile, "repeat");
}

/** Give a canvas the pixels of its place; returns its context and the size in device pixels. */
function sized(canvas, cssHeight) {
  const ratio = devicePixelRatio || 1;
  canvas.style.height = `${cssHeight}px`;
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(cssHeight * ratio);
  return { context: canvas.getContext("2d"), ratio, width: canvas.width, height: canvas.height };
}

/** Paint all rows; returns the active ranks of each pixel. */
function paintRows(pad, line, view, place, fills) {
  const active = new Float64Array(place.width);
  const blockWidth = (block) => (line.blocks[block].seconds * place.width) / (view.to - view.from);
  line.rows.forEach((row, rank) => {
    const y = Math.round(place.y + rank * place.rowHeight);
    const height = Math.max(1, Math.round(place.y + (rank + 1) * place.rowHeight) - y - place.gap);
    const { shrinks } = paintRow(pad.context, row, line.kinds, view, { ...place, y, height }, fills, active);
    pad.context.fillStyle = fills[LOOKS.indexOf("shrinking")];
    for (const [left, block] of shrinks) {
      if (blockWidth(block) > 24 * pad.ratio) pad.context.fillRect(place.x + left, y, 2, height);
    }
  });
  return active;
}

function drawTimeline(canvas, line, view, selected) {
  const height = HEAD + line.rows.length * line.rowHeight + GAP + ACTIVE + AXIS;
  const pad = sized(canvas, height);
  const { context, ratio } = pad;
  const place = {
    x: Math.round(GUTTER * ratio), y: HEAD * ratio, width: pad.width - Math.round(GUTTER * ratio),
    rowHeight: line.rowHeight * ratio, gap: line.rowHeight >= 6 ? Math.round(ratio) : 0,
  };
  if (place.width < 20) return;
  const active = paintRows(pad, line, view, place, makeFills(context, ratio));
  context.scale(ratio, ratio);
  context.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
  const plot = { left: GUTTER, width: place.width / ratio, bottom: HEAD + line.rows.length * line.rowHeight };
  const toX = (seconds) => plot.left + ((seconds - view.from) / (view.to - view.from)) * plot.width;
  drawRankNames(context, line);
  drawSteps(context, line, view, plot, toX);
  drawActive(context, line, plot, active, ratio);
  drawSeconds(context, view, plot, toX, height);
  if (selected) outline(context, line, selected, toX, plot);
}

function drawRankNames(context, line) {
  const every = Math.ceil(13 / line.rowHeight);
  context.fillStyle = colour("faint");
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let rank = 0; rank < line.rows.length; rank += every) {
    const y = HEAD + rank * line.rowHeight + line.rowHeight / 2;
    context.fillText(`rank ${rank}`, GUTTER - 7, y);
  }
}

/** Names of steps and, where there is room, of rank 0's stages; a line where a step begins. */
function drawSteps(context, line, view, plot, toX) {
  context.textAlign = "center";
  context.save();
  context.beginPath();
  context.rect(plot.left, 0, plot.width, plot.bottom);
  context.clip();
  let free = plot.left;
  for (const block of line.blocks) {
    const left = toX(block.start_s);
    const right = toX(block.start_s + block.seconds);
    if (right < plot.left || left > plot.left + plot.width) continue;
    const name = block.first === block.last ? `${block.first}` : `${block.first} to ${block.last}`;
    const centre = (Math.max(left, plot.left) + Math.min(right, plot.left + plot.width)) / 2;
    const long = `step ${name}`;
    const text = context.measureText(long).width < right - left ? long : name;
    const half = context.measureText(text).width / 2;
    if (right - left > 24) {
      context.fillStyle = colour("faint");
      context.fillRect(Math.round(left), 4, 1, plot.bottom - 4);
    }
    if (centre - half < free + 10 || (right - left < 2 * half && right - left > 24)) continue;
    context.fillStyle = colour("ink");
    context.fillText(text, centre, 11);
    free = centre + half;
  }
  drawStages(context, line, view, toX);
  context.restore();
}

function drawStages(context, line, view, toX) {
  const row = line.rows[0];
  context.fillStyle = colour("faint");
  const stage = (i) => line.kinds[row.kind[i]]?.stage;
  const from = firstAfter(row, view.from);
  for (let i = from; i < row.end.length && row.begin[i] < view.to; ) {
    let end = i;
    while (end + 1 < row.end.length && row.block[end + 1] === row.block[i] && stage(end + 1) === stage(i)) end++;
    const left = toX(Math.max(row.begin[i], view.from));
    const right = toX(Math.min(row.end[end], view.to));
    const name = (stage(i) ?? "").replaceAll("_", " ");
    if (right - left > 30 && context.measureText(name).width + 8 < right - left) {
      context.fillText(name, (left + right) / 2, 27);
    }
    i = end + 1;
  }
}

/** How many ranks take part in generation, a column of pixels each. */
function drawActive(context, line, plot, active, ratio) {
  const base = plot.bottom + GAP + ACTIVE;
  const tall = (ranks) => (ranks / line.num_ranks) * ACTIVE;
  context.fillStyle = colour("line");
  for (const share of [0, 0.5, 1]) context.fillRect(plot.left, Math.round(base - share * ACTIVE), plot.width, 1);
  context.fillStyle = colour("generating");
  active.forEach((ranks, pixel) => {
    if (ranks > 0.005) context.fillRect(plot.left + pixel / ratio, base - tall(ranks), 1 / ratio, tall(ranks));
  });
  context.fillStyle = colour("faint");
  context.textAlign = "right";
  context.fillText(`${line.num_ranks}`, GUTTER - 7, base - ACTIVE);
  context.fillText("0", GUTTER - 7, base);
  context.fillText("active", GUTTER - 7, base - ACTIVE / 2);
}

function drawSeconds(context, view, plot, toX, height) {
  const ticks = roundTicks(view.from, view.to, plot.width / 65);
  const digits = tickDigits(ticks);
  const y = plot.bottom + GAP + ACTIVE;
  context.fillStyle = colour("faint");
  context.textAlign = "center";
  for (const tick of ticks) {
    context.fillRect(Math.round(toX(tick)), y, 1, 5);
    const half = context.measureText(figure(tick, digits)).width / 2;
    context.fillText(figure(tick, digits), between(toX(tick), plot.left + half, plot.left + plot.width - half), y + 13);
  }
  context.fillText("seconds since the start of the run", plot.left + plot.width / 2, height - 5);
}

function outline(context, line, { rank, index }, toX, plot) {
  const row = line.rows[rank];
  const left = Math.max(plot.left, toX(row.begin[index]));
  const right = Math.min(plot.left + plot.width, toX(row.end[index]));
  if (right < left) return;
  context.strokeStyle = colour("ink");
  context.lineWidth = 1.5;
  context.strokeRect(left, HEAD + rank * line.rowHeight, Math.max(2, right - left), Math.max(3, line.rowHeight - 1));
}
