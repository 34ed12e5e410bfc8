// Elements, numbers, bars and the tooltip. Text enters the page as text nodes alone: `append` never
// parses markup, and nothing else here makes elements.

performance.mark('wcprof-begin');
const byId = id => document.getElementById(id);

// el('td', {class: 'num', onclick: f}, 'text', child, ...): an element; absent children are skipped.
function el(tag, props, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? '' : String(value));
  }
  made.append(...children.flat().filter(child => child !== undefined && child !== null && child !== false));
  return made;
}

const digits = value => value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0);

// Microseconds as people read them; of snapshots, in which a thread weighs a second, threads in each.
function time(us) {
  if (DATA.headline.n_snapshots) return `${+atATime(us)} thr`;
  if (us < 1000) return `${Math.round(us)} us`;
  if (us < 999500) return `${digits(us / 1e3)} ms`;
  return `${digits(us / 1e6)} s`;
}

const share = (part, whole) => whole > 0 ? 100 * part / whole : 0;
// Microseconds of thread time as threads on average, on average over the recording.
const atATime = us => (us / Math.max(1, DATA.headline.duration_us)).toFixed(2);
const percent = (part, whole, n = 1) => `${share(part, whole).toFixed(n)} %`;
// (`toLocaleString` takes a tenth of a second when it is first asked.)
const grouped = n => String(n).replace(/\B(?=(\d{3})+$)/g, '\u202f');
const count = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? '' : 's'}`;
const sum = list => list.reduce((a, b) => a + b, 0);

// States in the order in which they are drawn: idle time, and what filters leave out, at the end.
const ORDER = [0, 1, 2, 3, 4, 5, 11, 6, 8, 9, 10, 13, 7, 12, 14];
// Waits for work, and what may be some.
const isIdle = state => state === 7 || state === 12;
const idleOf = weights => sum(weights.filter((_, state) => isIdle(state)));
const color = state => `var(--s${state})`;
const tint = state => `var(--s${state}-t)`;

// A bar of weights by state; `whole` leaves room for what is not in them.
function mixBar(weights, whole = sum(weights)) {
  const bar = el('div', { class: 'mix', 'aria-hidden': 'true' });
  for (const state of ORDER) {
    if (!(weights[state] > 0)) continue;
    const part = el('i');
    part.style.width = `${share(weights[state], whole)}%`;
    part.style.background = color(state);
    bar.append(part);
  }
  return bar;
}

// Lines of a tooltip: each state with its share and time.
function mixTable(weights, whole = sum(weights)) {
  const rows = ORDER.filter(s => weights[s] > 0).sort((a, b) => weights[b] - weights[a]).map(state => {
    const dot = el('i');
    dot.style.background = color(state);
    return el('tr', {}, el('td', {}, dot, DATA.states[state]),
      el('td', { class: 'num' }, percent(weights[state], whole, 2)),
      el('td', { class: 'num' }, time(weights[state])));
  });
  return el('table', {}, el('tbody', {}, rows));
}

// `idle 90.0 %, on-cpu 8.1 %`: the same in a line.
function mixText(weights, whole = sum(weights)) {
  const states = ORDER.filter(s => weights[s] > 0).sort((a, b) => weights[b] - weights[a]);
  return states.map(s => `${DATA.states[s]} ${percent(weights[s], whole)}`).join(', ');
}

const tip = {
  show(x, y, ...children) {
    const box = byId('tip');
    box.replaceChildren(...children.flat().filter(child => child !== false && child !== null));
    box.style.display = 'block';
    const { width, height } = box.getBoundingClientRect();
    const left = x + 14 + width > innerWidth ? Math.max(4, x - width - 10) : x + 14;
    const top = y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18;
    box.style.left = `${left}px`;
    box.style.top = `${top}px`;
  },
  hide() { byId('tip').style.display = 'none'; },
};

// Keys that belong to a control that has the focus.
const isTyping = event => /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)
  || event.ctrlKey || event.metaKey || event.altKey;
