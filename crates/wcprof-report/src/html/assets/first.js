// What the terminal's first screen says, first: what to do, where CPU time goes, where threads wait, pools.

function firstScreen() {
  const f = DATA.first;
  if (!f) return null;
  const table = (id, head, rows) => el('div', { class: 'scroll', id }, el('table', {}, el('thead', {}, el('tr', {}, head.map(([name, right]) =>
    el('th', { class: right ? 'num' : null }, name)))), el('tbody', {}, rows)));
  const item = (one, at) => el('li', { value: at + 1 }, el('span', { class: 'level' }, one.gain), el('span', { class: 'plain' }, one.why), el('span', { class: 'dim' }, ' \u2192 '), el('b', { class: 'plain' }, one.action));
  const [nOthers, rest] = f.other_kinds;
  const kinds = f.kinds.map(([pct, name, by]) => el('tr', {}, el('td', { class: 'num' }, `${pct.toFixed(1)} %`), el('td', { class: 'plain' }, name), el('td', { class: 'name wrap', title: by }, by)));
  if (nOthers > 0) kinds.push(el('tr', {}, el('td', { class: 'num' }, `${rest.toFixed(1)} %`), el('td', { class: 'dim' }, count(nOthers, 'other kind')), el('td')));
  const dot = state => { const i = el('i', { class: 'dot' }); i.style.background = color(state); return i; };
  const waits = f.waits.map(w => el('tr', {}, el('td', { class: 'num' }, time(w.us)), el('td', { class: 'plain state' }, dot(w.state), w.text), el('td', { class: 'name wrap', title: w.place }, w.place), el('td', { class: 'plain' }, w.holder.replace(/^held by /, '') || '-')));
  if (f.n_more_waits > 0) waits.push(el('tr', {}, el('td'), el('td', { class: 'dim' }, count(f.n_more_waits, 'more place')), el('td'), el('td')));
  const most = Math.max(1e-9, ...f.pools.map(([, , columns]) => sum(columns)));
  const bar = columns => {
    const box = el('div', { class: 'mix', 'aria-hidden': 'true' });
    columns.forEach((n, at) => { const part = el('i'); part.style.width = `${100 * n / most}%`; part.style.background = color(f.columns[at][1]); box.append(part); });
    return box;
  };
  const shown = n => n > 0 ? n.toFixed(2) : '-';
  const pools = f.pools.map(([name, n, columns]) => el('tr', {}, el('td', { class: 'name', title: name }, name), el('td', { class: 'num' }, grouped(n)),
    columns.map(value => el('td', { class: 'num' }, shown(value))), el('td', { class: 'wide' }, bar(columns))));
  const [nPools, more] = f.other_pools;
  if (nPools > 0) pools.push(el('tr', {}, el('td', { class: 'dim' }, count(nPools, 'other')), el('td'), el('td', { class: 'num' }, more.toFixed(2)), el('td', { class: 'dim', colspan: f.columns.length }, 'threads on average in all')));
  return el('section', { id: 'first', 'aria-label': 'first screen' }, el('h1', { class: 'plain' }, DATA.headline.title),
    f.head.map(line => el('p', { class: 'plain' }, line)), f.cpu_wait && el('p', { class: 'plain' }, el('b', {}, f.cpu_wait)),
    el('h2', {}, 'What to do'), f.to_do.length > 0 && el('p', { class: 'dim' }, `Each with what there is at most to gain${f.to_do.some(one => one.gain.startsWith('~')) ? ' (~ estimated)' : ''}: cores, or threads that no longer wait.`),
    f.to_do.length ? f.to_do.flatMap((one, at) => [one.heading && el('p', { class: 'plain' }, `${one.heading}:`), el('ol', { class: 'todo' }, item(one, at))]) : el('p', {}, 'Nothing was found that can be changed.'),
    f.more_to_do && el('p', { class: 'dim' }, f.more_to_do),
    el('h2', {}, 'Pools (threads, on average)'), table('first-pools', [['pool'], ['threads', 1], ...f.columns.map(([name, state]) => [[dot(state), name], 1]), ['']], pools),
    el('div', { class: 'two' },
      kinds.length > 0 && el('div', {}, el('h2', {}, 'Where CPU goes'), table('first-cpu', [['% of CPU', 1], ['kind of work'], ['called by']], kinds)),
      waits.length > 0 && el('div', {}, el('h2', {}, 'Where threads wait (without waits for a CPU or for work)'), table('first-waits', [['time of all threads', 1], ['state'], ['function < its caller'], ['lock held by']], waits))),
    el('p', { class: 'plain' }, f.quality));
}
