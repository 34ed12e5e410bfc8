// Opens exports in their viewers: speedscope and SVG in Chromium. Prints what each shows as JSON.
// Arguments: Chromium, folder of the exports, folder with node_modules.
import http from 'node:http';
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';

const [chromium, exports_, modules] = process.argv.slice(2);
const require = createRequire(path.join(modules, 'x.js'));
const playwright = require('playwright-core');
const dist = path.join(modules, 'node_modules/speedscope/dist/release');
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.json': 'application/json' };

const server = http.createServer((request, response) => {
  const name = decodeURIComponent(new URL(request.url, 'http://x').pathname);
  const base = name.startsWith('/exports/') ? exports_ : dist;
  const file = path.join(base, path.basename(name));
  if (!fs.existsSync(file)) { response.writeHead(404).end(); return; }
  response.writeHead(200, { 'content-type': types[path.extname(file)] ?? 'application/octet-stream' });
  fs.createReadStream(file).pipe(response);
});
await new Promise(done => server.listen(0, '127.0.0.1', done));
const root = `http://127.0.0.1:${server.address().port}`;

const browser = await playwright.chromium.launch({
  executablePath: chromium,
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
const found = {};
for (const name of ['speedscope.json', 'pprof.pb.gz', 'folded.txt']) {
  const page = await browser.newPage();
  const errors = [];
  page.on('pageerror', error => errors.push(String(error)));
  page.on('console', message => message.type() === 'error' && errors.push(message.text()));
  // Nothing but loopback.
  await page.route('**/*', route =>
    new URL(route.request().url()).hostname === '127.0.0.1' ? route.continue() : route.abort());
  const url = encodeURIComponent(`${root}/exports/${name}`);
  await page.goto(`${root}/index.html#profileURL=${url}`);
  await page.waitForFunction(() => /Left Heavy/.test(document.body.innerText), null, { timeout: 60000 });
  await page.waitForFunction(() => document.title !== 'speedscope' || document.querySelectorAll('canvas').length > 0, null, { timeout: 60000 });
  await page.screenshot({ path: path.join(exports_, `${name}.png`) });
  const shown = (await page.evaluate(() => document.body.innerText)).replaceAll(/\s+/g, ' ').slice(0, 300);
  // The second frame of the left-heavy graph.
  await page.keyboard.press('2');
  await page.waitForTimeout(500);
  await page.mouse.click(200, 170);
  await page.waitForTimeout(500);
  const selected = (await page.evaluate(() => document.body.innerText)).replaceAll(/\s+/g, ' ').slice(0, 400);
  found[name] = { title: await page.title(), shown, selected, canvases: await page.locator('canvas').count(), errors };
  await page.close();
}
for (const name of ['svg.svg', 'icicle.svg', 'inverted.svg']) {
  const page = await browser.newPage();
  const errors = [];
  page.on('pageerror', error => errors.push(String(error)));
  await page.goto(`${root}/exports/${name}`);
  const frames = await page.locator('#frames title').count();
  const boxes = await page.locator('#frames rect').evaluateAll(all => all.map(r => Number(r.getAttribute('y'))));
  // The root's title begins with `all (`.
  const all = await page.locator('#frames g').evaluateAll(groups => Number(groups
    .find(g => g.querySelector('title')?.textContent.startsWith('all ('))?.querySelector('rect').getAttribute('y')));
  await page.screenshot({ path: path.join(exports_, `${name}.png`) });
  // The graph's own search, by the text that it shows.
  await page.evaluate(() => search('futex'));
  const matched = parseFloat((await page.locator('#matched').textContent()).replace(/^\D*/, ''));
  await page.screenshot({ path: path.join(exports_, `${name}-search.png`) });
  found[name] = { frames, all, top: Math.min(...boxes), bottom: Math.max(...boxes), matched, errors };
  await page.close();
}
await browser.close();
server.close();
console.log(JSON.stringify(found));
