// The page of a run whose clients are watched: surprises by client and round, who was named and left out, accuracy.
const LISTED = 200; // rows of the table
const seen = {
  run: null, next: 0, numbersNext: 0, rounds: [], who: [], tenths: [], each: 1, numbers: {}, clients: [], alarms: [],
  exclusions: [], alarm: null, words: "",
};

const lacking = () => `run=${seen.run}&since=${seen.next}&numbers=${seen.numbersNext}`;
const tenth = (value) => (value === null ? "–" : (value / 10).toFixed(1));

function rememberCells(rows) {
  for (const [round, , who, tenths] of rows) {
    seen.rounds.push(round);
    seen.who.push(who);
    seen.tenths.push(tenths);
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
  const another = state.run !== seen.run;
  if (another || state.first > seen.next) Object.assign(seen, { rounds: [], who: [], tenths: [] });
  if (another || state.numbers.first > seen.numbersNext) seen.numbers = {};
  rememberCells(state.rows);
  rememberNumbers(state.numbers.rows);
  const fresh = another || seen.next !== state.next || seen.numbersNext !== state.numbers.next
    || changed("marks", [state.alarms, state.exclusions]);
  const { run, next, each, alarm, words, clients, alarms, exclusions } = state;
  Object.assign(seen, { run, next, each, numbersNext: state.numbers.next, alarm, words, clients, alarms, exclusions });
  return fresh;
}

// What became of each client that was named or left out, by its number.
function standings({ alarms, exclusions }) {
  const found = new Map();
  for (const { round, clients } of alarms) for (const k of clients) found.set(k, `named in ${round}`);
  for (const { round, clients } of exclusions) for (const k of clients) found.set(k, `out from ${round + 1} on`);
  return found;
}

function showClients(state) {
  if (!changed("clients", [state.clients, state.alarms, state.exclusions])) return;
  const found = standings(state), order = state.clients.map((_, k) => k);
  order.sort((a, b) => found.has(b) - found.has(a) || (state.clients[b][3] ?? -1) - (state.clients[a][3] ?? -1));
  fill("clients", order.slice(0, LISTED).map((k) => {
    const [name, rounds, last, largest, round] = state.clients[k];
    return row([name, found.get(k) ?? "–", tenth(last), largest === null ? "–" : `${tenth(largest)} (${round})`, String(rounds)],
      found.has(k) ? "malicious" : "");
  }));
  const more = order.length > LISTED ? ` ${LISTED} of ${order.length} are listed.` : "";
  byId("clients-note").textContent = order.length === 0 ? "No round yet."
    : `Those named or left out first, then those with the largest surprise.${more} Last: the surprise when judged last.`;
}

function show(state) {
  showStatus(state, state.alarm !== null || state.kind === "invalid update");
  if (changed("facts", [state.round, state.alpha, state.statistic, state.threshold, state.watched, state.clients.length])) {
    const judged = state.statistic === null ? {} : { surprise: state.statistic, threshold: state.threshold, "clients judged": `${state.watched} of ${state.clients.length}` };
    showFacts({ round: state.round, ...judged, "chance of any false alarm": state.alpha });
  }
  showClients(state);
  if (changed("events", [state.alarms, state.exclusions])) {
    const events = [...state.exclusions, ...state.alarms].sort((a, b) => b.round - a.round);
    byId("events").replaceChildren(...events.map(({ words }) => element("li", words)));
    byId("events-note").hidden = events.length > 0;
  }
  showRefused(state.refused);
}

let waiting = false, drawn = null;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    byId("frame").style.height = `${heatHeight(seen)}px`;
    drawn = drawHeat(byId("chart"), seen);
    const notes = [];
    if (drawn.rows.length < seen.clients.length) notes.push(`${drawn.rows.length} of ${seen.clients.length} clients are drawn: those named or left out, and the most surprising.`);
    if (drawn.bins < drawn.span) notes.push(`A column is about ${Math.ceil(drawn.span / drawn.bins)} rounds, with the largest surprise in them.`);
    if (seen.exclusions.some(({ round, back_to }) => back_to < round)) notes.push("Bars above: rounds that were undone.");
    byId("marks").textContent = notes.join(" ");
    byId("chart").setAttribute("aria-label", `Surprise of every client by round; the table below has the largest. ${seen.words}`);
  });
}

// The cell under the pointer, in words.
function point(event) {
  const box = byId("chart").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  if (drawn === null || x < drawn.left || x >= drawn.right || y < drawn.top || y >= drawn.bottom) return;
  const column = Math.floor((x - drawn.left) / drawn.wide), place = Math.floor((y - drawn.top) / drawn.each);
  const first = drawn.from + Math.ceil(column * drawn.span / drawn.bins);
  const last = drawn.from + Math.ceil((column + 1) * drawn.span / drawn.bins) - 1;
  const tenths = drawn.cells[place * drawn.bins + column];
  const found = tenths === -2 ? "absent" : tenths < 0 ? "not judged" : `surprise ${tenth(tenths)}${last > first ? " at most" : ""}`;
  byId("at").textContent = `${seen.clients[drawn.rows[place]][0]}, round ${first}${last > first ? ` to ${last}` : ""}: ${found}.`;
}

byId("chart").addEventListener("pointermove", point);
byId("chart").addEventListener("pointerdown", point);
begin();
