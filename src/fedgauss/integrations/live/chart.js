// Statistic over threshold against the step, on a canvas. Everything drawn comes from `seen`, see page.js.

// Where things stand: a pen in the page's units, the edges of the plot, and places x(step) and y(ratio).
function layout(canvas, seen) {
  const { pen, width, height: tall, colour } = penOn(canvas);
  const left = 42, right = width - 10, top = 42, bottom = tall - 40;
  const { steps, ratios, kinds } = seen;
  const taken = (kind) => kind !== "invalid update"; // a refused round may have any number
  const to = steps[kinds.findLastIndex(taken)] ?? 1;
  const from = Math.min(steps[kinds.findIndex(taken)] ?? 0, to - 1);
  const largest = ratios.reduce((most, ratio) => (ratio !== null && ratio > most ? ratio : most), 0);
  const height = Math.min(Math.max(1.25, 1.08 * largest), 3);
  return {
    pen, colour, left, right, top, bottom, from, to, largest, height, width,
    x: (step) => left + (right - left) * Math.min(Math.max((step - from) / (to - from), 0), 1),
    y: (ratio) => bottom - (bottom - top) * Math.min(ratio, height) / height,
  };
}

function shade(at, x1, x2, role, strength) {
  at.pen.fillStyle = at.colour(role);
  at.pen.globalAlpha = strength;
  at.pen.fillRect(x1, at.top, Math.max(x2 - x1, 1), at.bottom - at.top);
  at.pen.globalAlpha = 1;
}

function axes(at, any) {
  at.pen.textBaseline = "middle";
  for (const t of ticks(0, at.height, 4, 0)) {
    if (t > 0) line(at, at.left, at.y(t), at.right, at.y(t), "faint", 1);
    say(at, String(t), at.left - 8, at.y(t), "muted", "right");
  }
  at.pen.textBaseline = "alphabetic";
  for (const t of any ? ticks(at.from, at.to, at.width / 95, 1) : []) {
    const text = t.toLocaleString("en-GB");
    const x = Math.min(at.x(t), at.width - at.pen.measureText(text).width / 2);
    say(at, text, x, at.bottom + 18, "muted", "center");
  }
  line(at, at.left, at.bottom, at.right, at.bottom, "muted", 1);
  say(at, "step", at.right, at.bottom + 35, "muted", "right");
}

function curve(at, { steps, ratios }, points) {
  if (points.length === 0) return;
  const { pen } = at;
  pen.strokeStyle = pen.fillStyle = at.colour("exact");
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  pen.setLineDash([]);
  pen.beginPath();
  for (const i of points) pen.lineTo(at.x(steps[i]), at.y(ratios[i]));
  pen.stroke();
  const last = points[points.length - 1];
  pen.beginPath();
  pen.arc(at.x(steps[last]), at.y(ratios[last]), 3.5, 0, 7);
  pen.fill();
}

function strokes(at, { steps, kinds, invalid }) {
  let count = 0;
  kinds.forEach((kind, i) => {
    if (kind !== "invalid update") return;
    count += 1;
    if (count < 2000) line(at, at.x(steps[i]), at.top, at.x(steps[i]), at.top + 12, "limit", 2);
  });
  return Math.max(count, invalid);
}

// The steps at which it may have begun, in brackets, where there are several.
function among({ onset_interval: steps }) {
  return steps && steps[0] !== steps[1] ? ` (${steps[0]} to ${steps[1]})` : "";
}

// Two lines across, and their names above the plot, the onset's over the alarm's.
function nameAlarm(at, alarm) {
  const raised = at.x(alarm.step), began = at.x(alarm.onset);
  line(at, began, at.top, began, at.bottom, "limit", 1.2, [2, 3]);
  line(at, raised, at.top, raised, at.bottom, "limit", 1.6);
  const name = (text, x, y) => {
    const half = at.pen.measureText(text).width / 2;
    say(at, text, Math.min(Math.max(x, at.left + half), at.right - half), y, "limit", "center");
  };
  name(`onset, step ${alarm.onset.toLocaleString("en-GB")}`, began, at.top - 22);
  name(`alarm, round ${alarm.round.toLocaleString("en-GB")}`, raised, at.top - 5);
}

// Draws, and returns what is to be said of the picture.
function draw(canvas, seen) {
  const began = performance.now(), at = layout(canvas, seen), { steps, kinds, alarm } = seen, notes = [];
  const warm = kinds.findLastIndex((kind) => kind === "warming up" || kind === "begun anew"), alarmed = kinds.lastIndexOf("alarm");
  if (warm >= 0) shade(at, at.left, at.x(steps[warm]), "faint", 0.45);
  if (alarm && alarmed >= 0) shade(at, at.x(alarm.onset), at.x(steps[alarmed]), "limit", 0.1);
  axes(at, steps.length > 0);
  if (warm >= 0) say(at, "warm-up", at.left + 6, at.bottom - 8, "muted", "left");
  line(at, at.left, at.y(1), at.right, at.y(1), "limit", 1.4, [6, 4]);
  if (!alarm) say(at, "threshold", at.right, at.y(1) - 6, "limit", "right");
  const points = thinned(steps, seen.ratios, at.x);
  curve(at, seen, points);
  const broken = strokes(at, seen);
  if (alarm) {
    nameAlarm(at, alarm);
    notes.push(`First alarm after round ${alarm.round}; the estimated first affected step is ${alarm.onset}${among(alarm)}. The last round before it is ${alarm.rollback}.`);
  }
  if (at.largest > at.height) notes.push(`The line is cut at ${at.height}; it reached ${at.largest}.`);
  if (broken) notes.push(`Short strokes at the top: invalid updates, ${broken} so far.`);
  Object.assign(canvas.dataset, { points: points.length, rounds: steps.length });
  canvas.dataset.ms = (performance.now() - began).toFixed(2);
  return notes.join(" ");
}
