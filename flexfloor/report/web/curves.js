// Rewards and response lengths over the steps.

function setUpCurves(curves) {
  const panel = (id, names, from) => {
    const found = names.filter(([key]) => curves[key].length);
    const host = byId(id);
    if (!found.length) {
      host.append(element("p", { class: "faint" }, "Nothing of this was logged."));
      return;
    }
    host.before(legend(found.map(([, name, look]) => [name, look])));
    chart(host, 220, () => curveChart(found.map(([key, name, look]) => ({ name, look, points: curves[key] })), from));
  };
  panel("rewards", [["reward", "mean reward", "ink"], ["validation", "validation accuracy", "validation"]], null);
  panel("spread", [["longest", "longest", "faint"], ["p90", "90th percentile", "p90"], ["p50", "median", "p50"]], 0);
}

function curveChart(series, least) {
  const steps = series.flatMap(({ points }) => points.map(([step]) => step));
  const values = series.flatMap(({ points }) => points.map(([, value]) => value));
  const [low, high] = [least ?? minimum(values), Math.max(maximum(values), (least ?? -Infinity) + 1e-9)];
  const room = (high - low || 1) * 0.06;
  const pad = maximum(steps) > minimum(steps) ? 0 : 0.5;
  return {
    x: makeAxis({ from: minimum(steps) - pad, to: maximum(steps) + pad, whole: true, wanted: 7, name: "step" }),
    y: makeAxis({ from: least ?? low - room, to: high + room, wanted: 5 }),
    label: `${series.map(({ name }) => name).join(", ")} over the steps`,
    marks: (frame) => series.flatMap(({ look, points }) => [
      curve(frame, points, { stroke: `var(--${look})` }),
      ...(points.length <= 40 ? points.map(([x, y]) =>
        shape("circle", { cx: frame.x(x), cy: frame.y(y), r: 2.2, fill: `var(--${look})` })) : []),
    ]),
    tell: (frame, px, py) => tellStep(series, frame, px, py),
  };
}

/** The values of the step that is nearest to the pointer. */
function tellStep(series, frame, px, py) {
  const steps = [...new Set(series.flatMap(({ points }) => points.map(([step]) => step)))];
  const distance = (step) => Math.abs(frame.x(step) - px);
  const nearest = steps.reduce((best, step) => (distance(step) < distance(best) ? step : best));
  const lines = series.flatMap(({ name, points }) => {
    const found = points.find(([step]) => step === nearest);
    return found ? [`${name}: ${figure(found[1], Number.isInteger(found[1]) ? 0 : 3)}`] : [];
  });
  return { lines: [`step ${nearest}`, ...lines], x: frame.x(nearest), y: py };
}
