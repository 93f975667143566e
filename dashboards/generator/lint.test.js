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

const panel = ({ panels }, wanted) => panels.find(({ title }) => title === wanted);

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

test('a text for no value stays out of the cells of a table', () => {
  refuses('alerts', 'Firing now: fills empty cells', (spoiled) => {
    panel(spoiled, 'Firing now').fieldConfig.overrides.shift();
  });
});

test('hours of GPUs are no duration', () => {
  refuses('waste', 'Held: has the unit h', (spoiled) => {
    panel(spoiled, 'Held').fieldConfig.defaults.unit = 'h';
  });
  refuses('waste', 'Jobs that wasted most: has the unit h', (spoiled) => {
    const { overrides } = panel(spoiled, 'Jobs that wasted most').fieldConfig;
    overrides.at(-1).properties.push({ id: 'unit', value: 'h' });
  });
});

test('where all is well, no text says that hardware is absent', () => {
  refuses('gpu-faults', 'NVLinks down: says "No GPU here reports NVLinks."', (spoiled) => {
    const [target] = panel(spoiled, 'NVLinks down').targets;
    target.expr = 'count(takt_gpu_nvlink_up{cluster=~"$cluster", node=~"$node"} == 0)';
  });
  refuses('network', 'Dropped packets: says "These nodes have no InfiniBand."', (spoiled) => {
    panel(spoiled, 'Dropped packets').fieldConfig.defaults.noValue = 'These nodes have no InfiniBand.';
  });
});
