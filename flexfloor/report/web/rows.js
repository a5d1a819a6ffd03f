// The rows of the time line: what held each rank, as flat arrays, painted pixel by pixel.
//
// A pixel shows what held most of its time, so that thousands of steps neither blend nor take long; a shrink
// is never thinner than two pixels where its step can be told from others.

const LOOKS = ["generating", "idle", "shrinking", "training", "early", "waiting", "released"];

function lookOf(kind) {
  if (kind.is_idle) return "idle";
  if (kind.is_early) return "early";
  return kind.is_released ? "released" : kind.state;
}

/** One row a rank: begin and end in seconds of the run, kind and block of each of its runs. */
function unpackRows(timeline) {
  return Array.from({ length: timeline.num_ranks }, (_, rank) => {
    const size = timeline.blocks.reduce((sum, block) => sum + (block.runs[rank]?.length ?? 0) / 2, 0);
    const row = {
      begin: new Float64Array(size), end: new Float64Array(size),
      kind: new Int16Array(size), block: new Int32Array(size),
    };
    let at = 0;
    timeline.blocks.forEach((block, index) => {
      let microseconds = 0;
      const runs = block.runs[rank] ?? [];
      for (let i = 0; i < runs.length; i += 2, at++) {
        row.begin[at] = block.start_s + microseconds / 1e6;
        microseconds += runs[i];
        row.end[at] = block.start_s + microseconds / 1e6;
        row.kind[at] = runs[i + 1];
        row.block[at] = index;
      }
    });
    return row;
  });
}

/** Index of the first run that ends after `seconds`. */
function firstAfter(row, seconds) {
  let low = 0;
  let high = row.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.end[middle] > seconds) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Index of the run of a row at a moment, or -1. */
function runAt(row, seconds) {
  const index = firstAfter(row, seconds);
  return index < row.end.length && row.begin[index] <= seconds && row.kind[index] >= 0 ? index : -1;
}

/** Paint the visible part of a row.
 *
 * `place` is {x, y, width, height} in pixels, `fills` the fill of each look, `active` takes for each pixel the
 * share of its time in which the rank takes part in generation.
 */
function paintRow(context, row, kinds, view, place, fills, active) {
  const scale = place.width / (view.to - view.from);
  const held = new Float64Array(LOOKS.length);
  const shrinks = [];
  let pixel = 0;
  let open = { look: -1, from: 0, to: 0 };

  const close = () => {
    if (open.look < 0 || open.to <= open.from) return;
    context.fillStyle = fills[open.look];
    context.fillRect(place.x + open.from, place.y, open.to - open.from, place.height);
  };
  const paint = (look, from, to) => {
    if (look === open.look && from === open.to) open.to = to;
    else {
      close();
      open = { look, from, to };
    }
  };
  const settle = () => {
    let best = -1;
    held.forEach((share, look) => {
      if (share > 0.02 && (best < 0 || share > held[best])) best = look;
    });
    if (best >= 0 && pixel >= 0 && pixel < place.width) paint(best, pixel, pixel + 1);
    held.fill(0);
  };
  const add = (look, at, share) => {
    if (at !== pixel) {
      settle();
      pixel = at;
    }
    held[look] += share;
  };

  for (let i = firstAfter(row, view.from); i < row.end.length && row.begin[i] < view.to; i++) {
    const kind = kinds[row.kind[i]];
    if (!kind) continue;
    const left = Math.max(0, (row.begin[i] - view.from) * scale);
    const right = Math.min(place.width, (row.end[i] - view.from) * scale);
    const first = Math.floor(left);
    const last = Math.floor(right);
    if (kind.active) addOverlap(active, left, right);
    if (first === last) add(kind.look, first, right - left);
    else {
      add(kind.look, first, first + 1 - left);
      if (last > first + 1) {
        settle();
        paint(kind.look, first + 1, last);
        pixel = last;
      }
      add(kind.look, last, right - last);
    }
    if (kind.state === "shrinking" && right - left < 2) shrinks.push([left, row.block[i]]);
  }
  settle();
  close();
  return { shrinks, scale };
}

/** Add the part of each pixel that lies between two places. */
function addOverlap(pixels, left, right) {
  const last = Math.min(pixels.length - 1, Math.floor(right));
  for (let pixel = Math.floor(left); pixel <= last; pixel++) {
    pixels[pixel] += Math.min(right, pixel + 1) - Math.max(left, pixel);
  }
}
