// Surprises of clients by rounds as a heat map, with accuracy and loss below it. Everything drawn comes from `seen`, see
// page.js.
const FULL = 60; // tenths of surprise that have the full colour
const PANEL = 96; // height of accuracy or loss
const MOST_ROWS = 200;

const rowHeight = (count) => (count <= 12 ? 24 : count <= 30 ? 18 : 14);
const panels = (seen) => Object.keys(seen.numbers).filter((name) => seen.numbers[name].rounds.length > 0);

// Who has a row: everybody, or those named and left out and then the most surprising; in the order in which they joined.
function rowsShown({ clients, alarms, exclusions }) {
  const all = clients.map((_, k) => k);
  if (all.length <= MOST_ROWS) return all;
  const marked = new Set([...alarms, ...exclusions].flatMap((one) => one.clients));
  const weight = (k) => (marked.has(k) ? 1e6 : 0) + (clients[k][3] ?? -1);
  return all.sort((a, b) => weight(b) - weight(a)).slice(0, MOST_ROWS).sort((a, b) => a - b);
}

function heatHeight(seen) {
  const rows = Math.max(rowsShown(seen).length, 4);
  return 30 + rows * rowHeight(rows) + 42 + panels(seen).length * PANEL;
}

// Where things stand: bins are columns, one a round, or several rounds where there are more than pixels.
function heatLayout(canvas, seen) {
  const at = penOn(canvas), rows = rowsShown(seen), each = rowHeight(Math.max(rows.length, 4));
  at.font = (size) => { at.pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`; };
  at.font(Math.min(14, each));
  const widest = rows.reduce((most, k) => Math.max(most, at.pen.measureText(seen.clients[k][0].slice(0, 60)).width), 24);
  const left = Math.round(Math.min(widest + 12, 0.28 * at.width)), right = Math.round(at.width) - 10, top = 30;
  const { rounds } = seen.cells, from = rounds[0] ?? 1, to = Math.max(rounds[rounds.length - 1] ?? 1, from), span = to - from + 1;
  const bins = Math.min(right - left, Math.ceil(span / seen.each)), wide = (right - left) / bins;
  const bin = (round) => Math.min(Math.max(Math.floor((round - from) * bins / span), 0), bins - 1);
  return Object.assign(at, {
    rows, each, left, right, top, bottom: top + rows.length * each, from, to, span, bins, wide, bin,
    x: (round) => left + bin(round) * wide,
    middle: (round) => left + (bin(round) + 0.5) * wide,
    y: (place) => top + place * each,
  });
}

// The largest surprise of each client in each bin, in tenths; -1 not judged, -2 absent.
function binned(at, seen) {
  const place = new Map(at.rows.map((k, i) => [k, i]));
  const cells = new Int16Array(at.rows.length * at.bins).fill(-2);
  seen.cells.rounds.forEach((round, j) => {
    const column = at.bin(round);
    seen.cells.who[j].forEach((k, i) => {
      if (!place.has(k)) return;
      const cell = place.get(k) * at.bins + column;
      cells[cell] = Math.max(cells[cell], seen.cells.tenths[j][i] ?? -1);
    });
  });
  return cells;
}

function rgb(colour) {
  return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
}

const mixed = (one, other, share) => one.map((x, i) => x + (other[i] - x) * share);

// One small picture, a pixel a cell, which is drawn as large as the plot.
function paintCells(at, cells) {
  if (cells.length === 0) return;
  const [paper, faint, limit] = ["paper", "faint", "limit"].map((role) => rgb(at.colour(role)));
  const present = mixed(paper, faint, 0.75), unjudged = mixed(paper, faint, 0.4);
  const small = document.createElement("canvas");
  small.width = at.bins;
  small.height = at.rows.length;
  const image = new ImageData(at.bins, at.rows.length);
  cells.forEach((tenths, i) => {
    if (tenths === -2) return;
    const colour = tenths < 0 ? unjudged : mixed(present, limit, Math.min(tenths / FULL, 1) ** 1.4);
    image.data.set([...colour.map(Math.round), 255], 4 * i);
  });
  small.getContext("2d").putImageData(image, 0, 0);
  at.pen.imageSmoothingEnabled = false;
  at.pen.drawImage(small, at.left, at.top, at.right - at.left, at.bottom - at.top);
  for (let i = 0; i <= at.rows.length; i++) line(at, at.left, at.y(i), at.right, at.y(i), "paper", 1);
  if (at.wide >= 5) for (let i = 0; i <= at.bins; i++) line(at, at.left + i * at.wide, at.top, at.left + i * at.wide, at.bottom, "paper", 1);
}

function fitted(at, text, room) {
  if (at.pen.measureText(text).width <= room) return text;
  let end = Math.min(text.length, 60);
  while (end > 1 && at.pen.measureText(text.slice(0, end) + "…").width > room) end -= 1;
  return text.slice(0, end) + "…";
}

function nameRows(at, { clients, alarms }) {
  const named = new Set(alarms.flatMap((alarm) => alarm.clients));
  at.pen.textBaseline = "middle";
  at.font(Math.min(14, at.each - 1));
  at.rows.forEach((k, i) => {
    say(at, fitted(at, clients[k][0], at.left - 12), at.left - 8, at.y(i + 0.5), named.has(k) ? "limit" : "ink", "right");
  });
  at.font(14);
  at.pen.textBaseline = "alphabetic";
}

function roundAxis(at, y, name) {
  line(at, at.left, y, at.right, y, "muted", 1);
  let free = -Infinity;
  for (const t of ticks(at.from, at.to, (at.right - at.left) / 80, 1)) {
    const text = t.toLocaleString("en-GB"), half = at.pen.measureText(text).width / 2;
    const x = Math.min(at.middle(t), at.width - half);
    if (x - half < free) continue;
    say(at, text, x, y + 17, "muted", "center");
    free = x + half + 8;
  }
  if (name) say(at, name, at.left - 8, y + 17, "muted", "right");
}

// Outlines of those named, strokes through those left out, and above the plot alarms, and bars over undone rounds.
function mark(at, { alarms, exclusions }) {
  const place = new Map(at.rows.map((k, i) => [k, i])), { pen } = at;
  for (const { round, clients } of exclusions) {
    if (round >= at.to) continue;
    for (const k of clients.filter((k) => place.has(k))) {
      const y = at.y(place.get(k) + 0.5), x = at.x(Math.max(round + 1, at.from));
      line(at, x + 2, y, at.right, y, "muted", 1.5);
      line(at, x + 2, y - 4, x + 2, y + 4, "muted", 1.5);
    }
  }
  for (const { round, back_to } of exclusions) {
    if (back_to < round && round >= at.from) line(at, at.x(Math.max(back_to + 1, at.from)), at.top - 4, at.x(round) + at.wide, at.top - 4, "muted", 3);
  }
  let free = -Infinity;
  for (const { round, onset, clients } of alarms) {
    if (round < at.from) continue;
    pen.strokeStyle = at.colour("ink");
    pen.lineWidth = 1.8;
    pen.setLineDash([]);
    const x = at.x(Math.max(onset, at.from)), width = Math.max(at.x(round) + at.wide - x, 5);
    for (const k of clients.filter((k) => place.has(k))) pen.strokeRect(x, at.y(place.get(k)) + 0.5, width, at.each - 1);
    const text = `alarm, round ${round.toLocaleString("en-GB")}`, half = pen.measureText(text).width / 2;
    const middle = Math.min(Math.max(at.middle(round), at.left + half), at.right - half);
    if (middle - half < free) continue;
    say(at, text, middle, at.top - 11, "limit", "center");
    free = middle + half + 10;
  }
}

function panel(at, top, name, { rounds, values }) {
  const bottom = top + PANEL - 34, first = rounds.findIndex((round) => round >= at.from);
  if (first < 0) return;
  const known = values.slice(first), when = rounds.slice(first);
  const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
  const room = Math.max(0.06 * (high - low), 1e-3 * Math.abs(high), 1e-9);
  const y = (value) => bottom - (bottom - top) * (value - low + room) / (high - low + 2 * room);
  at.pen.textBaseline = "middle";
  for (const t of ticks(low - room, high + room, 3, 0)) {
    line(at, at.left, y(t), at.right, y(t), "faint", 1);
    say(at, number(t, 3), at.left - 8, y(t), "muted", "right");
  }
  at.pen.textBaseline = "alphabetic";
  const points = thinned(when, known, at.middle), last = points[points.length - 1], { pen } = at;
  pen.strokeStyle = pen.fillStyle = at.colour("exact");
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  pen.setLineDash([]);
  pen.beginPath();
  for (const i of points) pen.lineTo(at.middle(when[i]), y(known[i]));
  pen.stroke();
  pen.beginPath();
  pen.arc(at.middle(when[last]), y(known[last]), 3, 0, 7);
  pen.fill();
  say(at, name, at.left + 6, top - 4, "ink", "left");
  roundAxis(at, bottom, "");
}

// Draws, and returns where things stand, with the cells, for whoever points at one.
function drawHeat(canvas, seen) {
  const began = performance.now(), at = heatLayout(canvas, seen);
  at.cells = binned(at, seen);
  paintCells(at, at.cells);
  nameRows(at, seen);
  if (seen.cells.rounds.length > 0) roundAxis(at, at.bottom, "round");
  mark(at, seen);
  panels(seen).forEach((name, i) => panel(at, at.bottom + 42 + i * PANEL, name, seen.numbers[name]));
  Object.assign(canvas.dataset, { rounds: seen.cells.rounds.length, clients: at.rows.length, bins: at.bins });
  canvas.dataset.ms = (performance.now() - began).toFixed(2);
  return at;
}

// What is to be said of the picture.
function describeHeat(at, seen) {
  const notes = [];
  if (at.rows.length < seen.clients.length) notes.push(`${at.rows.length} of ${seen.clients.length} clients are drawn: those named or left out, and the most surprising.`);
  if (at.bins < at.span) notes.push(`A column is about ${Math.ceil(at.span / at.bins)} rounds, with the largest surprise in them.`);
  if (seen.exclusions.some(({ round, back_to }) => back_to < round)) notes.push("Bars above: rounds that were undone.");
  return notes.join(" ");
}

// A cell in words.
function cellWords(at, x, y, seen) {
  const column = Math.floor((x - at.left) / at.wide), place = Math.floor((y - at.top) / at.each);
  const first = at.from + Math.ceil(column * at.span / at.bins);
  const last = at.from + Math.ceil((column + 1) * at.span / at.bins) - 1;
  const tenths = at.cells[place * at.bins + column];
  const found = tenths === -2 ? "absent" : tenths < 0 ? "not judged" : `surprise ${tenth(tenths)}${last > first ? " at most" : ""}`;
  return `${seen.clients[at.rows[place]][0]}, round ${first}${last > first ? ` to ${last}` : ""}: ${found}.`;
}
