// Opens pages of `report --format html` in Chromium as a reader does, from the disk and by keyboard, and
// prints what they show as JSON. Arguments: Chromium, folder of the pages, folder with node_modules, and
// the pages, the first of which is used throughout, the others opened alone.
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { createRequire } from 'node:module';

const [chromium, folder, modules, ...names] = process.argv.slice(2);
const require = createRequire(path.join(modules, 'x.js'));
const playwright = require('playwright-core');
const browser = await playwright.chromium.launch({
  executablePath: chromium,
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
const found = {};

async function open(name, options) {
  const page = await browser.newPage(options);
  const log = { errors: [], requests: [] };
  page.on('pageerror', error => log.errors.push(String(error)));
  page.on('console', message => log.errors.push(message.text()));
  page.on('request', request => log.requests.push(request.url()));
  const url = String(pathToFileURL(path.join(folder, name)));
  await page.goto(url);
  await page.waitForFunction(() => document.documentElement.dataset.drawn, null, { timeout: 60000 });
  const drawn = Number(await page.evaluate(() => document.documentElement.dataset.drawn));
  return { page, log, drawn, url };
}

for (const name of names) {
  const times = [];
  for (let i = 0; i < 5; i++) {
    const { page, drawn } = await open(name, { viewport: { width: 1500, height: 1000 } });
    times.push(drawn);
    await page.close();
  }
  found[name] = { drawn_ms: times.sort((a, b) => a - b)[2] };
}

const name = names[0];
for (const width of [1000, 1500, 2500]) {
  for (const colorScheme of ['light', 'dark']) {
    const { page } = await open(name, { viewport: { width, height: 1000 }, colorScheme });
    await page.screenshot({ path: path.join(folder, `page-${width}-${colorScheme}.png`), fullPage: true });
    // Nothing is wider than the window.
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    found[name].overflow = Math.max(found[name].overflow ?? 0, over);
    await page.close();
  }
}

const { page, log, url } = await open(name, { viewport: { width: 1500, height: 1000 } });
const of = selector => page.locator(selector).count();
const shown = async selector => (await page.locator(selector).textContent()).replaceAll(/\s+/g, ' ').trim();
const seen = found[name];
seen.title = await page.title();
seen.findings = await of('.finding');
seen.open_findings = await of('.finding[open]');
seen.groups = await of('#groups tbody tr');
seen.frames = await of('#flame .f');
seen.rows = await of('#tree .row');
seen.lanes = await of('.lane');
seen.modules = await of('#symbols tbody tr');

// By keyboard alone from here: the search, its next place, and its end.
await page.keyboard.press('/');
await page.keyboard.type('futex');
await page.keyboard.press('Enter');
await page.waitForFunction(() => document.getElementById('found').textContent.includes('place'));
seen.search = { text: await shown('#found'), hits: await of('#flame .f.hit'), rows: await of('#tree .row.hit'), current: await shown('#flame-read'), address: new URL(page.url()).hash };
await page.screenshot({ path: path.join(folder, 'page-search.png') });
await page.keyboard.press('Escape');
seen.search.after = await of('#flame .f.hit');

// The flame graph: down three, zoom, out again.
await page.evaluate(() => document.getElementById('flame').focus());
await page.keyboard.press('Home');
for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
seen.zoomed = { above: await of('#flame .f.above'), current: await shown('#flame-read') };
for (let i = 0; i < 4; i++) await page.keyboard.press('Backspace');
seen.zoomed.after = await of('#flame .f.above');

// The tree: unfold, down, fold.
await page.evaluate(() => document.querySelector('#tree [tabindex="0"]').focus());
const rows = await of('#tree .row');
await page.keyboard.press('ArrowRight');
seen.unfolded = await of('#tree .row') - rows;
await page.screenshot({ path: path.join(folder, 'page-tree.png') });
await page.keyboard.press('ArrowDown');
await page.keyboard.press('ArrowUp');
await page.keyboard.press('ArrowLeft');
seen.folded = await of('#tree .row') - rows;

// The map: unfold a group, move in time.
const lanes = await of('.lane');
await page.evaluate(() => document.querySelector('.lane').focus());
await page.keyboard.press('Enter');
seen.lanes_unfolded = await of('.lane') - lanes;
await page.keyboard.press('ArrowRight');
await page.keyboard.press('ArrowRight');
seen.lane = await shown('#map-read');
// Colored pixels of the first lane.
seen.pixels = await page.evaluate(() => {
  const canvas = document.querySelector('.lane canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return data.filter((_, i) => i % 4 === 3 && data[i] > 0).length;
});

// A finding's evidence leads to the graph; the theme changes by key.
await page.locator('.finding[open] .evidence button:visible').last().click();
seen.followed = { query: await page.locator('#q').inputValue(), found: await shown('#found'), focus: await page.evaluate(() => document.activeElement.id) };
const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
seen.themes = [await theme()];
for (let i = 0; i < 2; i++) { await page.keyboard.press('t'); seen.themes.push(await theme()); }
await page.keyboard.press('?');
seen.help = await page.evaluate(() => document.getElementById('help').open);
await page.keyboard.press('Escape');
await page.pdf({ path: path.join(folder, 'page.pdf'), format: 'A3', landscape: true, printBackground: true });
seen.errors = log.errors;
// Its own address is all that it asks for.
seen.requests = log.requests.filter(request => request.split('#')[0] !== url);
await page.close();
await browser.close();
console.log(JSON.stringify(found));
