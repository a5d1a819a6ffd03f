// The ledger's table, a row a step and the sum below; a step's number shows it on the time line.

const COLUMNS = [
  ["wall time", "s", (row) => figure(row.seconds, 2)],
  ["generating", "rank-s", (row) => figure(row.state_seconds.generating, 2)],
  ["shrinking", "rank-s", (row) => figure(row.state_seconds.shrinking, 2)],
  ["training", "rank-s", (row) => figure(row.state_seconds.training, 2)],
  ["waiting", "rank-s", (row) => figure(row.state_seconds.waiting, 2)],
  ["occupied", "rank-s", (row) => figure(row.occupied_seconds, 2)],
  ["occupied", "of all ranks", (row) => percent(row.occupied_fraction)],
  ["idle", "of occupied", (row) => percent(row.idle_fraction)],
  ["tokens", "of responses", (row) => figure(row.tokens)],
  ["tokens per", "occupied rank-s", (row) => figure(row.tokens_per_occupied_second, 1)],
  ["tokens per", "s of generation", (row) => figure(row.throughput, 1)],
];

function setUpTable(table, showStep) {
  const head = element("tr", {}, element("th", { scope: "col" }, "step"), ...COLUMNS.map(([name, unit]) =>
    element("th", { scope: "col" }, name, element("small", {}, unit))));
  const rows = table.rows.map((row) => {
    const button = element("button", { title: "Show this step on the time line" }, `${row.step}`);
    button.addEventListener("click", () => {
      showStep(row.step);
      byId("timeline").scrollIntoView({ block: "center" });
    });
    return tableRow(row, button);
  });
  const all = tableRow(table.total, `all ${figure(table.num_steps)}`);
  byId("ledger").replaceChildren(
    element("thead", {}, head), element("tbody", {}, ...rows), element("tfoot", {}, all));
}

function tableRow(row, name) {
  return element("tr", {}, element("th", { scope: "row" }, name), ...COLUMNS.map(([, , text]) =>
    element("td", {}, text(row))));
}
