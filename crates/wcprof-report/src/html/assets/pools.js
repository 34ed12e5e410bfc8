// The table of groups (pools, threads, processes): a line chooses what the graphs show.

const GROUP_NOUN = { thread: 'Threads', pool: 'Pools', process: 'Processes', 'control group': 'Control groups', host: 'Hosts', all: 'All threads' }[DATA.view.by];

const groupTable = {
  sort: { key: 'shown', down: true },
  more: false,
  // Waits other than idle, as the headline adds them up.
  columns: [
    ['name', 'name', g => g.name], ['threads', 'threads', g => g.n_threads],
    ['busy', 'not idle', g => g.observed - idleOf(g.states_us)],
    ['cpu', 'on-cpu', g => g.states_us[0] + g.states_us[1]], ['runnable', 'runnable', g => g.states_us[2]],
    ['lock', 'lock', g => g.states_us[3]], ['disk', 'disk', g => g.states_us[4]], ['net', 'net', g => g.states_us[5]],
    ['other', 'other waits', g => g.states_us[6] + g.states_us[8] + g.states_us[9] + g.states_us[10] + g.states_us[11]],
    ['shown', 'shown', g => g.shown_us],
  ],

  draw() {
    const { key, down } = this.sort;
    const value = this.columns.find(([k]) => k === key)[2];
    const order = [...GROUPS].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const by = typeof x === 'string' ? x.localeCompare(y) : x - y;
      return (down ? -by : by) || a.at - b.at;
    });
    // What was idle all the time comes last, and only when asked for.
    const busy = order.filter(g => g.shown_us > 0);
    const lines = this.more ? order : busy.slice(0, 25);
    const head = this.columns.map(([k, label], i) => el('th', { class: i ? 'num' : '', 'aria-sort': k === key ? (down ? 'descending' : 'ascending') : null },
      el('button', { onclick: () => { this.sort = { key: k, down: k === key ? !down : k !== 'name' }; this.draw(); byId('groups').querySelectorAll('th button')[i].focus(); } },
        label, k === key && (down ? ' \u2193' : ' \u2191'))));
    head.splice(2, 0, el('th', {}, 'states'));
    const cell = us => el('td', { class: 'num' }, us > 0 && el('span', { title: time(us) }, atATime(us)));
    const line = g => {
      const title = (g.processes ?? []).map(text).join(', ') + (g.n_processes > 3 ? ` and ${g.n_processes - 3} more` : '');
      const cells = this.columns.slice(1).map(([k, , f]) => k === 'threads' ? el('td', { class: 'num' }, grouped(f(g)))
        : k === 'shown' ? el('td', { class: 'num' }, time(f(g))) : cell(f(g)));
      cells.splice(1, 0, el('td', { class: 'wide' }, mixBar(g.states_us)));
      return el('tr', { class: g.at === App.scope ? 'chosen' : '' },
        el('td', { class: 'name' }, el('button', { class: 'go', title, 'aria-pressed': String(g.at === App.scope), onclick: () => App.setScope(g.at === App.scope ? null : g.at) }, g.name)), cells);
    };
    const rows = lines.map(line);
    const n = order.length - lines.length, nIdle = order.length - busy.length;
    if (n > 0) {
      const what = n === nIdle ? `${n} more without shown time` : `${n} more${nIdle ? `, ${nIdle} of them without shown time` : ''}`;
      rows.push(el('tr', { class: 'more' }, el('td', { colspan: '11' }, el('button', { onclick: () => { this.more = true; this.draw(); } }, what))));
    }
    byId('groups').replaceChildren(el('table', {}, el('thead', {}, el('tr', {}, head)), el('tbody', {}, rows)));
  },
};

function groupSection() {
  return el('section', { id: 'pools', 'aria-label': GROUP_NOUN.toLowerCase() }, el('h2', {}, GROUP_NOUN),
    el('p', { class: 'dim' }, 'Threads, on average. A name shows the group alone in the graphs; a second click shows all.'),
    el('div', { class: 'scroll', id: 'groups' }));
}
