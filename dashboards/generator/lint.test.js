// Breaks a committed board once for each rule of lint.js. Run by scripts/check-dashboards.sh.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { lint } from './lint.js';

const board = (name) =>
  JSON.parse(readFileSync(new URL(`../grafana/${name}.json`, import.meta.url), 'utf8'));

/** Fails unless the board is well, and `lint` says `message` once `spoil` has changed it. */
function refuses(name, message, spoil) {
  const spoiled = board(name);
  assert.deepEqual(lint(spoiled), []);
  spoil(spoiled);
  assert.ok(
    lint(spoiled).some((what) => what.includes(message)),
    `${name} is not refused: ${message}`,
  );
}

test('annotations mark beginnings', () => {
  refuses('cluster', 'annotation Alerts: marks everything between', ({ annotations }) => {
    annotations.list[0].expr = 'ALERTS{cluster=~"$cluster", alertstate="firing"}';
  });
});

test('only the board of a job marks jobs', () => {
  refuses('node', 'marks jobs', ({ annotations }) => {
    annotations.list.push(board('job').annotations.list.find(({ name }) => name === 'Jobs'));
  });
});
