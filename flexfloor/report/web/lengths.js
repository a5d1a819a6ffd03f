// The lengths of a chosen step, as histogram or cumulative share, beside those of all steps.

function setUpLengths(lengths) {
  if (!lengths) {
    byId("lengths").hidden = true;
    return;
  }
  setUpHistogram(lengths);
  byId("predicted-figure").hidden = !lengths.predicted;
  if (lengths.predicted) setUpPredicted(lengths.predicted);
}

function setUpHistogram(lengths) {
  const slider = byId("step");
  const buttons = [byId("as-histogram"), byId("as-cdf")];
  const state = { isCdf: false };
  // The first place of the slider is all steps together.
  slider.max = lengths.steps.length;
  slider.value = lengths.steps.length;
  const chosen = () => (Number(slider.value) ? lengths.steps[slider.value - 1] : lengths.every_step);
  const draw = chart(byId("histogram"), 250, () => histogramChart(lengths, chosen(), state.isCdf));
  const update = () => {
    const { step, counts, p50, p90, longest, truncated } = chosen();
    const name = step === null ? "all" : `${step}`;
    byId("step-name").textContent = name;
    slider.setAttribute("aria-valuetext", step === null ? "all steps" : `step ${step}`);
    byId("histogram-title").textContent = step === null ? "Lengths of all steps" : `Lengths of step ${step}`;
    byId("histogram-text").textContent =
      `${figure(counts.reduce((a, b) => a + b))} responses, ${figure(truncated)} of them truncated; tokens: median ` +
      `${figure(p50)}, 90th percentile ${figure(p90)}, longest ${figure(longest)}. ` +
      (step === null ? "" : "Grey: all steps.");
    draw();
  };
  slider.addEventListener("input", update);
  buttons.forEach((button, index) => button.addEventListener("click", () => {
    state.isCdf = index === 1;
    buttons.forEach((each, i) => each.setAttribute("aria-pressed", i === index));
    update();
  }));
  update();
}

/** Shares of the responses, by bin or up to the end of each bin. */
function shares({ counts }, isCdf) {
  const total = counts.reduce((a, b) => a + b);
  let sum = 0;
  return counts.map((count) => (isCdf ? (sum += count) : count) / total);
}

function histogramChart({ edges, every_step: every }, chosen, isCdf) {
  const [ours, all] = [shares(chosen, isCdf), shares(every, isCdf)];
  const top = isCdf ? 1 : Math.max(...ours, ...all) * 1.05;
  // A bin of whole lengths reaches from its first one to the next bin's first one.
  const isLog = edges.at(-1) / edges[0] > 8;
  const name = "tokens of a response";
  const x = makeAxis({ from: edges[0], to: edges.at(-1), log: isLog, whole: true, wanted: 8, name });
  const y = makeAxis({ from: 0, to: top, wanted: 5, text: (share) => `${figure(100 * share)} %` });
  const form = isCdf ? "Cumulative share" : "Share";
  return {
    x, y, label: `${form} of responses by length`,
    marks: (frame) => isCdf
      ? [curve(frame, stairs(edges, all, true), { stroke: "var(--faint)" }),
         curve(frame, stairs(edges, ours, true), { stroke: "var(--p50)", "stroke-width": 2.2 })]
      : [...bars(frame, edges, ours), curve(frame, stairs(edges, all, false), { stroke: "var(--faint)" })],
    tell: (frame, px, py) => {
      const bin = ours.findIndex((_, i) => px >= frame.x(edges[i]) && px < frame.x(edges[i + 1]));
      if (bin < 0) return null;
      const [first, last] = [edges[bin], edges[bin + 1] - 1];
      const range = first === last ? figure(first) : `${figure(first)} to ${figure(last)}`;
      const upTo = `${isCdf ? `up to ${figure(last)}` : range} tokens`;
      const lines = [upTo, `${percent(ours[bin])} of the responses`, `${percent(all[bin])} over all steps`];
      return { lines, x: px, y: py };
    },
  };
}

function bars(frame, edges, values) {
  return values.map((value, i) => {
    const [left, right] = [frame.x(edges[i]), frame.x(edges[i + 1])];
    const gap = right - left > 4 ? 1 : 0;
    return shape("rect", {
      x: left, width: Math.max(0.5, right - left - gap), y: frame.y(value), height: frame.bottom - frame.y(value),
      fill: "var(--p50)", class: "bar-of-lengths",
    });
  });
}

/** The outline of bins; a cumulative share is reached at the end of its bin. */
function stairs(edges, values, isCdf) {
  if (isCdf) return [[edges[0], 0], ...values.map((value, i) => [edges[i + 1], value])];
  return values.flatMap((value, i) => [[edges[i], value], [edges[i + 1], value]]);
}
