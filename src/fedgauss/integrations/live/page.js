// Asks the watcher for its state once a second and shows it. Text is only ever set as text, never as markup.
const byId = (id) => document.getElementById(id);
const PERIOD = 1000; // milliseconds
const WAIT = 15000; // milliseconds that an answer may take
const MOST = 50000; // rounds that are kept
const token = new URLSearchParams(location.search.replaceAll("+", "%2B")).get("token"); // a plus is no space here
const seen = { run: null, next: 0, rounds: [], steps: [], ratios: [], kinds: [], alarm: null, words: "" };
const shown = {}; // what each table holds now, so that it is built anew only when it changes

function number(value, digits = 4) {
  if (value === null) return "–";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e5 || size < 1e-3) ? value.toExponential(2) : value.toPrecision(digits);
}

// The average with the ends of its interval, to as many decimals as the interval is wide.
function fitting([average, low, high]) {
  const width = high - low;
  const decimals = Math.ceil(1.3 - Math.log10(width));
  return [average, low, high].map((x) =>
    width > 0 && decimals <= 12 && Math.abs(x) < 1e9 ? x.toFixed(Math.max(decimals, 0)) : number(x, 6));
}

function chance(value) {
  return value !== null && value < 1e-10 ? "< 1e-10" : number(value, 2);
}

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function changed(name, value) {
  const text = JSON.stringify(value);
  if (shown[name] === text) return false;
  shown[name] = text;
  return true;
}

function fill(id, rows) {
  const table = byId(id);
  table.hidden = rows.length === 0;
  table.tBodies[0].replaceChildren(...rows);
}

function row(cells, kind) {
  const made = element("tr", null, kind ? { class: kind } : {});
  cells.forEach((cell, i) => {
    const box = i === 0 ? element("th", cell, { scope: "row" }) : element("td", typeof cell === "string" ? cell : null);
    if (typeof cell !== "string") box.append(cell);
    made.append(box);
  });
  return made;
}

function remember(state) {
  if (state.run !== seen.run || state.first > seen.next) {
    Object.assign(seen, { run: state.run, rounds: [], steps: [], ratios: [], kinds: [] });
  }
  for (const [round, step, ratio, kind] of state.rows) {
    seen.rounds.push(round);
    seen.steps.push(step);
    seen.ratios.push(ratio);
    seen.kinds.push(kind);
  }
  const extra = seen.steps.length - MOST;
  if (extra > 0) for (const name of ["rounds", "steps", "ratios", "kinds"]) seen[name].splice(0, extra);
  const fresh = seen.next !== state.next || changed("alarm", state.alarm);
  Object.assign(seen, { next: state.next, alarm: state.alarm, words: state.words });
  return fresh;
}

// The line that matters most. It is read aloud, and so is set only when it changes.
function setStatus(words, kind, prefix) {
  if (!changed("status", [words, kind])) return;
  byId("status").textContent = words.charAt(0).toUpperCase() + words.slice(1);
  byId("status").className = "status " + kind.replace(" ", "-");
  document.title = prefix + byId("title").textContent;
}

function show(state) {
  const rings = state.alarm !== null || state.kind === "invalid update";
  setStatus(state.words, state.alarm !== null ? "alarm" : state.kind, rings ? "ALARM – " : "");
  const people = state.participation;
  if (changed("facts", [state.round, state.step, state.alpha, state.next])) {
    const facts = { round: state.round, step: state.step, "chance of any false alarm": state.alpha };
    byId("facts").replaceChildren(...Object.entries(facts).map(([name, value]) => {
      const pair = element("div", null);
      pair.append(element("dt", name), element("dd", String(value)));
      return pair;
    }));
  }
  if (changed("channels", [state.channels, state.alarm])) {
    fill("channels", state.channels.map(([name, statistic, threshold]) =>
      row([name, number(statistic, 3), number(threshold, 3), number(statistic / threshold, 3)],
        state.alarm !== null && state.alarm.channel === name ? "malicious" : "")));
    byId("channels-note").textContent = state.channels.length === 0 ? "No round judged yet."
      : state.alarm === null ? "After the last round. A channel alarms when its statistic exceeds its threshold."
      : `The alarm was raised by the channel ${state.alarm.channel}: the ${state.alarm.reason}.`;
  }
  if (changed("suspects", state.suspects)) {
    fill("suspects", state.suspects.rows.map(([name, statistic, p, q, malicious]) =>
      row([name, number(statistic, 3), chance(p), chance(q), malicious ? "malicious" : "–"],
        malicious ? "malicious" : "")));
    const found = state.suspects.rows.filter((cells) => cells[4]).length;
    byId("suspects-count").hidden = state.suspects.rows.length === 0;
    byId("suspects-count").textContent = `${found} of ${state.suspects.rows.length} clients called malicious.`;
    byId("suspects-note").textContent = state.suspects.note;
  }
  if (changed("intervals", state.intervals)) {
    fill("intervals", state.intervals.rows.map((numbers, i) => row([String(i), ...fitting(numbers)])));
    byId("intervals-note").textContent = state.intervals.note;
  }
  if (changed("participation", people)) {
    fill("participation", people.clients.map(([name, count]) => {
      const share = element("span", null, { class: "bar", title: `${count} of ${people.rounds} rounds` });
      const length = element("span", null);
      length.style.width = `${100 * count / people.rounds}%`;
      share.append(length);
      return row([name, String(count), share]);
    }));
    const absent = people.missing.length ? ` Missing: ${people.missing.join(", ")}.` : "";
    byId("took-part").textContent = people.rounds === 0 ? "No round yet."
      : people.of === null ? `${people.rounds} rounds; the log does not name clients.`
      : `Last round: ${people.last} of ${people.of} clients.${absent}`;
  }
  byId("note").hidden = state.note === "";
  byId("note").textContent = state.note;
  if (changed("refused", state.refused)) {
    byId("refused").hidden = state.refused.count === 0;
    byId("refused-count").textContent = `${state.refused.count} refused so far; nothing of them was used. The last:`;
    byId("refusals").replaceChildren(...state.refused.last.slice().reverse().map((text) => element("li", text)));
  }
}

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    const notes = draw(byId("chart"), seen);
    byId("marks").textContent = notes;
    byId("chart").setAttribute("aria-label", `Statistic over threshold by step. ${seen.words} ${notes}`);
  });
}

let answered = null;
async function ask() {
  try {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const reply = await fetch(`/state?run=${seen.run}&since=${seen.next}`, { headers, cache: "no-store", signal: AbortSignal.timeout(WAIT) });
    if (!reply.ok) throw new Error((await reply.json()).error);
    const state = await reply.json();
    if (remember(state)) redraw();
    show(state);
    answered = new Date();
    byId("link").className = "";
    byId("link").textContent = `Up to date at ${answered.toLocaleTimeString("en-GB")}; asks again every second.`;
  } catch (error) {
    byId("link").className = "lost";
    const since = answered ? ` since ${answered.toLocaleTimeString("en-GB")}` : "";
    byId("link").textContent =
      `The watcher has not answered${since}: it has ended, or cannot be reached. (${error.message})`;
    const before = seen.words ? ` Before: ${seen.words}` : "";
    setStatus(`NOT WATCHING${since}: the watcher has ended, or cannot be reached.${before}`, "lost",
      seen.alarm === null ? "NOT WATCHING – " : "NOT WATCHING, ALARM – ");
  }
  setTimeout(ask, PERIOD);
}

new ResizeObserver(redraw).observe(byId("frame"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
redraw();
ask();
