// A monitor's page: statistic over threshold, channels, suspects, intervals and participation.
const seen = { run: null, next: 0, rounds: [], steps: [], ratios: [], kinds: [], alarm: null, words: "", invalid: 0 };

const lacking = () => `run=${seen.run}&since=${seen.next}`;

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

function remember(state) {
  const another = state.run !== seen.run; // or the same one, thinned
  if (another || state.first > seen.next) {
    Object.assign(seen, { run: state.run, rounds: [], steps: [], ratios: [], kinds: [] });
  }
  for (const [round, step, ratio, kind] of state.rows) {
    seen.rounds.push(round);
    seen.steps.push(step);
    seen.ratios.push(ratio);
    seen.kinds.push(kind);
  }
  const fresh = another || seen.next !== state.next || changed("alarm", state.alarm);
  Object.assign(seen, { next: state.next, alarm: state.alarm, words: state.words, invalid: state.invalid });
  return fresh;
}

function show(state) {
  showStatus(state, state.alarm !== null || state.kind === "invalid update");
  const people = state.participation;
  if (changed("facts", [state.round, state.step, state.alpha, state.next])) {
    showFacts({ round: state.round, step: state.step, "chance of any false alarm": state.alpha });
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
  showRefused(state.refused);
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

begin();
