// The part of the run that is visible: two moments between its start and its end.

const LEAST_VISIBLE_S = 1e-4;

/** A view of `total` seconds that calls `changed` after every change. */
function makeView(total, changed) {
  const view = {
    from: 0,
    to: total,
    total,

    /** Show from one moment to another, as far as the run goes. */
    show(from, to) {
      const span = between(to - from, Math.min(LEAST_VISIBLE_S, total), total);
      view.from = between(from, 0, total - span);
      view.to = view.from + span;
      changed();
    },
    all: () => view.show(0, total),
    pan: (share) => view.panSeconds(share * (view.to - view.from)),
    panSeconds: (seconds) => view.show(view.from + seconds, view.to + seconds),

    /** Make the visible part `factor` times as long; the moment `at` stays where it is. */
    zoom(factor, at = (view.from + view.to) / 2) {
      const span = between((view.to - view.from) * factor, Math.min(LEAST_VISIBLE_S, total), total);
      const place = (at - view.from) / (view.to - view.from);
      view.show(at - place * span, at + (1 - place) * span);
    },
    /** Pan, if need be, so that a stretch is seen. */
    reveal(begin, end) {
      if (begin >= view.from && end <= view.to) return;
      const span = Math.max(view.to - view.from, Math.min((end - begin) * 1.2, total));
      view.show((begin + end - span) / 2, (begin + end + span) / 2);
    },
  };
  return view;
}
