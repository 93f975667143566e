// Writes the boards into ../grafana; with --check, fails if one there differs. Fails, too, if a board
// breaks a rule of lint.js.

import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { lint } from './lint.js';

const BOARDS = [
  'account',
  'alerts',
  'cluster',
  'energy',
  'fairshare',
  'gpu',
  'gpu-faults',
  'job',
  'network',
  'node',
  'queue',
  'self',
  'storage',
  'user',
  'waste',
  'workstations',
];
const FOLDER = new URL('../grafana/', import.meta.url);

const wanted = new Map();
const wrong = [];
for (const name of BOARDS) {
  const { default: made } = await import(`./boards/${name}.js`);
  wrong.push(...lint(made));
  wanted.set(`${name}.json`, `${JSON.stringify(made, null, 2)}\n`);
}
if (wrong.length) {
  for (const what of wrong) console.error(what);
  process.exit(1);
}

const present = new Map(
  readdirSync(FOLDER)
    .filter((name) => name.endsWith('.json'))
    .map((name) => [name, readFileSync(new URL(name, FOLDER), 'utf8')]),
);
const names = [...new Set([...wanted.keys(), ...present.keys()])].sort();
const stale = names.filter((name) => wanted.get(name) !== present.get(name));

if (process.argv.includes('--check')) {
  for (const name of stale) console.error(`dashboards/grafana/${name} is not up to date`);
  if (stale.length) console.error('run `make dashboards` and commit the result');
  process.exit(stale.length ? 1 : 0);
}
for (const name of stale) {
  const url = new URL(name, FOLDER);
  if (wanted.has(name)) writeFileSync(url, wanted.get(name));
  else rmSync(url);
  console.log(`${wanted.has(name) ? 'wrote' : 'removed'} dashboards/grafana/${name}`);
}
