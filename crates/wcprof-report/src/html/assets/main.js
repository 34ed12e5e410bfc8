// Puts the page together: the bar, what is chosen and searched for, theme, and keys.

const App = {
  scope: null,
  query: '',
  // A set of states, or null for all.
  states: null,

  setScope(scope) { this.set(scope, this.query); },

  setQuery(query) { this.set(this.scope, query); },

  // Adds a state to what is shown alone, or takes it away.
  toggleState(state) {
    const states = new Set(this.states ?? []);
    if (!states.delete(state)) states.add(state);
    this.setStates(states.size ? states : null);
  },

  setStates(states) {
    this.states = states;
    chooseStates(states);
    flame.choose();
    for (const button of document.querySelectorAll('[data-state]')) button.setAttribute('aria-pressed', String(states?.has(Number(button.dataset.state)) ?? false));
    this.set(this.scope, this.query, true);
    this.keep();
  },

  // Draws what depends on the chosen group and on the search; all of it the first time.
  set(scope, query, first = false) {
    const isOther = first || scope !== this.scope;
    this.scope = scope;
    this.query = query;
    flame.found = treeView.found = hits(query);
    if (byId('q').value !== query) byId('q').value = query;
    if (isOther) {
      flame.zoom = flame.current = scope === null ? 0 : flame.ofGroup(scope);
      byId('scope').value = scope === null ? '' : String(scope);
      byId('tree-of').textContent = GROUPS.length > 1 ? groupOf(scope).name : '';
      groupTable.draw();
      if (DATA.map) mapView.draw();
    }
    treeView.draw();
    flame.draw();
    this.count();
    if (!first) this.keep();
  },

  // Shows a function or a group in the graphs.
  show(group, query) {
    this.set(group ?? this.scope, query);
    if (query) flame.nextMatch(1);
    byId('graph').scrollIntoView({ block: 'start' });
    byId('flame').focus({ preventScroll: true });
  },

  count() {
    const out = byId('found');
    if (!flame.found) { out.textContent = ''; return; }
    const groups = this.scope === null ? GROUPS.map(g => g.at) : [this.scope];
    const { us, n } = matched(CALLS, flame.found, groups);
    out.textContent = n === 0 ? 'nothing found' : `${count(n, 'place')}, ${time(us)}, ${percent(us, groupOf(this.scope).shown_us)} of what is shown`;
  },

  // The address holds what is chosen, so that a link can say it.
  keep() {
    const parts = [];
    if (this.query) parts.push(`q=${encodeURIComponent(this.query)}`);
    if (this.scope !== null) parts.push(`group=${encodeURIComponent(GROUPS[this.scope].name)}`);
    if (this.states !== null) parts.push(`state=${[...this.states].map(s => encodeURIComponent(DATA.states[s])).join(',')}`);
    try { history.replaceState(null, '', parts.length ? `#${parts.join('&')}` : '#'); } catch { /* a page without an address */ }
  },

  fromAddress(first = false) {
    const hash = location.hash.slice(1);
    if (!first && !hash.includes('=')) return;
    const given = new URLSearchParams(hash.replaceAll('+', '%2B'));
    const group = GROUPS.find(g => g.name === given.get('group'));
    const states = (given.get('state') ?? '').split(',').map(name => DATA.states.indexOf(name)).filter(s => s >= 0);
    if (states.length || this.states !== null) {
      this.scope = group ? group.at : null;
      this.query = (given.get('q') ?? '').slice(0, 500);
      this.setStates(states.length ? new Set(states) : null);
      return;
    }
    this.set(group ? group.at : null, (given.get('q') ?? '').slice(0, 500), first);
  },

  theme(name) {
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    this.chosen = name ?? this.chosen ?? 'auto';
    const shown = this.chosen === 'auto' ? (dark ? 'dark' : 'light') : this.chosen;
    document.documentElement.dataset.theme = shown;
    document.documentElement.style.colorScheme = shown;
    const button = byId('theme');
    if (button) button.textContent = { auto: 'Theme: auto', light: 'Theme: light', dark: 'Theme: dark' }[this.chosen];
    if (DATA.map && byId('map')?.firstChild) mapView.draw();
  },
};

function help() {
  const keys = [['/', 'search; = before a whole name'], ['n, N', 'next, previous place found'], ['Esc', 'end the search'], ['Tab', 'from part to part'],
    ['\u2190 \u2191 \u2192 \u2193', 'move in the flame graph, the trees and the map'], ['Enter', 'zoom, unfold'], ['Backspace', 'zoom out'], ['*', 'unfold all below'], ['t', 'theme'], ['?', 'this help']];
  const box = el('dialog', { id: 'help' }, el('h2', {}, 'Keys'), el('table', {}, el('tbody', {}, keys.map(([key, what]) =>
    el('tr', {}, el('td', {}, el('kbd', {}, key)), el('td', {}, what))))), el('button', { onclick: () => byId('help').close() }, 'Close'));
  return box;
}

function bar() {
  const input = el('input', { id: 'q', type: 'search', placeholder: 'Search functions and modules  ( / )', 'aria-label': 'search functions and modules', autocomplete: 'off', spellcheck: 'false', maxlength: '500' });
  let waiting = null;
  input.addEventListener('input', () => { clearTimeout(waiting); waiting = setTimeout(() => App.setQuery(input.value), 120); });
  input.addEventListener('keydown', event => {
    if (event.key === 'Enter') { clearTimeout(waiting); if (App.query !== input.value) App.setQuery(input.value); flame.nextMatch(event.shiftKey ? -1 : 1); byId('flame').scrollIntoView({ block: 'nearest' }); }
    if (event.key === 'Escape') { clearTimeout(waiting); App.setQuery(''); input.blur(); }
  });
  const scope = el('select', { id: 'scope', 'aria-label': 'what the graphs show' }, el('option', { value: '' }, ALL.name),
    GROUPS.length > 1 && GROUPS.map(g => el('option', { value: g.at }, g.name)));
  scope.addEventListener('change', () => App.setScope(scope.value === '' ? null : Number(scope.value)));
  const jump = (id, name) => el('a', { href: `#${id}`, onclick: event => { event.preventDefault(); byId(id).scrollIntoView(); } }, name);
  const themes = { auto: 'light', light: 'dark', dark: 'auto' };
  return el('header', { id: 'bar' }, el('nav', { 'aria-label': 'parts' }, DATA.first && jump('first', 'What to do'), jump('graph', AROUND ? 'Graph' : 'Flame graph'), jump('pools', GROUP_NOUN), DATA.map && jump('states', 'States'),
    jump('calls', 'Call tree'), jump('findings', 'Findings'), jump('top', 'Recording'), jump('symbols', 'Symbols')),
    el('span', { class: 'space' }), GROUPS.length > 1 && scope, GROUPS.length > 1 ? null : el('span', { hidden: true }, scope), input, el('span', { id: 'found', class: 'dim', 'aria-live': 'polite' }),
    el('button', { id: 'theme', onclick: () => App.theme(themes[App.chosen]) }, 'Theme'), el('button', { 'aria-label': 'keys', onclick: () => byId('help').showModal() }, '?'));
}

function keys(event) {
  if (isTyping(event) || byId('help').open) return;
  const actions = {
    '/': () => byId('q').focus(),
    n: () => flame.nextMatch(1),
    N: () => flame.nextMatch(-1),
    Escape: () => { tip.hide(); if (App.query) App.setQuery(''); },
    t: () => byId('theme').click(),
    '?': () => byId('help').showModal(),
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function start() {
  App.theme();
  byId('page').append(el('a', { class: 'skip', href: '#findings', onclick: event => { event.preventDefault(); byId('findings').scrollIntoView(); } }, 'To the findings'), bar(), firstScreen() ?? '', flameSection(), groupSection(), mapSection() ?? '', treeSection(), findings(), summary(), symbolHealth(), footer(),
    el('div', { id: 'tip', role: 'presentation' }), help());
  App.theme();
  flame.choose();
  App.fromAddress(true);
  document.addEventListener('keydown', keys);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => App.theme());
  let width = innerWidth;
  addEventListener('resize', () => { if (innerWidth !== width) { width = innerWidth; flame.draw(); } });
  // Paper is white, and what is folded can not be unfolded on it.
  let before = null;
  addEventListener('beforeprint', () => {
    before = App.chosen;
    App.theme('light');
    for (const one of document.querySelectorAll('.finding')) { one.dataset.was = one.open; one.open = true; }
    flame.draw();
  });
  addEventListener('afterprint', () => {
    App.theme(before);
    for (const one of document.querySelectorAll('.finding')) one.open = one.dataset.was === 'true';
    flame.draw();
  });
  addEventListener('hashchange', () => App.fromAddress());
  performance.mark('wcprof-made');
  const drawn = () => {
    if (document.documentElement.dataset.drawn) return;
    performance.mark('wcprof-drawn');
    document.documentElement.dataset.drawn = String(Math.round(performance.now()));
  };
  requestAnimationFrame(() => setTimeout(drawn));
  // A browser without a screen may have no frame for long on a busy machine.
  setTimeout(drawn, 1000);
}

start();
