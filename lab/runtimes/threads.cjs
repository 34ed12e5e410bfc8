// JavaScript that works, beside the threads of its runtime, which wait for work. Prints which they are, as
// `cargo xtask runtimes` reads it.
const fs = require('node:fs');
const { Worker } = require('node:worker_threads');

function alpha(x) {
  for (let i = 0; i < 700000; i++) x = (x * 3 + 1) & 0xffffff;
  return x;
}

function beta(x) {
  for (let i = 0; i < 300000; i++) x = (x * 3 + 1) & 0xffffff;
  return x;
}

let x = 1;
function turn() {
  for (let i = 0; i < 10; i++) x = beta(alpha(x));
  setImmediate(turn);
}

const threads = () => fs.readdirSync('/proc/self/task');
const say = (text) => fs.writeSync(1, text + '\n');
const before = new Set(threads());
for (const tid of before) if (tid !== String(process.pid)) say(`thread ${tid} idle`);
// A thread of its own, which nobody sends anything.
const worker = new Worker('require("node:worker_threads").parentPort.on("message", () => {})', { eval: true });
worker.on('online', () => {
  setTimeout(() => {
    for (const tid of threads()) if (!before.has(tid)) say(`thread ${tid} idle`);
    say('ready');
    turn();
  }, 500);
});
