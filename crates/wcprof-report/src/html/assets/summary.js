// What was recorded, where the time went, what is missing, and how names fared.

function fact(name, value, props) {
  return el('div', props, el('dt', {}, name), el('dd', { class: 'plain' }, value));
}

// The states with their colors; a click shows the time in one alone.
function legend() {
  const h = DATA.headline;
  const box = el('div', { class: 'legend', id: 'legend' }, el('span', { class: 'dim' }, 'threads, on average:'));
  for (const state of ORDER.filter(s => h.states_us[s] > 0)) {
    const dot = el('i');
    dot.style.background = color(state);
    // Hidden time is in no graph.
    const isHidden = isIdle(state) && !DATA.view.idle;
    box.append(el('button', { 'data-state': state, 'aria-pressed': 'false', disabled: isHidden, title: isHidden ? 'hidden; wcprof report --idle show' : 'show this state alone', onclick: () => App.toggleState(state) }, dot,
      `${DATA.states[state]} ${atATime(h.states_us[state])} `, el('span', { class: 'dim' }, time(h.states_us[state]))));
  }
  return box;
}

function summary() {
  const h = DATA.headline;
  const more = h.n_processes - Math.min(3, h.processes.length);
  const processes = h.processes.slice(0, 3).join(', ') + (more > 0 ? ` and ${more} more` : '');
  const started = h.started_unix_ms > 0 ? new Date(h.started_unix_ms).toISOString().replace('T', ' ').slice(0, 19) + ' UTC' : null;
  const whole = sum(h.states_us);
  const facts = el('dl', { class: 'facts' },
    fact('recorded', processes),
    fact('length', h.n_snapshots ? count(h.n_snapshots, 'snapshot') : h.extent_us > h.duration_us
      ? `${time(h.duration_us)} recorded over ${time(h.extent_us)}` : time(h.duration_us)),
    h.window_us && fact('window', `${time(h.window_us[0])} to ${time(h.window_us[1])}`),
    fact('threads', grouped(h.n_threads)),
    fact('samples', grouped(h.n_samples - h.n_timer_samples) + (h.rate_hz ? ` at ${h.rate_hz} Hz` : '') + (h.n_timer_samples ? ` and ${grouped(h.n_timer_samples)} of running threads` : '')),
    fact('by', `${h.recorded_by}, wcprof ${h.recorded_version}`),
    h.host && fact('host', h.host + (h.n_cpus ? `, ${count(h.n_cpus, 'CPU')}` : '') + (h.kernel ? `, Linux ${h.kernel}` : '')),
    started && fact('begun', started));
  const idle = idleOf(h.states_us), busy = whole - idle;
  const missing = [`${grouped(h.n_torn)} torn`, `${grouped(h.n_late)} late`, `${grouped(h.n_lost)} lost`,
    `${grouped(h.n_truncated)} truncated` + (h.truncated.length ? ` (${h.truncated.map(([why, n]) => `${why} ${grouped(n)}`).join(', ')})` : ''),
    `unresolved frames ${percent(h.n_unresolved, h.n_frames)}`].join(', ');
  const own = h.own_cpu_us > 0 && h.duration_us > 0
    ? `wcprof itself: ${time(h.own_cpu_us)} CPU (${percent(h.own_cpu_us, h.duration_us)} of one core)` : null;
  return el('section', { id: 'top', 'aria-label': 'headline' },
    DATA.first ? el('h2', {}, 'Recording') : el('h1', { class: 'plain' }, h.title), facts,
    mixBar(h.states_us), idle > 0 && busy > 0 && [mixBar(h.states_us.map((us, s) => isIdle(s) ? 0 : us)),
      el('p', { class: 'dim' }, `threads, on average, that are not idle: ${ORDER.filter(s => !isIdle(s) && h.states_us[s] > 0).map(s => `${DATA.states[s]} ${atATime(h.states_us[s])}`).join(', ')}`)],
    el('p', { class: 'dim' }, `missing: ${missing}. `, own),
    h.cut && el('p', { class: 'note warn' }, `the recording was cut short: ${h.cut}`),
    DATA.view.flags.length > 0 && el('p', { class: 'note' }, 'shown is a part of the trace: ', el('code', {}, DATA.view.flags.join(' '))),
    h.notes.map(note => el('p', { class: 'note plain' }, note)),
    cores());
}

// Cores by class of process.
function cores() {
  const c = DATA.cores;
  if (!c) return null;
  const MOST = 12;
  const perOp = us => us === null || us === undefined ? null : `${us.toFixed(1)} us`;
  const rows = c.classes.flatMap(k => [
    el('tr', {}, el('td', { class: 'name' }, k.name), el('td', { class: 'num' }, k.cores.toFixed(3)),
      c.us_per_op !== null && el('td', { class: 'num' }, perOp(k.us_per_op)), el('td', { class: 'num' }, grouped(k.n_processes)), el('td', { class: 'num' }, grouped(k.n_threads)),
      el('td', { class: 'plain' }, k.processes.slice(0, MOST).map(([title, pid, host, n, , ended]) =>
        `${title} (pid ${pid}${host && host !== DATA.headline.host ? `, ${host}` : ''}) ${n.toFixed(2)}${ended ? `: ${ended}` : ''}`).join(', '),
        k.n_processes > MOST && ` and ${k.n_processes - MOST} more`))]);
  const ratios = c.ratios.map(([a, b, ratio]) => `${ratio.toFixed(2)} cores of ${a} for each of ${b}`);
  return el('div', { class: 'scroll', id: 'cores' }, el('table', {},
    el('thead', {}, el('tr', {}, el('th', {}, 'class'), el('th', { class: 'num' }, 'cores'), c.us_per_op !== null && el('th', { class: 'num' }, 'CPU an operation'),
      el('th', { class: 'num' }, 'processes'), el('th', { class: 'num' }, 'threads'), el('th', {}, 'cores of each'))),
    el('tbody', {}, rows)),
  el('p', { class: 'dim' }, [`${c.cores.toFixed(3)} cores in all`, c.us_per_op !== null && c.us_per_op !== undefined && `${perOp(c.us_per_op)} an operation`, ...ratios].filter(Boolean).join('; ')));
}

function symbolHealth() {
  const without = DATA.modules.filter(m => m.n_unnamed > 0).length;
  const row = m => el('tr', {},
    el('td', { class: 'name', title: text(m.name) }, text(m.name)),
    el('td', { class: 'num' }, grouped(m.n_functions)),
    el('td', { class: 'num' }, grouped(m.n_unnamed)),
    el('td', { class: 'num' }, time(m.us)),
    el('td', { class: 'num' }, m.unnamed_us > 0 && time(m.unnamed_us)),
    el('td', { class: 'name dim' }, m.build_ids.join(' ')));
  const table = rows => el('div', { class: 'scroll' }, el('table', {},
    el('thead', {}, el('tr', {}, el('th', {}, 'module'), el('th', { class: 'num' }, 'functions seen'), el('th', { class: 'num' }, 'without a name'),
      el('th', { class: 'num' }, 'thread time through it'), el('th', { class: 'num' }, 'through what has no name'), el('th', {}, 'build-id'))),
    el('tbody', {}, rows)));
  const [bad, good] = [DATA.modules.filter(m => m.n_unnamed > 0), DATA.modules.filter(m => m.n_unnamed === 0)];
  return el('section', { id: 'symbols', 'aria-label': 'symbol health' }, el('h2', {}, 'Symbol health'),
    el('p', { class: 'prose' }, without === 0 ? 'Every function of every stack has a name.'
      : `${count(without, 'module')} of ${DATA.modules.length} have functions without a name. They are shown as module+0xoffset: an address is named only by a symbol that covers it. `,
      without > 0 && el('code', {}, 'wcprof check TRACE'), without > 0 && ' says what would supply them.'),
    bad.length > 0 && table(bad.map(row)),
    good.length > 0 && el('details', { open: bad.length === 0 }, el('summary', {}, `${count(good.length, 'module')} with all names`), table(good.map(row))));
}

function footer() {
  const notes = DATA.omitted;
  return el('section', { id: 'about', 'aria-label': 'about this page' }, el('h2', {}, 'About this page'),
    notes.length > 0 && el('ul', {}, notes.map(note => el('li', {}, note))),
    el('p', { class: 'prose dim' }, 'Weights are wall-clock time of threads. Percentages of graphs and trees are of the time that they show; ',
      '\u00b1 is half of the 95 % confidence interval. ',
      DATA.view.idle ? '' : 'Idle time is hidden in graphs and trees. ',
      DATA.view.min_percent > 0 ? `Branches below ${DATA.view.min_percent} % of their group's shown time are merged. ` : '',
      `Made by wcprof ${DATA.headline.version}; this file loads nothing and sends nothing.`));
}
