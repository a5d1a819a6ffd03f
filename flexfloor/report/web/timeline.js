// The time line as something to move about in, by mouse, finger and keys.

/** Steps, from the last one back, that are seen at first. */
const FIRST_SEEN = 3;

/** Set up the time line; returns a function that shows the step with a number. */
function setUpTimeline(timeline) {
  const canvas = byId("rows");
  const line = readTimeline(timeline);
  const state = { selected: null };
  const drawOverview = makeOverview(byId("overview"), line);
  const draw = (isStale = false) => {
    drawTimeline(canvas, line, view, state.selected);
    drawOverview(view, isStale);
    const digits = view.to - view.from < 0.5 ? 4 : 2;
    byId("visible").textContent = `Visible: ${figure(view.from, digits)} to ${figure(view.to, digits)} s.`;
  };
  const redraw = onceAFrame(() => draw());
  const view = makeView(line.total, redraw);
  const scene = { canvas, line, view, state, redraw };
  listenToPointers(scene);
  listenToWheel(scene);
  listenToOverview(byId("overview"), view);
  listenToKeys(scene);
  const goTo = (block) => view.show(block.start_s, block.start_s + block.seconds);
  setUpButtons(scene, goTo);
  drawAlways(canvas.parentElement, () => draw(true));
  const first = line.blocks.at(-FIRST_SEEN) ?? line.blocks[0];
  view.show(first.start_s, line.total);
  return (step) => {
    const block = line.blocks.find((each) => each.first <= step && step <= each.last);
    if (block) goTo(block);
  };
}

function onceAFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

function setUpButtons({ line, view }, goTo) {
  const clicks = {
    "zoom-in": () => view.zoom(0.5),
    "zoom-out": () => view.zoom(2),
    "zoom-all": view.all,
    "step-back": () => goTo(line.blocks[Math.max(0, middleBlock(line, view) - 1)]),
    "step-on": () => goTo(line.blocks[Math.min(line.blocks.length - 1, middleBlock(line, view) + 1)]),
  };
  for (const [id, click] of Object.entries(clicks)) byId(id).addEventListener("click", click);
}

/** Index of the block in the middle of what is visible. */
function middleBlock(line, view) {
  const middle = (view.from + view.to) / 2;
  return Math.max(0, line.blocks.findLastIndex((block) => block.start_s <= middle));
}

/** Rank and second of a pointer's place; the rank is null outside of the rows. */
function placeOf({ canvas, line, view }, event) {
  const box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left;
  const y = event.clientY - box.top;
  const width = box.width - GUTTER;
  const row = Math.floor((y - HEAD) / line.rowHeight);
  return {
    x, y, width,
    seconds: view.from + ((x - GUTTER) / width) * (view.to - view.from),
    rank: row >= 0 && row < line.rows.length ? row : null,
    isActive: y > HEAD + line.rows.length * line.rowHeight && y < box.height - AXIS,
  };
}

function tellPlace(scene, place) {
  const { line, state } = scene;
  const hover = byId("hover");
  const index = place.rank === null || place.x < GUTTER ? -1 : runAt(line.rows[place.rank], place.seconds);
  state.selected = index >= 0 ? { rank: place.rank, index } : null;
  if (index >= 0) showHover(hover, tellRun(line, place.rank, index), place.x, place.y);
  else if (place.isActive && place.x >= GUTTER) showHover(hover, tellActive(line, place.seconds), place.x, place.y);
  else hover.hidden = true;
  scene.redraw();
}

function listenToPointers(scene) {
  const { canvas, view } = scene;
  const held = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, event.clientX);
    canvas.classList.add("held");
    tellPlace(scene, placeOf(scene, event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const place = placeOf(scene, event);
    const last = held.get(event.pointerId);
    if (last === undefined) return tellPlace(scene, place);
    const others = [...held].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
    held.set(event.pointerId, event.clientX);
    if (others.length) {
      const [before, after] = [Math.abs(last - others[0]), Math.abs(event.clientX - others[0])];
      if (before > 4 && after > 4) view.zoom(before / after, place.seconds);
    } else if (event.clientX !== last) {
      view.panSeconds(((last - event.clientX) / place.width) * (view.to - view.from));
      byId("hover").hidden = true;
    }
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => {
      held.delete(event.pointerId);
      canvas.classList.toggle("held", held.size > 0);
    });
  }
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "mouse") return;
    byId("hover").hidden = true;
    scene.state.selected = null;
    scene.redraw();
  });
  canvas.addEventListener("dblclick", (event) => view.zoom(0.25, placeOf(scene, event).seconds));
}

/** A wheel zooms with Ctrl and pans with Shift; alone it scrolls the page, and one that goes sideways pans. */
function listenToWheel(scene) {
  const { canvas, view } = scene;
  canvas.addEventListener("wheel", (event) => {
    const place = placeOf(scene, event);
    if (event.ctrlKey || event.metaKey) view.zoom(2 ** between(event.deltaY / 200, -1, 1), place.seconds);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.pan((event.deltaX || event.deltaY) / place.width);
    } else return;
    event.preventDefault();
    tellPlace(scene, placeOf(scene, event));
  }, { passive: false });
}

function listenToKeys(scene) {
  const { canvas, view } = scene;
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.shiftKey && event.key.startsWith("Arrow") ? `Shift${event.key}` : event.key;
    const act = {
      ShiftArrowLeft: () => view.pan(-0.2),
      ShiftArrowRight: () => view.pan(0.2),
      ArrowLeft: () => selectRun(scene, -1, 0),
      ArrowRight: () => selectRun(scene, 1, 0),
      ArrowUp: () => selectRun(scene, 0, -1),
      ArrowDown: () => selectRun(scene, 0, 1),
      "+": () => view.zoom(0.5),
      "=": () => view.zoom(0.5),
      "-": () => view.zoom(2),
      0: view.all,
      Escape: () => (byId("hover").hidden = true),
    }[key];
    if (!act) return;
    act();
    event.preventDefault();
  });
}

/** Go to a neighbouring stretch of the same rank, or to the same moment of a neighbouring rank, and tell it. */
function selectRun(scene, runs, ranks) {
  const { line, view, state } = scene;
  const begin = state.selected ?? { rank: 0, index: firstAfter(line.rows[0], view.from) - runs };
  const old = line.rows[begin.rank];
  const rank = between(begin.rank + ranks, 0, line.rows.length - 1);
  const row = line.rows[rank];
  const at = old.begin[between(begin.index, 0, old.begin.length - 1)];
  const index = ranks ? firstAfter(row, at) : begin.index + runs;
  if (index < 0 || index >= row.end.length) return;
  state.selected = { rank, index };
  view.reveal(row.begin[index], row.end[index]);
  scene.redraw();
  const width = scene.canvas.clientWidth - GUTTER;
  const x = GUTTER + ((row.begin[index] - view.from) / (view.to - view.from)) * width;
  const y = HEAD + (rank + 1) * line.rowHeight;
  if (row.kind[index] >= 0) showHover(byId("hover"), tellRun(line, rank, index), between(x, GUTTER, GUTTER + width), y);
}
