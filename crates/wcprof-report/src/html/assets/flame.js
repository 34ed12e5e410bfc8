// The flame graph, roots at the top. Its items are numbers: 0 is everything, then the groups, then
// the nodes of the calls. Only what is wide enough to see becomes an element.

const ROW = 18;
const MIN_PX = 2;
// One group is everything.
const N_ABOVE = GROUPS.length === 1 ? 1 : 1 + GROUPS.length;

// A tree of its own: what it shows is chosen apart from the call trees.
const FLAME = new Tree(DATA.calls);
const RUNS = [0, 1, 14];
const CPU_WAIT = [2, 9];
// What can be shown. Waits for a CPU hit whatever runs, so that on a full machine they would paint everything: they are a strip.
const MODES = {
  work: ['Without CPU waits', state => !CPU_WAIT.includes(state)],
  cpu: ['On-CPU', state => RUNS.includes(state)],
  off: ['Off-CPU', state => !RUNS.includes(state) && !CPU_WAIT.includes(state)],
  all: ['All time', () => true],
};

const flame = {
  mode: 'work',
  // Shown time of each group, and of all.
  groupUs: [],
  zoom: 0,
  current: 0,
  found: null,

  // Takes what is shown from the switch and the chosen states.
  choose(mode = this.mode) {
    this.mode = mode;
    const shown = DATA.states.map((_, s) => s).filter(s => (App.states === null || App.states.has(s)) && MODES[mode][1](s));
    // States that were chosen by name are shown, whatever the switch says.
    const states = App.states !== null && shown.length === 0 ? [...App.states] : shown;
    FLAME.choose(states.length === DATA.states.length ? null : new Set(states));
    this.groupUs = GROUPS.map(g => sum(FLAME.roots(g.at).map(i => FLAME.us[i])));
    for (const button of document.querySelectorAll('[data-mode]')) button.setAttribute('aria-pressed', String(button.dataset.mode === mode));
  },

  // The time for a CPU that is not in the graph.
  strip() {
    const groups = this.group(this.zoom) === null ? GROUPS : [GROUPS[this.group(this.zoom)]];
    const of = (states, roots) => sum(roots.flatMap(i => { const mix = FLAME_ALL(i); return states.map(s => mix[s]); }));
    const roots = groups.flatMap(g => rootsOf(g.at));
    const waits = of(CPU_WAIT, roots), all = of(DATA.states.map((_, s) => s), roots);
    const box = byId('flame-strip');
    box.hidden = this.mode === 'all' || !(waits > 0);
    if (box.hidden) return;
    const part = el('i');
    part.style.width = `${share(waits, all)}%`;
    part.style.background = color(2);
    box.replaceChildren(part, el('span', {}, `waits for a CPU: ${time(waits)}, ${percent(waits, all)} of the time in these stacks; not in the graph below`));
  },

  isNode: item => item >= N_ABOVE,
  group(item) {
    if (item === 0) return GROUPS.length === 1 ? 0 : null;
    if (item < N_ABOVE) return item - 1;
    const node = item - N_ABOVE;
    let low = 0, high = GROUPS.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (FLAME.first[middle] <= node) low = middle; else high = middle - 1;
    }
    return low;
  },
  ofGroup: group => GROUPS.length === 1 ? 0 : 1 + group,
  name(item) {
    if (item < N_ABOVE) return item === 0 ? (GROUPS.length === 1 ? GROUPS[0].name : ALL.name) : GROUPS[item - 1].name;
    return FLAME.labelOf(item - N_ABOVE).name;
  },
  us(item) {
    if (item < N_ABOVE) return item === 0 ? sum(this.groupUs) : this.groupUs[item - 1];
    return FLAME.us[item - N_ABOVE];
  },
  parent(item) {
    if (item === 0) return -1;
    if (item < N_ABOVE) return 0;
    const up = FLAME.parent[item - N_ABOVE];
    return up >= 0 ? up + N_ABOVE : this.ofGroup(this.group(item));
  },
  children(item) {
    if (item === 0 && GROUPS.length !== 1) return GROUPS.filter(g => this.groupUs[g.at] > 0).sort((a, b) => this.groupUs[b.at] - this.groupUs[a.at]).map(g => 1 + g.at);
    const nodes = item < N_ABOVE ? FLAME.roots(item === 0 ? 0 : item - 1) : FLAME.children(item - N_ABOVE);
    return nodes.map(i => i + N_ABOVE);
  },
  mix(item) {
    if (this.isNode(item)) return FLAME.mix(item - N_ABOVE);
    const mixes = (this.children(item)).map(child => this.mix(child));
    return DATA.states.map((_, s) => sum(mixes.map(m => m[s])));
  },

  element(item, left, width, depth, above) {
    const node = this.isNode(item) ? item - N_ABOVE : -1;
    const label = node >= 0 ? FLAME.labelOf(node) : null;
    const classes = ['f'];
    if (above) classes.push('above');
    if (label && label.kind !== 'f') classes.push('other');
    if (label && this.found && this.found[FLAME.label[node]]) classes.push('hit');
    if (item === this.current) classes.push('current');
    const made = el('div', { class: classes.join(' '), role: 'treeitem', id: `f${item}`, 'data-item': item, 'aria-level': depth + 1,
      'aria-label': `${this.name(item)}, ${time(this.us(item))}` }, width > 24 ? label?.short ?? this.name(item) : '');
    const style = made.style;
    style.left = `${left}px`;
    style.top = `${depth * ROW}px`;
    style.width = `${Math.max(1, width)}px`;
    if (width < 7) { style.padding = '0'; style.borderRight = '0'; }
    const mix = this.mix(item), whole = sum(mix);
    const states = ORDER.filter(s => mix[s] > 0).sort((a, b) => mix[b] - mix[a]);
    style.backgroundColor = node >= 0 && states.length ? tint(states[0]) : 'var(--panel)';
    if (states.length && width > 3 && (node < 0 || mix[states[0]] < 0.98 * whole)) {
      let at = 0;
      const stops = states.map(s => { const from = at; at += share(mix[s], whole); return `${color(s)} ${from}% ${at}%`; });
      style.backgroundImage = `linear-gradient(to right, ${stops.join(', ')})`;
    }
    return made;
  },

  draw() {
    const box = byId('flame');
    const width = box.clientWidth;
    const path = [];
    for (let item = this.zoom; item >= 0; item = this.parent(item)) path.unshift(item);
    const made = path.map((item, depth) => this.element(item, 0, width, depth, item !== this.zoom));
    let deepest = path.length, narrow = 0;
    const scale = width / Math.max(1, this.us(this.zoom));
    const below = [[this.zoom, 0, path.length]];
    while (below.length) {
      const [item, start, depth] = below.pop();
      let at = start;
      for (const child of this.children(item)) {
        const us = this.us(child), px = us * scale;
        if (px < MIN_PX) { narrow++; break; }
        made.push(this.element(child, at, px, depth, false));
        deepest = Math.max(deepest, depth + 1);
        below.push([child, at, depth + 1]);
        at += px;
      }
    }
    // What is positioned takes no room: this does.
    const room = el('div', { role: 'none' });
    room.style.height = `${deepest * ROW}px`;
    box.replaceChildren(room, ...made);
    box.classList.toggle('searching', this.found !== null);
    box.setAttribute('aria-activedescendant', `f${this.current}`);
    byId('flame-narrow').textContent = narrow ? `Columns narrower than ${MIN_PX} pixels are not drawn: zoom in.` : '';
    byId('flame-out').disabled = this.zoom === 0;
    this.strip();
    this.read();
  },

  // What is known of an item, in a line.
  about(item) {
    const group = groupOf(this.group(item));
    const us = this.us(item);
    const whole = this.us(group.at === null ? 0 : this.ofGroup(group.at));
    const parts = [time(us), `${percent(us, whole, 2)} of what is shown of ${group.name}`];
    if (this.isNode(item)) {
      const node = item - N_ABOVE, half = FLAME.half(node);
      if (half !== null) parts[0] += ` \u00b1 ${time(half)}`;
      parts.push(`self ${time(FLAME.own[node])}`);
      if (FLAME.chosen === null) parts.push(count(FLAME.samples[node], 'sample'));
    }
    return parts.join(', ');
  },

  read() {
    byId('flame-read').replaceChildren(el('span', { class: 'name' }, this.name(this.current)), ' ',
      el('span', { class: 'dim' }, this.about(this.current), ': ', mixText(this.mix(this.current))));
  },

  tip(item, x, y) {
    const label = this.isNode(item) ? FLAME.labelOf(item - N_ABOVE) : null;
    tip.show(x, y, el('span', { class: 'name' }, this.name(item)),
      label?.module ? el('span', { class: 'dim plain' }, label.module, label.kind === 'u' ? ', no name' : '') : '',
      el('div', {}, this.about(item)), mixTable(this.mix(item)));
  },

  go(item, zoom = false) {
    if (item === undefined || item < 0) return;
    this.current = item;
    if (zoom) this.zoom = item;
    // What is not drawn is too narrow, or beside what is zoomed to.
    const inside = () => { for (let up = item; up >= 0; up = this.parent(up)) if (up === this.zoom) return true; return false; };
    const isAbove = () => { for (let up = this.zoom; up >= 0; up = this.parent(up)) if (up === item) return true; return false; };
    const width = byId('flame').clientWidth;
    if (!isAbove() && (!inside() || this.us(item) * width / Math.max(1, this.us(this.zoom)) < MIN_PX)) {
      this.zoom = this.parent(item);
    }
    this.draw();
    byId(`f${item}`)?.scrollIntoView({ block: 'nearest' });
  },

  // Found items, heaviest first; of those in each other the root-most.
  matches() {
    if (!this.found) return [];
    const list = [];
    for (let i = 0; i < FLAME.us.length;) {
      if (this.found[FLAME.label[i]]) { list.push(i); i = FLAME.end[i]; } else i++;
    }
    const scope = App.scope;
    return list.filter(i => scope === null || this.group(i + N_ABOVE) === scope)
      .sort((a, b) => FLAME.us[b] - FLAME.us[a]).map(i => i + N_ABOVE);
  },

  nextMatch(step) {
    const list = this.matches();
    if (!list.length) return;
    const at = list.indexOf(this.current);
    this.go(list[at < 0 ? (step > 0 ? 0 : list.length - 1) : (at + step + list.length) % list.length]);
  },

  key(event) {
    if (isTyping(event)) return;
    const siblings = () => { const up = this.parent(this.current); return up < 0 ? [0] : this.children(up); };
    const beside = step => { const list = siblings(); return list[list.indexOf(this.current) + step]; };
    const moves = {
      ArrowDown: () => this.go(this.children(this.current)[0]),
      ArrowUp: () => this.go(this.parent(this.current)),
      ArrowLeft: () => this.go(beside(-1)),
      ArrowRight: () => this.go(beside(1)),
      Enter: () => this.go(this.current, true),
      ' ': () => this.go(this.current, true),
      Home: () => this.go(0, true),
      Backspace: () => this.out(),
      '-': () => this.out(),
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    tip.hide();
    move();
  },

  out() {
    const up = this.parent(this.zoom);
    if (up >= 0) { this.zoom = up; this.draw(); }
  },
};

// Weights by state of a node, and the roots of a group, whatever is chosen.
const FLAME_ALL = i => {
  const weights = new Array(N_STATES).fill(0), states = FLAME.states[i];
  if (typeof states === 'number') weights[states] = FLAME.all.us[i];
  else for (let k = 0; k + 1 < states.length; k += 2) weights[states[k]] = states[k + 1];
  return weights;
};
const rootsOf = group => {
  const found = [];
  for (let i = FLAME.root(group); i >= 0; i = FLAME.next[i]) found.push(i);
  return found;
};

function flameSection() {
  const box = el('div', { id: 'flame', role: 'tree', tabindex: '0', 'aria-label': 'flame graph' });
  const item = event => { const at = event.target.closest?.('.f')?.dataset.item; return at === undefined ? -1 : Number(at); };
  box.addEventListener('click', event => { const at = item(event); if (at >= 0) { tip.hide(); flame.go(at, true); } });
  box.addEventListener('mousemove', event => { const at = item(event); if (at >= 0) flame.tip(at, event.clientX, event.clientY); else tip.hide(); });
  box.addEventListener('mouseleave', () => tip.hide());
  box.addEventListener('keydown', event => flame.key(event));
  const title = AROUND ? `${AROUND[1] ? 'Callers' : 'Callees'} of ${AROUND[0]}` : 'Flame graph';
  return el('section', { id: 'graph', 'aria-label': 'flame graph' }, el('h2', { class: 'plain' }, title),
    el('div', { class: 'tools' },
      el('button', { id: 'flame-out', onclick: () => flame.out() }, 'Zoom out'),
      el('button', { id: 'flame-reset', onclick: () => { App.setScope(null); flame.go(0, true); } }, 'All threads'),
      el('span', { role: 'group', 'aria-label': 'time that is shown' }, Object.entries(MODES).map(([mode, [name]]) =>
        el('button', { 'data-mode': mode, 'aria-pressed': 'false', onclick: () => { flame.choose(mode); flame.zoom = flame.current = App.scope === null ? 0 : flame.ofGroup(App.scope); flame.draw(); } }, name))),
      el('span', { class: 'dim', id: 'flame-narrow' }),
      el('span', { class: 'dim keys' }, 'Roots at the top; width is thread time, color the state most of it was in, the strip below all of them. ',
        el('kbd', {}, '\u2190\u2191\u2192\u2193'), ' move ', el('kbd', {}, 'Enter'), ' zoom ', el('kbd', {}, 'Backspace'), ' out')),
    legend(), el('div', { id: 'flame-strip', hidden: true }), box, el('div', { id: 'flame-read', class: 'readout', 'aria-live': 'polite' }));
}
