// What the time line says of a place: a stretch of a rank's time, or how many ranks are active.

/** Lines of text about one run of a rank; the busy and the idle part of an interval are told together. */
function tellRun(line, rank, index) {
  const row = line.rows[rank];
  const block = line.blocks[row.block[index]];
  const kind = line.kinds[row.kind[index]];
  if (!block.is_full) return tellSample(block, kind, rank);
  const { begin, end, idle } = wholeInterval(line, row, index);
  const what = kind.is_released ? "released, the others still generate" : kind.state;
  const digits = end - begin < 0.1 ? 4 : 2;
  const [from, to] = [begin, end].map((seconds) => figure(seconds - block.start_s, digits));
  const lines = [
    `rank ${rank}, step ${block.first}`,
    `${kind.stage.replaceAll("_", " ")}: ${what}`,
    `${duration(end - begin)}, from ${from} to ${to} s of the step`,
  ];
  if (idle > 0) lines.push(`idle for ${duration(idle)}: own responses finished, experts still needed`);
  return lines;
}

function tellSample(block, kind, rank) {
  const steps = block.first === block.last ? `step ${block.first}` : `steps ${block.first} to ${block.last}`;
  return [
    `rank ${rank}, ${steps}`,
    `mostly ${kind.state}${kind.is_idle ? ", idle" : ""} (${kind.stage.replaceAll("_", " ")})`,
    "thinned: the exact times are not in this page",
  ];
}

/** Begin, end and idle seconds of the interval that a run is the whole of, or its busy or idle part. */
function wholeInterval(line, row, index) {
  const stage = (i) => line.kinds[row.kind[i]]?.stage;
  const same = (i) => row.block[i] === row.block[index] && stage(i) === stage(index);
  const isIdle = (i) => line.kinds[row.kind[i]]?.is_idle;
  const isBusy = (i) => line.kinds[row.kind[i]]?.state === "generating" && !isIdle(i);
  let first = index;
  let last = index;
  if (isIdle(index) && index > 0 && same(index - 1) && isBusy(index - 1)) first--;
  if (isBusy(index) && index + 1 < row.end.length && same(index + 1) && isIdle(index + 1)) last++;
  const idle = isIdle(last) ? row.end[last] - row.begin[last] : 0;
  return { begin: row.begin[first], end: row.end[last], idle };
}

/** How many ranks take part in generation at a moment. */
function tellActive(line, seconds) {
  const active = line.rows.filter((row) => {
    const index = runAt(row, seconds);
    return index >= 0 && line.kinds[row.kind[index]].active;
  });
  const block = line.blocks.findLast((each) => each.start_s <= seconds) ?? line.blocks[0];
  const step = `step ${block.first}${block.is_full ? "" : " or so (thinned)"}`;
  return [
    `${active.length} of ${line.num_ranks} ranks active`,
    `taking part in generation at ${figure(seconds, 2)} s, ${step}`,
  ];
}
