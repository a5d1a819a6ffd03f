// Fill the page from the data that it holds.

const page = JSON.parse(byId("data").textContent);

function setUpHead({ run, head, timeline, table }) {
  byId("run").textContent = run;
  const last = timeline.blocks.at(-1);
  byId("extent").textContent =
    `steps ${head.first_step} to ${head.last_step}, ${figure(timeline.num_ranks)} ranks, ` +
    `${figure(last.start_s + last.seconds, 1)} s`;
  const change = ({ first, last: end }, digits) => `${figure(first, digits)} to ${figure(end, digits)}`;
  const tiles = [
    ["tokens per occupied rank-second", figure(table.total.tokens_per_occupied_second, 1)],
    ["tokens per second of generation", figure(table.total.throughput, 1)],
    ["ranks occupied by generation", percent(table.total.occupied_fraction)],
    ["idle, of occupied time", percent(table.total.idle_fraction)],
  ];
  const window = head.window === 1 ? "step" : `${head.window} steps`;
  if (head.reward.first !== null) tiles.push([`reward, first to last ${window}`, change(head.reward, 3)]);
  if (head.validation.first !== null) tiles.push(["validation, first to last", change(head.validation, 3)]);
  byId("head").append(...tiles.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function setUpLegend() {
  const meanings = {
    generating: "generating", idle: "idle: own responses finished, experts still needed", shrinking: "shrinking",
    released: "released", early: "training early, in a lease", training: "training", waiting: "waiting",
  };
  byId("legend").append(...Object.entries(meanings).map(([look, meaning]) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = swatchOf(look);
    return element("li", {}, swatch, meaning);
  }));
}

function swatchOf(look) {
  if (look === "idle") {
    return "repeating-linear-gradient(135deg, var(--generating) 0 1px, var(--idle) 1px 4.5px)";
  }
  if (look === "released") {
    return "radial-gradient(var(--dots) 0.9px, transparent 1.2px) 0 0 / 4.5px 4.5px, var(--ground)";
  }
  return `var(--${look})`;
}

function setUpNotes(notes) {
  for (const [panel, lines] of Object.entries(notes)) {
    byId(`${panel}-notes`).append(...lines.map((line) => element("p", { class: "note" }, line)));
  }
}

setUpHead(page);
setUpLegend();
setUpNotes(page.notes);
setUpTable(page.table, setUpTimeline(page.timeline));
setUpLengths(page.lengths);
setUpCurves(page.curves);
