// The page of a run: its picture, the parts of its last verdict whatever they are called, and its clients.
const LISTED = 200; // rows of the table of clients
const seen = {
  run: null, next: 0, numbersNext: 0, rounds: [], steps: [], ratios: [], kinds: [], cells: { rounds: [], who: [], tenths: [] },
  each: 1, numbers: {}, clients: [], alarms: [], exclusions: [], alarm: null, words: "", invalid: 0, byClient: false,
};

const lacking = () => `run=${seen.run}&since=${seen.next}&numbers=${seen.numbersNext}`;
const tenth = (value) => (value === null ? "–" : (value / 10).toFixed(1));

function rememberRows(rows) {
  for (const [round, step, ratio, kind, who = [], tenths = []] of rows) {
    seen.rounds.push(round);
    seen.steps.push(step);
    seen.ratios.push(ratio);
    seen.kinds.push(kind);
    if (kind === "invalid update") continue; // it may have any number
    seen.cells.rounds.push(round);
    seen.cells.who.push(who);
    seen.cells.tenths.push(tenths);
  }
}

function rememberNumbers(rows) {
  for (const [round, name, value] of rows) {
    const of = seen.numbers[name] ??= { rounds: [], values: [] };
    of.rounds.push(round);
    of.values.push(value);
  }
}

function remember(state) {
  const another = state.run !== seen.run; // or the same one, thinned
  if (another || state.first > seen.next) {
    Object.assign(seen, { rounds: [], steps: [], ratios: [], kinds: [], cells: { rounds: [], who: [], tenths: [] } });
  }
  if (another || state.numbers.first > seen.numbersNext) seen.numbers = {};
  rememberRows(state.rows);
  rememberNumbers(state.numbers.rows);
  const fresh = another || seen.next !== state.next || seen.numbersNext !== state.numbers.next
    || changed("marks", [state.alarm, state.alarms, state.exclusions]);
  const { run, next, each, alarm, words, clients, alarms, exclusions, invalid } = state;
  Object.assign(seen, {
    run, next, each, alarm, words, clients, alarms, exclusions, invalid,
    numbersNext: state.numbers.next, byClient: state.by_client,
  });
  return fresh;
}

// What became of each client that was named or left out, by its number.
function standings({ alarms, exclusions }) {
  const found = new Map();
  for (const { round, clients } of alarms) for (const k of clients) found.set(k, `named in ${round}`);
  for (const { round, clients } of exclusions) for (const k of clients) found.set(k, `out from ${round + 1} on`);
  return found;
}

function share(count, rounds) {
  const bar = element("span", null, { class: "bar", title: `${count} of ${rounds} rounds` }), length = element("span", null);
  length.style.width = `${100 * count / rounds}%`;
  bar.append(length);
  return bar;
}

function showClients(state) {
  if (!changed("clients", [state.clients, state.took_part, state.alarms, state.exclusions])) return;
  const found = standings(state), order = state.clients.map((_, k) => k), judged = state.by_client;
  if (judged) order.sort((a, b) => found.has(b) - found.has(a) || (state.clients[b][3] ?? -1) - (state.clients[a][3] ?? -1));
  fill("clients", ["client", ...(judged ? ["standing", "last", "largest (round)"] : []), "rounds", ...(judged ? [] : ["share"])],
    order.slice(0, LISTED).map((k) => {
      const [name, rounds, last, largest, round] = state.clients[k];
      const own = judged ? [found.get(k) ?? "–", tenth(last), largest === null ? "–" : `${tenth(largest)} (${round})`] : [];
      return row([name, ...own, String(rounds), ...(judged ? [] : [share(rounds, state.took_part.rounds)])], found.has(k) ? "malicious" : "");
    }));
  byId("took-part").textContent = state.took_part.words;
  const more = order.length > LISTED ? ` ${LISTED} of ${order.length} are listed.` : "";
  byId("clients-note").textContent = !judged || order.length === 0 ? more
    : `Those named or left out first, then those with the largest surprise.${more} Last: the surprise when judged last.`;
}

// A part is a table with a head, or a list without one, and a note; its cells are text, whatever they say.
function showParts(parts) {
  const names = Object.keys(parts), ids = names.map((name) => `part-${name.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`);
  document.querySelectorAll("section.part").forEach((there) => { if (!ids.includes(there.id)) there.remove(); });
  names.forEach((name, i) => {
    if (!changed(ids[i], parts[name]) && byId(ids[i])) return;
    const { head = [], rows, note } = parts[name], made = element("section", null, { class: "part", id: ids[i] });
    made.append(element("h2", name));
    if (rows.length && head.length) {
      const table = element("table", null, { "aria-label": name }), box = element("div", null, { class: "wide" });
      table.append(element("thead", null), element("tbody", null));
      table.tHead.append(heads(head));
      table.tBodies[0].append(...rows.map((cells) => row(cells.map(text), cells.includes("malicious") ? "malicious" : "")));
      box.append(table);
      made.append(box);
    } else if (rows.length) {
      const list = element("ul", null);
      list.append(...rows.map((cells) => element("li", cells.map(text).join(": "))));
      made.append(list);
    }
    if (note) made.append(element("p", note, { class: "note" }));
    byId(ids[i])?.remove();
    byId("sections").insertBefore(made, byId("sections").children[i]);
  });
}

function show(state) {
  showStatus(state, state.alarm !== null || state.kind === "invalid update");
  const { round, step, alpha, facts } = state;
  if (changed("facts", [round, step, alpha, facts])) showFacts({ round, step, ...facts, "chance of any false alarm": alpha });
  document.querySelectorAll("[data-of]").forEach((e) => { e.hidden = (e.dataset.of === "clients") !== state.by_client; });
  byId("at").hidden = !state.by_client;
  showParts(state.parts);
  showClients(state);
  byId("note").hidden = state.note === "";
  byId("note").textContent = state.note;
  showRefused(state.refused);
}

let waiting = false, drawn = null;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (seen.byClient) byId("frame").style.height = `${heatHeight(seen)}px`;
    const picture = seen.byClient ? "Surprise of every client by round; the table below has the largest." : "Statistic over threshold by step.";
    const notes = seen.byClient ? describeHeat(drawn = drawHeat(byId("chart"), seen), seen) : draw(byId("chart"), seen);
    byId("marks").textContent = notes;
    byId("chart").setAttribute("aria-label", `${picture} ${seen.words} ${notes}`);
  });
}

// The cell under the pointer, in words.
function point(event) {
  const box = byId("chart").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  if (drawn === null || x < drawn.left || x >= drawn.right || y < drawn.top || y >= drawn.bottom) return;
  byId("at").textContent = cellWords(drawn, x, y, seen);
}

byId("chart").addEventListener("pointermove", point);
byId("chart").addEventListener("pointerdown", point);
begin();
