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

const panel = ({ panels }, wanted) =>
  panels.find(({ type, title }) => type !== 'row' && title === wanted);

test('annotations mark beginnings', () => {
  refuses('cluster', 'annotation Alerts: marks everything between', ({ annotations }) => {
    annotations.list[0].expr = 'ALERTS{cluster=~"$cluster", alertstate="firing"}';
  });
});

test('annotations have values above zero', () => {
  refuses('cluster', 'Nodes without exporter: has the value 0', ({ annotations }) => {
    const down = annotations.list.find(({ name }) => name === 'Nodes without exporter');
    down.expr =
      'up{cluster=~"$cluster"} == 0 unless up{cluster=~"$cluster"} offset $__interval == 0';
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
    panel(spoiled, 'Dropped packets').fieldConfig.defaults.noValue =
      'These nodes have no InfiniBand.';
  });
});

test('columns of tables have words as headings', () => {
  refuses('alerts', 'has the heading happened_at', (spoiled) => {
    const { fieldConfig } = panel(spoiled, 'What happened');
    fieldConfig.overrides = fieldConfig.overrides.filter(
      ({ matcher }) => matcher.options !== 'happened_at',
    );
  });
  refuses('gpu-faults', 'has the heading xid', (spoiled) => {
    const { fieldConfig } = panel(spoiled, 'Last XIDs');
    fieldConfig.overrides = fieldConfig.overrides.filter(
      ({ matcher }) => matcher.options !== 'xid',
    );
  });
});

test('a table fits on a screen', () => {
  refuses('user', 'Jobs: needs', (spoiled) => {
    const [target] = panel(spoiled, 'Jobs').targets;
    target.rawSql = target.rawSql.replace(
      'job_name,',
      'job_name, a AS "one more", b AS "and another",',
    );
  });
});

test('severities sort by rank', () => {
  refuses('alerts', 'Firing now: sorts severities', (spoiled) => {
    panel(spoiled, 'Firing now').targets[0].expr = 'max by (cluster, node, severity) (ALERTS)';
  });
  refuses('alerts', 'What happened: sorts severities', (spoiled) => {
    const [target] = panel(spoiled, 'What happened').targets;
    target.rawSql = target.rawSql.replace(/CASE severity .* END AS severity/, 'severity');
  });
});

test('states have colours with a meaning', () => {
  refuses('alerts', 'Firing alerts: draws states', (spoiled) => {
    panel(spoiled, 'Firing alerts').fieldConfig.overrides = [];
  });
  refuses('user', 'How jobs ended: draws states', (spoiled) => {
    const ends = panel(spoiled, 'How jobs ended');
    ends.fieldConfig.overrides = [];
    ends.targets[0].rawSql = 'SELECT state, count(*) AS jobs FROM jobs GROUP BY state';
  });
});

test('spans of time are told apart', () => {
  refuses('node', 'Jobs on GPUs: has a legend', (spoiled) => {
    panel(spoiled, 'Jobs on GPUs').options.legend.showLegend = true;
  });
  refuses('node', 'Jobs on GPUs: has a row for every job', (spoiled) => {
    panel(spoiled, 'Jobs on GPUs').targets[0].expr = 'takt_gpu_job_info{cluster=~"$cluster"}';
  });
  refuses('node', 'Jobs on GPUs: draws every value', (spoiled) => {
    panel(spoiled, 'Jobs on GPUs').fieldConfig.defaults.color.mode = 'thresholds';
  });
});
