// Call trees as rows that unfold: leaf first (inverted) or root first. Rows exist once they are seen.

const FIRST_ROWS = 15;
const MORE_ROWS = 40;
// A row is indented only where its parent branches, as in the text report.
const INDENT_PX = 14;
// Functions of a chain that a tooltip names.
const MOST_NAMES = 12;

const treeView = {
  inverted: INVERTED !== null,
  rows: [],
  found: null,

  // The tree that is shown, its group in it, and the group whose time percentages are of.
  source() {
    const scope = GROUPS.length === 1 ? 0 : App.scope;
    if (!this.inverted || !INVERTED) return { tree: CALLS, groups: scope === null ? GROUPS.map(g => g.at) : [scope], of: groupOf(scope) };
    if (scope === null && INVERTED_ALL) return { tree: INVERTED_ALL, groups: [0], of: ALL };
    return { tree: INVERTED, groups: [scope ?? 0], of: groupOf(scope) };
  },

  draw() {
    const { tree, groups } = this.source();
    this.rows = [];
    const roots = groups.flatMap(g => tree.roots(g)).sort((a, b) => tree.us[b] - tree.us[a]);
    const box = byId('tree');
    box.replaceChildren(el('div', { class: 'row head', 'aria-hidden': 'true' }, el('span', { class: 'num shown' }, '% of shown \u00b1'), el('span', { class: 'num time' }, 'total'),
      el('span', { class: 'num own' }, this.inverted ? '' : 'self'), el('span', { class: 'mix' }), el('span', { class: 'label' }, this.inverted || AROUND?.[1] ? 'function, callers below it' : 'function, callees below it')));
    this.put(roots, null, 0, null, FIRST_ROWS);
    for (const row of this.rows) row.el.tabIndex = row === this.rows[0] ? 0 : -1;
    if (this.rows.length === 0) box.append(el('p', { class: 'dim' }, 'No time passes the filters.'));
    for (const button of byId('tree-order').querySelectorAll('button')) {
      button.setAttribute('aria-pressed', String((button.dataset.inverted === 'true') === this.inverted));
    }
    if (this.found) this.reveal();
  },

  // Adds rows for `nodes` after `before`; beyond `most` of them, a row for the others.
  put(nodes, parent, indent, before, most) {
    const { tree } = this.source();
    const made = nodes.slice(0, most).map(node => ({ node, chain: tree.chain(node), parent, indent, open: false, depth: parent ? parent.depth + 1 : 1 }));
    if (nodes.length > most) made.push({ rest: nodes.slice(most), parent, indent, depth: parent ? parent.depth + 1 : 1 });
    for (const row of made) { row.el = this.element(row); row.el.row = row; }
    const at = before === null ? this.rows.length : this.rows.indexOf(before) + 1;
    this.rows.splice(at, 0, ...made);
    if (before === null) byId('tree').append(...made.map(r => r.el));
    else before.el.after(...made.map(r => r.el));
    return made;
  },

  element(row) {
    const { tree, of } = this.source();
    if (row.rest) {
      const more = el('span', { class: 'more' }, `${grouped(row.rest.length)} more, ${time(sum(row.rest.map(n => tree.us[n])))}`);
      more.style.paddingLeft = `${row.indent * INDENT_PX + 15}px`;
      return el('div', { class: 'row', role: 'treeitem', tabindex: '-1', 'aria-level': row.depth }, el('span', { class: 'num shown' }), el('span', { class: 'num time' }),
        el('span', { class: 'num own' }), el('span', { class: 'mix' }), el('span', { class: 'label' }, more));
    }
    const { node } = row;
    const label = tree.labelOf(node), half = tree.half(node), leaf = tree.children(row.chain.at(-1)).length === 0;
    const names = row.chain.map(i => tree.labelOf(i).short).join(this.inverted || AROUND?.[1] ? ' < ' : ' > ');
    const isHit = this.found && row.chain.some(i => this.found[tree.label[i]]);
    const twist = el('span', { class: 'twist', 'aria-hidden': 'true' }, leaf ? '' : '\u25b8');
    const name = el('span', { class: 'label' }, twist, el('span', { class: 'name' }, names), label.module && el('span', { class: 'module plain' }, label.module));
    name.style.paddingLeft = `${row.indent * INDENT_PX}px`;
    return el('div', { class: isHit ? 'row hit' : 'row', role: 'treeitem', tabindex: '-1', 'aria-level': row.depth,
      'aria-expanded': leaf ? null : 'false', 'aria-label': `${label.name}, ${percent(tree.us[node], of.shown_us)}, ${time(tree.us[node])}` },
      el('span', { class: 'num shown' }, percent(tree.us[node], of.shown_us), half === null ? '' : el('span', { class: 'dim' }, ` \u00b1${share(half, of.shown_us).toFixed(1)}`)),
      el('span', { class: 'num time' }, time(tree.us[node])), el('span', { class: 'num own' }, !this.inverted && tree.own[node] > 0 ? time(tree.own[node]) : ''),
      mixBar(tree.mix(node)), name);
  },

  unfold(row, chain = true) {
    if (row.rest) {
      const at = this.rows.indexOf(row), before = this.rows[at - 1] ?? null;
      const hadFocus = document.activeElement === row.el;
      const { rest, parent, indent } = row;
      const made = this.put(rest, parent, indent, row, MORE_ROWS);
      this.rows.splice(this.rows.indexOf(row), 1);
      row.el.remove();
      if (hadFocus) this.focus(made[0] ?? before);
      return;
    }
    const { tree } = this.source();
    const children = tree.children(row.chain.at(-1));
    if (row.open || children.length === 0) return;
    row.open = true;
    this.mark(row);
    const made = this.put(children, row, row.indent + (children.length > 1 ? 1 : 0), row, FIRST_ROWS);
    // A chain unfolds at once, down to where it branches.
    if (chain && made.length === 1) this.unfold(made[0]);
  },

  fold(row) {
    if (!row.open) return;
    row.open = false;
    this.mark(row);
    const at = this.rows.indexOf(row);
    let end = at + 1;
    while (end < this.rows.length && this.rows[end].depth > row.depth) end++;
    for (const gone of this.rows.splice(at + 1, end - at - 1)) gone.el.remove();
  },

  mark(row) {
    row.el.setAttribute('aria-expanded', String(row.open));
    row.el.querySelector('.twist').textContent = row.open ? '\u25be' : '\u25b8';
  },

  toggle(row) { if (row.open) this.fold(row); else this.unfold(row); },

  focus(row) {
    if (!row) return;
    for (const other of byId('tree').querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    row.el.tabIndex = 0;
    row.el.focus();
  },

  // Unfolds the way to what a search found: the heaviest places first.
  reveal() {
    const MOST = 12;
    const { tree, groups } = this.source();
    const list = [];
    for (const g of groups) {
      for (let i = tree.first[g]; i < tree.first[g + 1];) {
        if (this.found[tree.label[i]]) { list.push(i); i = tree.end[i]; } else i++;
      }
    }
    list.sort((a, b) => tree.us[b] - tree.us[a]);
    for (const node of list.slice(0, MOST)) {
      const path = [];
      for (let up = node; up >= 0; up = tree.parent[up]) path.unshift(up);
      for (const step of path) {
        let row = this.rows.find(r => r.chain?.includes(step));
        // It may be among the others of its siblings.
        while (!row) {
          const rest = this.rows.find(r => r.rest?.includes(step));
          if (!rest) break;
          this.unfold(rest);
          row = this.rows.find(r => r.chain?.includes(step));
        }
        if (!row) break;
        if (!row.chain.includes(node)) this.unfold(row, false);
      }
    }
  },

  key(event) {
    const row = event.target.closest?.('.row')?.row;
    if (!row || isTyping(event)) return;
    const at = this.rows.indexOf(row);
    const moves = {
      ArrowDown: () => this.focus(this.rows[at + 1]),
      ArrowUp: () => this.focus(this.rows[at - 1]),
      ArrowRight: () => { if (row.open) this.focus(this.rows[at + 1]); else this.unfold(row); },
      ArrowLeft: () => { if (row.open) this.fold(row); else this.focus(row.parent); },
      Enter: () => this.toggle(row),
      ' ': () => this.toggle(row),
      Home: () => this.focus(this.rows[0]),
      End: () => this.focus(this.rows.at(-1)),
      '*': () => {
        // Everything below, as far as a reader could want it.
        const MOST = 400;
        for (let i = at, n = 0; i < this.rows.length && n < MOST; i++, n++) {
          if (i > at && this.rows[i].depth <= row.depth) break;
          if (!this.rows[i].rest) this.unfold(this.rows[i], false);
        }
      },
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    move();
  },
};

function treeSection() {
  const box = el('div', { id: 'tree', role: 'tree', 'aria-label': 'call tree' });
  const rowOf = event => event.target.closest?.('.row')?.row;
  box.addEventListener('click', event => { const row = rowOf(event); if (row && String(getSelection()) === '') { treeView.toggle(row); if (row.el.isConnected) treeView.focus(row); } });
  box.addEventListener('keydown', event => treeView.key(event));
  box.addEventListener('mousemove', event => {
    const row = rowOf(event);
    if (!row || row.node === undefined) { tip.hide(); return; }
    const { tree, of } = treeView.source(), label = tree.labelOf(row.node), half = tree.half(row.node);
    const names = row.chain.slice(0, MOST_NAMES).map(i => el('span', { class: 'name' }, tree.labelOf(i).name));
    tip.show(event.clientX, event.clientY, names, row.chain.length > MOST_NAMES && `and ${row.chain.length - MOST_NAMES} more`,
      label.module ? el('span', { class: 'dim plain' }, label.module, label.kind === 'u' ? ', no name' : '') : '',
      el('div', {}, `${time(tree.us[row.node])}${half === null ? '' : ` \u00b1 ${time(half)}`}, ${percent(tree.us[row.node], of.shown_us)} of what is shown of ${of.name}${tree.chosen === null ? `, ${count(tree.samples[row.node], 'sample')}` : ''}`),
      mixTable(tree.mix(row.node)));
  });
  box.addEventListener('mouseleave', () => tip.hide());
  const order = inverted => el('button', { 'data-inverted': String(inverted), onclick: () => { treeView.inverted = inverted; treeView.draw(); } }, inverted ? 'Leaf first (inverted)' : 'Root first');
  return el('section', { id: 'calls', 'aria-label': 'call tree' }, el('h2', { id: 'tree-title' }, 'Call tree'),
    el('div', { class: 'tools' }, el('span', { id: 'tree-order', class: 'tools' }, INVERTED && order(true), INVERTED && order(false)),
      el('span', { class: 'dim', id: 'tree-of' }),
      el('span', { class: 'dim keys' }, el('kbd', {}, '\u2191\u2193'), ' move ', el('kbd', {}, '\u2192\u2190'), ' unfold, fold ', el('kbd', {}, '*'), ' unfold all below')),
    box);
}
