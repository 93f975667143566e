// Writes the boards into ../grafana; with --check, fails if one there differs.

import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';

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
for (const name of BOARDS) {
  const { default: made } = await import(`./boards/${name}.js`);
  wanted.set(`${name}.json`, `${JSON.stringify(made, null, 2)}\n`);
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
