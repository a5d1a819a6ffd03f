// Predicted beside real lengths, a point a response, both on logarithmic axes.

function setUpPredicted(predicted) {
  const [count, covered] = [predicted.num_responses, predicted.num_covered];
  const [cut, cutCovered] = [predicted.num_truncated, predicted.num_covered_truncated];
  byId("coverage").textContent =
    `The 80 % interval holds ${percent(covered / count)} of ${figure(count)} responses` +
    (cut && cut < count
      ? ` (${percent((covered - cutCovered) / (count - cut))} of those that ended by themselves, ` +
        `${percent(cutCovered / cut)} of ${figure(cut)} truncated ones).`
      : ".");
  const looks = [["within its interval", "p50"], ["outside", "shrinking"]];
  const words = ["dashed: as predicted", ...(cut ? ["hollow: truncated"] : [])];
  byId("predicted").before(legend(looks, words));
  chart(byId("predicted"), 320, () => predictedChart(predicted.points));
}

function predictedChart(points) {
  const values = points.flatMap((each) => [each.num_tokens, each.p50]);
  const from = Math.max(0.5, minimum(values) * 0.85);
  const to = maximum(values) * 1.15;
  const axis = (name) => makeAxis({ from, to, log: true, name, wanted: 7 });
  const place = (frame, each) => [frame.x(each.p50), frame.y(each.num_tokens)];
  return {
    x: axis("predicted median, tokens (upwards: real length)"), y: axis(""),
    label: "Real length over predicted median of each response, both logarithmic",
    marks: (frame) => [
      curve(frame, [[from, from], [to, to]], { stroke: "var(--faint)", "stroke-dasharray": "4 4" }),
      ...points.map((each) => dot(place(frame, each), each)),
    ],
    tell: (frame, px, py) => {
      const distance = ([x, y]) => (x - px) ** 2 + (y - py) ** 2;
      const best = points.reduce((a, b) => (distance(place(frame, b)) < distance(place(frame, a)) ? b : a));
      const [x, y] = place(frame, best);
      return distance([x, y]) < 14 ** 2 ? { lines: tellResponse(best), x, y } : null;
    },
  };
}

function dot([cx, cy], { p10, p90, num_tokens: tokens, truncated }) {
  const ink = p10 <= tokens && tokens <= p90 ? "var(--p50)" : "var(--shrinking)";
  const look = truncated ? { fill: "none", stroke: ink } : { fill: ink, "fill-opacity": 0.55 };
  return shape("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: 2.6, ...look });
}

function tellResponse(response) {
  return [
    `response ${response.response_index} to ${response.uid}, step ${response.step}`,
    `${figure(response.num_tokens)} tokens${response.truncated ? ", truncated" : ""}`,
    `predicted ${figure(response.p50)}, 80 % between ${figure(response.p10)} and ${figure(response.p90)}`,
  ];
}
