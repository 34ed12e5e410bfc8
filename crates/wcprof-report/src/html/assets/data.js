// The data of the page, and its trees made ready for walking.

const DATA = JSON.parse(byId('data').textContent);
const text = id => DATA.strings[id] ?? '';
const LABELS = DATA.labels.name.map((name, i) => ({
  name: text(name), short: text(DATA.labels.short[i]), module: text(DATA.labels.module[i]), kind: DATA.labels.kind[i],
}));
const FUNCTIONS = new Set(LABELS.filter(label => label.kind !== 'o').map(label => label.name));
const N_STATES = DATA.states.length;

// Trees of all groups in one set of columns, each node before its descendants.
class Tree {
  constructor(out) {
    Object.assign(this, out);
    // What is shown when no state is chosen.
    this.all = { us: this.us, own: this.own, low: this.low, high: this.high };
    this.chosen = null;
    const n = this.us.length;
    this.parent = new Int32Array(n).fill(-1);
    this.child = new Int32Array(n).fill(-1);
    this.next = new Int32Array(n).fill(-1);
    // The node after the last descendant.
    this.end = new Int32Array(n).fill(n);
    this.nChildren = new Uint32Array(n);
    const last = [];
    let group = 0;
    for (let i = 0; i < n; i++) {
      while (group + 1 < this.first.length && i >= this.first[group + 1]) group++;
      if (i === this.first[group]) { for (const at of last) this.end[at] = i; last.length = 0; }
      const depth = this.depth[i];
      for (let at = depth; at < last.length; at++) this.end[last[at]] = i;
      const before = last[depth];
      last.length = depth;
      const parent = depth > 0 ? last[depth - 1] : -1;
      this.parent[i] = parent;
      if (before !== undefined) this.next[before] = i;
      else if (parent >= 0) this.child[parent] = i;
      if (parent >= 0) this.nChildren[parent]++;
      last.push(i);
    }
  }

  // First root of a group, or -1.
  root(group) {
    const at = this.first[group];
    return at !== undefined && at < this.first[group + 1] ? at : -1;
  }

  // Shows only the time in some states; all for null.
  choose(states) {
    Object.assign(this, this.all);
    this.chosen = states;
    if (states === null) return;
    this.us = this.all.us.map((_, i) => sum(this.mix(i)));
    this.own = [...this.us];
    this.parent.forEach((up, i) => { if (up >= 0) this.own[up] -= this.us[i]; });
    [this.low, this.high] = [[], []];
  }

  // The heaviest first, and none without shown time.
  list(first) {
    const found = [];
    for (let i = first; i >= 0; i = this.next[i]) if (this.us[i] > 0) found.push(i);
    return this.chosen === null ? found : found.sort((a, b) => this.us[b] - this.us[a]);
  }

  children(i) { return this.list(this.child[i]); }

  roots(group) { return this.list(this.root(group)); }

  // The node and those that all its time passes through, one below the other.
  chain(i) {
    const nodes = [i];
    for (let below = this.children(i); below.length === 1 && this.us[below[0]] === this.us[i]; below = this.children(below[0])) nodes.push(below[0]);
    return nodes;
  }

  labelOf(i) { return LABELS[this.label[i]]; }

  // Weights by state.
  mix(i) {
    const weights = new Array(N_STATES).fill(0);
    const states = this.states[i];
    if (typeof states === 'number') weights[states] = this.all.us[i];
    else for (let k = 0; k + 1 < states.length; k += 2) weights[states[k]] = states[k + 1];
    return this.chosen === null ? weights : weights.map((us, s) => this.chosen.has(s) ? us : 0);
  }

  // Half of the width of the 95 % interval in microseconds, or null.
  half(i) { return this.high.length ? (this.high[i] - this.low[i]) / 2 : null; }
}

const CALLS = new Tree(DATA.calls);
const INVERTED = DATA.inverted ? new Tree(DATA.inverted) : null;
const INVERTED_ALL = DATA.inverted_all ? new Tree(DATA.inverted_all) : null;
// A tree around one function has one direction.
const AROUND = DATA.view.around;

const GROUPS = DATA.groups.map((group, at) => ({
  ...group, at, name: text(group.name), observed: sum(group.states_us),
}));
const ALL = {
  name: 'all threads', at: null,
  n_threads: DATA.headline.n_threads,
  shown_us: sum(GROUPS.map(g => g.shown_us)),
  observed: sum(GROUPS.map(g => g.observed)),
  states_us: DATA.states.map((_, s) => sum(GROUPS.map(g => g.states_us[s] ?? 0))),
};
const groupOf = scope => scope === null ? ALL : GROUPS[scope];
for (const g of [ALL, ...GROUPS]) g.all_us = g.shown_us;

// Shows only the time in some states, everywhere; all for null.
function chooseStates(states) {
  for (const tree of [CALLS, INVERTED, INVERTED_ALL]) tree?.choose(states);
  for (const g of GROUPS) g.shown_us = states === null ? g.all_us : sum(CALLS.roots(g.at).map(i => CALLS.us[i]));
  ALL.shown_us = states === null ? ALL.all_us : sum(GROUPS.map(g => g.shown_us));
}

// What a search finds: by label. `=name` is a function's whole name, else a part of name or module.
function hits(query) {
  if (!query) return null;
  const found = new Uint8Array(LABELS.length);
  const exact = query.startsWith('=') && query.length > 1 ? query.slice(1) : null;
  const part = query.toLowerCase();
  LABELS.forEach((label, i) => {
    found[i] = exact !== null ? label.name === exact
      : label.name.toLowerCase().includes(part) || label.module.toLowerCase().includes(part);
  });
  return found;
}

// Time and number of the root-most frames that a search found in a group's calls.
function matched(tree, found, groups) {
  let us = 0, n = 0;
  for (const g of groups) {
    for (let i = tree.first[g]; i < tree.first[g + 1];) {
      if (found[tree.label[i]]) { us += tree.us[i]; n++; i = tree.end[i]; } else i++;
    }
  }
  return { us, n };
}
