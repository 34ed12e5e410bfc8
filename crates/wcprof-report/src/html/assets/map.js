// The map of states: a lane a group or thread, time from left to right; the height of a color is the
// share of the time that was spent in that state.

const mapView = {
  lanes: [],
  open: new Set(),
  bin: null,
  stretch: false,
  // Show lanes of groups that were idle all the time.
  idle: false,

  ready() {
    const map = DATA.map;
    if (!map) return;
    // Thousandths of a bin, by state and bin.
    for (const row of map.rows) {
      row.bins = row.states.map(([state, runs]) => [state, this.expand(runs, map.n_bins)]);
    }
    this.groups = GROUPS.map(g => ({ group: g.at, name: g.name, rows: [] }));
    const several = { group: null, name: 'threads of other groups', rows: [] };
    for (const row of map.rows) (this.groups[row.group] ?? several).rows.push(row);
    if (several.rows.length) this.groups.push(several);
    this.groups = this.groups.filter(g => g.rows.length);
    for (const g of this.groups) {
      g.n = sum(g.rows.map(r => r.n_threads));
      g.bins = this.total(g.rows, g.n);
    }
    for (const g of this.groups) {
      const weights = this.whole(g);
      g.isIdle = ORDER.every(s => isIdle(s) || !(weights[s] > 0));
    }
    this.nIdle = this.groups.filter(g => g.isIdle).length;
    if (this.nIdle === this.groups.length) this.idle = true;
    // Little is seen of threads that are nearly always idle, unless lanes are stretched.
    this.stretch = share(idleOf(DATA.headline.states_us), sum(DATA.headline.states_us)) > 70;
    const nRows = sum(this.groups.map(g => g.rows.length));
    if (nRows <= 40 || this.groups.length === 1) for (const g of this.groups) this.open.add(g);
  },

  expand(runs, n) {
    const values = new Float32Array(n);
    let at = 0, value = 0;
    for (const run of runs) {
      if (run < 0) { values.fill(value, at, at - run); at -= run; } else { value = run; values[at++] = value; }
    }
    return values;
  },

  // The mean over threads.
  total(rows, n) {
    const byState = new Map();
    for (const row of rows) {
      for (const [state, values] of row.bins) {
        let into = byState.get(state);
        if (!into) byState.set(state, into = new Float32Array(DATA.map.n_bins));
        const weight = row.n_threads / n;
        for (let i = 0; i < values.length; i++) into[i] += values[i] * weight;
      }
    }
    return [...byState];
  },

  draw() {
    const box = byId('map');
    const style = getComputedStyle(document.documentElement);
    this.rgb = DATA.states.map((_, s) => {
      const hex = style.getPropertyValue(`--s${s}`).trim();
      return [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
    });
    this.lanes = [];
    for (const g of this.groups.filter(g => this.idle || !g.isIdle)) {
      const single = g.rows.length === 1;
      this.lanes.push({ of: g, bins: g.bins, n: g.n, single, isGroup: true, name: single && DATA.view.by === 'all' ? text(g.rows[0].name) : g.name });
      if (!single && this.open.has(g)) {
        for (const row of g.rows) this.lanes.push({ of: g, row, bins: row.bins, n: row.n_threads, name: text(row.name) + (row.process !== null ? `, ${text(row.process)}` : '') });
      }
    }
    box.replaceChildren(...this.lanes.map((lane, i) => this.element(lane, i)), el('div', { id: 'cursor' }), el('div', { id: 'range' }));
    byId('map-idle').hidden = this.nIdle === 0 || this.nIdle === this.groups.length;
    byId('map-idle').textContent = `${this.idle ? 'Hide' : 'Show'} ${this.nIdle} idle`;
    const unfolded = this.groups.filter(g => g.rows.length > 1).every(g => this.open.has(g));
    byId('map-all').textContent = unfolded ? 'Fold all' : 'Unfold all';
    byId('map-all').disabled = !this.groups.some(g => g.rows.length > 1);
    byId('map-stretch').setAttribute('aria-pressed', String(this.stretch));
  },

  element(lane, i) {
    const canvas = el('canvas', { width: DATA.map.n_bins, height: lane.isGroup ? 46 : 26, 'aria-hidden': 'true' });
    const most = this.paint(canvas, lane);
    const open = this.open.has(lane.of);
    const many = lane.isGroup && !lane.single;
    const made = el('div', { class: `lane ${lane.isGroup ? 'group' : 'thread'}${lane.of.group === App.scope && App.scope !== null ? ' chosen' : ''}`, role: 'treeitem',
      tabindex: i === 0 ? '0' : '-1', 'aria-level': lane.isGroup ? 1 : 2, 'aria-expanded': many ? String(open) : null, 'aria-label': `${lane.name}: ${mixText(this.whole(lane))}` },
      el('span', { class: 'label plain', title: lane.name }, lane.isGroup && el('span', { class: 'twist' }, many ? (open ? '\u25be' : '\u25b8') : ''), lane.name,
        many && el('span', { class: 'more' }, ` ${count(lane.n, 'thread')}`)),
      el('span', { class: 'scale num', title: 'what the height of the lane stands for' }, this.stretch ? `${Math.round(100 * most)} %` : ''), canvas);
    made.lane = lane;
    return made;
  },

  whole(lane) {
    const weights = new Array(N_STATES).fill(0);
    for (const [state, values] of lane.bins) weights[state] = values.reduce((a, b) => a + b, 0);
    return weights;
  },

  // Colors from the bottom up in the order of states, idle at the top. Gives the share of the time that
  // the height stands for.
  paint(canvas, lane) {
    const { n_bins: n } = DATA.map;
    const high = canvas.height;
    const context = canvas.getContext('2d');
    if (!context || n === 0) return 0;
    const image = context.createImageData(n, high);
    const byState = new Map(lane.bins);
    const order = ORDER.filter(s => byState.has(s) && !(this.stretch && isIdle(s)) && (App.states?.has(s) ?? true)).map(s => [s, byState.get(s)]);
    let most = 1000;
    if (this.stretch) {
      most = 1;
      for (let bin = 0; bin < n; bin++) most = Math.max(most, sum(order.map(([, v]) => v[bin])));
    }
    for (let bin = 0; bin < n; bin++) {
      let from = 0, total = 0;
      for (const [state, values] of order) {
        if (!(values[bin] > 0)) continue;
        total += values[bin];
        // What was there is seen, however little of it.
        const to = Math.min(high, Math.max(Math.round(total / most * high), isIdle(state) ? 0 : from + 1));
        const [r, g, b] = this.rgb[state];
        for (let y = from; y < to; y++) {
          const at = ((high - 1 - y) * n + bin) * 4;
          image.data[at] = r; image.data[at + 1] = g; image.data[at + 2] = b; image.data[at + 3] = 255;
        }
        from = to;
      }
    }
    context.putImageData(image, 0, 0);
    return most / 1000;
  },

  span(bin) {
    const { begin_us: begin, bin_us: length, duration_us: duration } = DATA.map;
    return [begin + bin * length, begin + Math.min(duration, (bin + 1) * length)];
  },

  // Time by state of a lane in a bin, per thread.
  at(lane, bin) {
    const weights = new Array(N_STATES).fill(0);
    for (const [state, values] of lane.bins) weights[state] = values[bin] / 1000 * DATA.map.bin_us;
    return weights;
  },

  seconds: us => `${(us / 1e6).toFixed(DATA.map.bin_us < 1e5 ? 2 : DATA.map.bin_us < 1e6 ? 1 : 0)} s`,

  binAt(x) {
    const canvas = byId('map').querySelector('canvas');
    if (!canvas) return null;
    const { left, width } = canvas.getBoundingClientRect();
    if (x < left || x >= left + width) return null;
    return Math.min(DATA.map.n_bins - 1, Math.floor((x - left) / width * DATA.map.n_bins));
  },

  place(id, from, to) {
    const box = byId('map').getBoundingClientRect(), canvas = byId('map').querySelector('canvas').getBoundingClientRect();
    const px = bin => canvas.left - box.left + bin / DATA.map.n_bins * canvas.width;
    const mark = byId(id);
    mark.style.display = 'block';
    mark.style.left = `${px(from)}px`;
    if (to !== undefined) mark.style.width = `${px(to) - px(from)}px`;
  },

  read(lane, bin) {
    const weights = this.at(lane, bin), [from, to] = this.span(bin);
    const seen = sum(weights);
    byId('map-read').replaceChildren(el('span', { class: 'plain' }, lane.name), ` ${this.seconds(from)} to ${this.seconds(to)}: `, seen > 0 ? mixText(weights) : 'not observed');
  },

  tip(lane, bin, x, y) {
    const weights = this.at(lane, bin), [from, to] = this.span(bin);
    tip.show(x, y, el('span', { class: 'plain' }, lane.name), el('div', { class: 'dim' }, `${this.seconds(from)} to ${this.seconds(to)}${lane.n > 1 ? `, mean of ${count(lane.n, 'thread')}` : ''}`),
      sum(weights) > 0 ? mixTable(weights) : 'not observed');
  },

  choose(a, b) {
    const [from, to] = [Math.min(a, b), Math.max(a, b) + 1];
    this.place('range', from, to);
    byId('map-window').replaceChildren('This window alone: ', el('code', {}, `wcprof report TRACE --format html --from ${this.flag(this.span(from)[0])} --to ${this.flag(this.span(to - 1)[1])} -o page.html`));
  },

  flag: us => us % 1e6 === 0 ? `${us / 1e6}s` : `${Math.round(us / 1e3)}ms`,

  fold(lane, open) {
    if (!lane.isGroup || lane.single) return;
    if (open) this.open.add(lane.of); else this.open.delete(lane.of);
    this.draw();
    this.focus(this.lanes.findIndex(l => l.isGroup && l.of === lane.of));
  },

  focus(i) {
    const all = byId('map').querySelectorAll('.lane');
    if (!all[i]) return;
    for (const other of all) other.tabIndex = -1;
    all[i].tabIndex = 0;
    all[i].focus();
  },

  key(event) {
    const lane = event.target.closest?.('.lane')?.lane;
    if (!lane || isTyping(event)) return;
    const i = this.lanes.indexOf(lane), n = DATA.map.n_bins;
    const step = by => {
      this.bin = this.bin === null ? 0 : Math.max(0, Math.min(n - 1, this.bin + by));
      this.place('cursor', this.bin);
      this.read(lane, this.bin);
    };
    const moves = {
      ArrowDown: () => { this.focus(i + 1); if (this.bin !== null && this.lanes[i + 1]) this.read(this.lanes[i + 1], this.bin); },
      ArrowUp: () => { this.focus(i - 1); if (this.bin !== null && this.lanes[i - 1]) this.read(this.lanes[i - 1], this.bin); },
      ArrowLeft: () => step(event.shiftKey ? -10 : -1),
      ArrowRight: () => step(event.shiftKey ? 10 : 1),
      Enter: () => this.fold(lane, !this.open.has(lane.of)),
      ' ': () => this.fold(lane, !this.open.has(lane.of)),
      Home: () => { this.bin = 0; step(0); },
      End: () => { this.bin = n - 1; step(0); },
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    move();
  },
};

// Times below the lanes.
function ticks() {
  const { begin_us: begin, bin_us: bin, n_bins: n } = DATA.map;
  const length = bin * n;
  const step = [1, 2, 5].flatMap(k => [1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10].map(unit => k * unit)).sort((a, b) => a - b)
    .find(s => length / s <= 10) ?? length;
  const marks = el('div', { class: 'ticks' });
  for (let at = Math.ceil(begin / step) * step; at < begin + length; at += step) {
    const mark = el('span', {}, step < 1e6 ? `${(at / 1e6).toFixed(step < 1e5 ? 2 : 1)} s` : `${at / 1e6} s`);
    mark.style.left = `${share(at - begin, length)}%`;
    marks.append(mark);
  }
  return marks;
}

function mapSection() {
  if (!DATA.map) return null;
  mapView.ready();
  const box = el('div', { id: 'map', role: 'tree', 'aria-label': 'map of states' });
  const laneOf = event => event.target.closest?.('.lane')?.lane;
  let from = null;
  box.addEventListener('mousemove', event => {
    const lane = laneOf(event), bin = mapView.binAt(event.clientX);
    if (!lane || bin === null) { tip.hide(); return; }
    mapView.place('cursor', bin);
    if (from !== null && from !== bin) mapView.choose(from, bin);
    mapView.tip(lane, bin, event.clientX, event.clientY);
    mapView.read(lane, bin);
  });
  box.addEventListener('mouseleave', () => { tip.hide(); from = null; });
  box.addEventListener('mousedown', event => { from = mapView.binAt(event.clientX); });
  box.addEventListener('mouseup', () => { from = null; });
  box.addEventListener('click', event => { const lane = laneOf(event); if (lane && mapView.binAt(event.clientX) === null) mapView.fold(lane, !mapView.open.has(lane.of)); });
  box.addEventListener('keydown', event => mapView.key(event));
  const legend = el('div', { class: 'legend' });
  const seen = new Set(DATA.map.rows.flatMap(row => row.states.map(([state]) => state)));
  for (const state of ORDER.filter(s => seen.has(s))) {
    const dot = el('i');
    dot.style.background = color(state);
    legend.append(el('span', {}, dot, DATA.states[state]));
  }
  const all = () => {
    const groups = mapView.groups.filter(g => g.rows.length > 1);
    const open = groups.every(g => mapView.open.has(g));
    for (const g of groups) if (open) mapView.open.delete(g); else mapView.open.add(g);
    mapView.draw();
  };
  return el('section', { id: 'states', 'aria-label': 'map of states' }, el('h2', {}, 'Which thread was in which state when'),
    el('div', { class: 'tools' }, el('button', { id: 'map-all', onclick: all }, 'Unfold all'),
      el('button', { id: 'map-idle', onclick: () => { mapView.idle = !mapView.idle; mapView.draw(); } }, 'Show idle'),
      el('button', { id: 'map-stretch', title: 'The height of each lane is its own busiest moment; idle time is left out', onclick: () => { mapView.stretch = !mapView.stretch; mapView.draw(); } }, 'Stretch'), legend,
      el('span', { class: 'dim keys' }, `A column is ${time(DATA.map.bin_us)}. `, el('kbd', {}, '\u2191\u2193'), ' lane ', el('kbd', {}, '\u2190\u2192'), ' time ', el('kbd', {}, 'Enter'), ' threads; drag to choose a window')),
    box, el('div', { id: 'axis' }, ticks()), el('div', { id: 'map-read', class: 'readout dim', 'aria-live': 'polite' }), el('p', { id: 'map-window' }));
}
