// What the rules found: share, evidence, advice. Evidence leads to the graphs.

const firstSentence = long => {
  const end = long.search(/\.\s/);
  return end < 0 ? long : long.slice(0, end + 1);
};

// Prose of rules: what is between backticks is code.
function prose(long) {
  const parts = long.split('`');
  return parts.map((part, i) => i % 2 && i < parts.length - 1 ? el('code', {}, part) : i % 2 ? '`' + part : part);
}

// Pools and time of a finding: `tp_osd_tp 9.81 s`; shares are with what they are of.
function place(f) {
  const pools = f.pools.map(text);
  const shown = pools.slice(0, 4).join(', ') + (pools.length > 4 ? ` and ${pools.length - 4} more` : '');
  return (DATA.headline.n_processes > 1 ? `${text(f.process)}: ${shown}` : shown)
    + (f.matched_us > 0 ? ` ${time(f.matched_us)}` : '');
}

// What shows a finding.
function evidence(f) {
  const trees = f.evidence.map(e => el('div', {}, el('h3', {}, text(e.heading)),
    el('ul', { class: 'evidence' }, e.lines.map(([depth, pct, us, name, module]) => {
      // A thread, or a place too light for the graphs, leads nowhere.
      const known = FUNCTIONS.has(text(name));
      const line = el(known ? 'button' : 'span', { class: known ? 'go name' : 'name', title: `${text(name)}${module ? `\n${text(module)}` : ''}${pct === null ? '' : `\n${time(us)}`}${known ? ': show it in the graphs' : ''}`, onclick: known ? () => App.show(f.group, `=${text(name)}`) : null }, text(name));
      line.style.paddingLeft = `${Math.min(depth, 12) * 12}px`;
      return el('li', {}, el('span', { class: 'num' }, pct === null ? '' : `${pct.toFixed(1)} %`), line);
    })), e.n_cut > 0 && el('p', { class: 'dim' }, `${count(e.n_cut, 'line')} cut`)));
  return [f.basis.map(line => el('p', { class: 'plain' }, text(line))), trees,
    f.group !== null && el('button', { class: 'show', onclick: () => App.show(f.group, '') }, `Show ${GROUPS[f.group]?.name} in the graphs`)].flat();
}

// The findings of one rule: the first with its evidence and the advice, then where else it was found.
function finding([f, ...others], at) {
  const MOST = 3;
  const advice = text(f.advice);
  const part = (name, value) => value && [el('h3', {}, name), el('p', { class: 'prose plain' }, prose(value))];
  const also = others.slice(0, MOST).map(place).join('; ') + (others.length > MOST ? `; and ${others.length - MOST} more` : '');
  return el('details', { class: 'finding', id: `finding-${at}`, open: at === 0 },
    el('summary', {}, f.gives_back && el('span', { class: 'level' }, f.gives_back), el('span', { class: 'title plain' }, text(f.title)),
      el('span', { class: 'where plain' }, place(f), others.length > 0 && `; also in ${also}`),
      el('p', { class: 'first plain' }, prose(firstSentence(advice)))),
    el('div', { class: 'body' },
      el('div', {}, evidence(f), others.map(other => el('details', { class: 'also' }, el('summary', { class: 'plain' }, `Also in ${place(other)}`), evidence(other)))),
      el('div', {}, part('Advice', advice), part('Why it matters', text(f.explanation)), part('What to expect', text(f.gain)),
        part('How to see that it helped', text(f.verify)),
        f.sources.length > 0 && el('details', {}, el('summary', { class: 'dim' }, `Sources (rule ${text(f.rule)})`),
          f.sources.map(source => el('p', { class: 'prose plain dim' }, text(source)))))));
}

function findings() {
  const list = DATA.findings;
  const byRule = new Map();
  for (const f of list) {
    if (!byRule.has(f.rule)) byRule.set(f.rule, []);
    byRule.get(f.rule).push(f);
  }
  return el('section', { id: 'findings', 'aria-label': 'findings' },
    el('h2', {}, list.length ? count(byRule.size, 'finding') : 'Findings'),
    list.length ? el('div', { class: 'findings' }, [...byRule.values()].map(finding))
      : el('p', {}, 'No rule found anything. ', el('code', {}, 'wcprof doctor --list'), ' lists what was looked for.'));
}
