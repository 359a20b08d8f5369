// Asks the watcher for its state once a second and has the page show it. Text is only ever set as text, never as markup.
const byId = (id) => document.getElementById(id);
const PERIOD = 1000; // milliseconds
const WAIT = 15000; // milliseconds that an answer may take
const shown = {}; // what each table holds now, so that it is built anew only when it changes

// A cell of a table as it came: numbers have few digits already.
function text(value) {
  return value === null ? "–" : String(value);
}

function heads(names) {
  const made = element("tr", null);
  made.append(...names.map((name) => element("th", name, { scope: "col" })));
  return made;
}

function number(value, digits = 4) {
  if (value === null) return "–";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e5 || size < 1e-3) ? value.toExponential(2) : value.toPrecision(digits);
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

function fill(id, names, rows) {
  const table = byId(id);
  table.hidden = rows.length === 0;
  table.tHead.replaceChildren(heads(names));
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

// The line that matters most. It is read aloud, and so is set only when it changes.
function setStatus(words, kind, prefix) {
  if (!changed("status", [words, kind])) return;
  byId("status").textContent = words.charAt(0).toUpperCase() + words.slice(1);
  byId("status").className = "status " + kind.replace(" ", "-");
  document.title = prefix + byId("title").textContent;
}

// What is being watched, before what was seen last: a page must never look quiet while nobody looks.
function showStatus(state, rings) {
  const { health, words, kind } = state;
  const prefix = rings ? "ALARM – " : "";
  if (health.state !== "not watching") return setStatus(words, rings ? "alarm" : kind, prefix);
  const since = new Date(1000 * health.since), today = since.toDateString() === new Date().toDateString();
  const when = today ? since.toLocaleTimeString("en-GB") : since.toLocaleString("en-GB");
  setStatus(`NOT WATCHING since ${when}: ${health.reason}`, "lost", rings ? "NOT WATCHING, ALARM – " : "NOT WATCHING – ");
}

function showRefused(refused) {
  if (changed("refused", refused)) {
    byId("refused").hidden = refused.count === 0;
    byId("refused-count").textContent = `${refused.count} refused so far; nothing of them was used. The last:`;
    byId("refusals").replaceChildren(...refused.last.slice().reverse().map((text) => element("li", text)));
  }
}

function showFacts(facts) {
  byId("facts").replaceChildren(...Object.entries(facts).filter(([, value]) => value !== null).map(([name, value]) => {
    const pair = element("div", null);
    pair.append(element("dt", name), element("dd", String(value)));
    return pair;
  }));
}

// The page itself says what it lacks (lacking), keeps what comes (remember, true where a picture changes) and shows it.
let answered = null;
async function ask() {
  try {
    const reply = await fetch(`/state?${lacking()}`, { cache: "no-store", signal: AbortSignal.timeout(WAIT) });
    if (!reply.ok) throw Object.assign(new Error((await reply.json()).error), { refused: true });
    const state = await reply.json();
    if (remember(state)) redraw();
    show(state);
    answered = new Date();
    byId("link").className = "";
    byId("link").textContent = `Up to date at ${answered.toLocaleTimeString("en-GB")}; asks again every second.`;
  } catch (error) {
    byId("link").className = "lost";
    const since = answered ? ` since ${answered.toLocaleTimeString("en-GB")}` : "";
    const why = error.refused ? "refuses this page" : "has ended, or cannot be reached";
    byId("link").textContent = `The watcher has not answered${since}: it ${why}. (${error.message})`;
    const before = seen.words ? ` Before: ${seen.words}` : "";
    setStatus(`NOT WATCHING${since}: the watcher ${why}.${before}`, "lost",
      seen.alarm === null ? "NOT WATCHING – " : "NOT WATCHING, ALARM – ");
  }
  setTimeout(ask, PERIOD);
}

function begin() {
  new ResizeObserver(redraw).observe(byId("frame"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  redraw();
  ask();
}
