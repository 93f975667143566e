// A board: variables, annotations, links to the others, and panels set out in lines of 24 columns.

import { CLUSTER, NODE, folded, series } from './query.js';

const PROMETHEUS = { type: 'prometheus', uid: '${datasource}' };
const POSTGRESQL = { type: 'postgres', uid: '${sql}' };

/** Grafana 10.2 reads this version; newer ones migrate it when they load it. */
const SCHEMA_VERSION = 38;

function list(name, label, datasource, query, how = {}) {
  const { single = false, regex = '', allValue = '.*' } = how;
  const all = { selected: true, text: ['All'], value: ['$__all'] };
  return {
    name,
    label,
    type: 'query',
    datasource,
    definition: query,
    query: datasource === PROMETHEUS ? { query, refId: name } : query,
    current: single ? {} : all,
    options: [],
    hide: 0,
    skipUrlSync: false,
    regex,
    refresh: 2,
    sort: 7,
    multi: !single,
    includeAll: !single,
    ...(single || !allValue ? {} : { allValue }),
  };
}

const labels = (metric, scope, label) => `label_values(${series(metric, scope)}, ${label})`;
const IN_CLUSTER = `cluster ~ '\${cluster:regex}'`;
const IN_RANGE = `submit_time < $__timeTo()::TIMESTAMP
  AND coalesce(end_time, now()::TIMESTAMP) > $__timeFrom()::TIMESTAMP`.replace(/\s+/g, ' ');
const distinct = (column) =>
  `SELECT DISTINCT ${column} FROM jobs WHERE ${IN_CLUSTER} AND ${IN_RANGE} ORDER BY 1`;

const IN_PARTITION = 'takt_slurm_node_partition';

/**
 * Nodes in the chosen partitions. With all partitions, and in a cluster whose partitions are not
 * known, every node.
 */
function inPartition() {
  const known = series(IN_PARTITION, CLUSTER);
  const chosen = series(IN_PARTITION, CLUSTER, 'partition=~"$partition"');
  const nodes = `group by (cluster, node)
    (${series('up', CLUSTER, 'node!=""')} or ${series('node_uname_info', CLUSTER)} or ${known})`;
  return folded(
    `${nodes} and on (cluster, node) ${chosen} or
      ${nodes} unless on (cluster) (${known} unless ${chosen})`,
  );
}

/** A column of the rate card that is in force; 0 without one. */
const inForce = (column) =>
  `SELECT coalesce((SELECT ${column} FROM rate_cards WHERE ${IN_CLUSTER}
    AND from_time <= now()::TIMESTAMP ORDER BY from_time DESC LIMIT 1), 0)`.replace(/\s+/g, ' ');

const VARIABLES = {
  cluster: () => list('cluster', 'Cluster', PROMETHEUS, 'label_values(node_uname_info, cluster)'),
  node: ({ within, ...how }) =>
    within
      ? list('node', 'Node', PROMETHEUS, `query_result(group by (node) (${inPartition()}))`, {
          regex: '/node="([^"]+)"/',
          // Without it, All is the list of the nodes in the chosen partitions.
          allValue: '',
          ...how,
        })
      : list('node', 'Node', PROMETHEUS, labels('node_uname_info', CLUSTER, 'node'), how),
  gpu: (how) =>
    list(
      'gpu',
      'GPU',
      PROMETHEUS,
      `query_result(label_join(${series('takt_gpu_info', NODE)}, "gpu", " GPU ", "node", "index"))`,
      { regex: '/gpu="(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/', ...how },
    ),
  job: (how) =>
    list('job', 'Job', PROMETHEUS, labels('takt_job_info', `${CLUSTER}, user=~"$user"`, 'jobid'), {
      single: true,
      ...how,
    }),
  user: () => list('user', 'User', PROMETHEUS, labels('takt_job_info', CLUSTER, 'user')),
  partition: () => list('partition', 'Partition', POSTGRESQL, distinct('"partition"')),
  // For boards without records.
  nodePartition: () =>
    list('partition', 'Partition', PROMETHEUS, labels(IN_PARTITION, CLUSTER, 'partition')),
  account: () => list('account', 'Account', POSTGRESQL, distinct('account')),
  // People without a job at the moment have no series; records know them.
  sqlUser: (how) => list('user', 'User', POSTGRESQL, distinct('"user"'), how),
  sqlAccount: (how) => list('account', 'Account', POSTGRESQL, distinct('account'), how),
  kwhPrice: () => list('price', 'Price of a kWh', POSTGRESQL, inForce('kwh'), { single: true }),
  kwhCo2: () =>
    list('co2', 'Grams of CO2 in a kWh', POSTGRESQL, inForce('co2_g_per_kwh'), { single: true }),
};

/** A text field, such as a budget. */
export function field(name, label, value) {
  const option = { selected: true, text: value, value };
  return {
    name,
    label,
    type: 'textbox',
    query: value,
    current: option,
    options: [option],
    hide: 0,
    skipUrlSync: false,
  };
}

/** A variable that this board does not use and carries to the next one; all values at first. */
function carried(name) {
  return { ...field(name, name, '$__all'), hide: 2 };
}

function source(name, label, type, used) {
  return {
    name,
    label,
    type: 'datasource',
    query: type,
    current: {},
    options: [],
    regex: '',
    refresh: 1,
    multi: false,
    includeAll: false,
    hide: used ? 0 : 2,
    skipUrlSync: false,
  };
}

function annotation(name, color, expr, titles, enable) {
  return {
    name,
    enable,
    hide: false,
    iconColor: color,
    datasource: PROMETHEUS,
    expr,
    step: '60s',
    titleFormat: titles[0],
    textFormat: titles[1],
    tagKeys: titles[2] ?? '',
    useValueForTime: false,
  };
}

/** Alerts, jobs and node states; each stands as a span from its first sample to its last. */
function annotations(scope, { jobs = true, job = '' } = {}) {
  const firing = series('ALERTS', CLUSTER, 'alertstate="firing"');
  const here = scope === NODE ? firing.replace('}', ', node=~"$node|"}') : firing;
  return {
    list: [
      annotation('Alerts', 'red', here, ['{{alertname}}', '{{node}} {{uuid}}', 'severity'], true),
      annotation(
        'Jobs',
        'blue',
        series('takt_job_info', scope, job),
        ['Job {{jobid}}', '{{user}} on {{node}}', 'user'],
        jobs,
      ),
      annotation(
        'Node states',
        'orange',
        series('takt_slurm_node_unavailable', scope),
        ['{{node}}: {{state}}', '{{reason}}', 'node'],
        true,
      ),
      annotation(
        'Nodes without exporter',
        'purple',
        `max by (cluster, node) (${series('up', scope, 'node!=""')}) == 0`,
        ['{{node}} does not answer', '', 'node'],
        true,
      ),
      annotation(
        'Reboots',
        'yellow',
        `changes(${series('node_boot_time_seconds', scope)}[2m]) > 0`,
        ['{{node}} rebooted', '', 'node'],
        true,
      ),
    ],
  };
}

/** A heading; panels after it belong to it. With `repeat`, once for each value of that variable. */
export function row(title, { repeat, collapsed = false } = {}) {
  return { type: 'row', title, collapsed, ...(repeat ? { repeat } : {}), panels: [] };
}

/** Puts panels side by side, and gives each its number. */
function setOut(panels) {
  let x = 0;
  let y = 0;
  let tallest = 0;
  return panels.map((panel, index) => {
    const { w, h } = panel.type === 'row' ? { w: 24, h: 1 } : panel.gridPos;
    if (x + w > 24) {
      x = 0;
      y += tallest;
      tallest = 0;
    }
    const placed = { id: index + 1, ...panel, gridPos: { x, y, w, h } };
    x += w;
    tallest = Math.max(tallest, h);
    return placed;
  });
}

/**
 * A whole board. `variables` names those of VARIABLES that it asks about, as `'user'` or as
 * `['user', {single: true}]`; `fields` are text fields; `jobs` shows job spans from the start.
 */
export function board({
  uid,
  title,
  about,
  variables,
  fields = [],
  from = 'now-6h',
  refresh = '1m',
  jobs = false,
  job,
  panels,
}) {
  const asked = variables.map((entry) => (Array.isArray(entry) ? entry : [entry]));
  const within = asked.some(([name]) => ['partition', 'nodePartition'].includes(name));
  const shown = asked.map(([name, how]) => VARIABLES[name]({ ...how, within }));
  const names = new Set(shown.map((variable) => variable.name));
  const kept = ['partition', 'account', 'user', 'node'].filter((name) => !names.has(name));
  const uses = (datasource) =>
    [...panels, ...shown].some((item) =>
      JSON.stringify(item).includes(`"uid":"${datasource.uid}"`),
    );
  const scope = names.has('node') ? NODE : CLUSTER;
  return {
    uid: `takt-${uid}`,
    title: `Takt: ${title}`,
    description: folded(about),
    tags: ['takt'],
    schemaVersion: SCHEMA_VERSION,
    version: 1,
    editable: true,
    graphTooltip: 1,
    timezone: '',
    weekStart: '',
    fiscalYearStartMonth: 0,
    liveNow: false,
    refresh,
    time: { from, to: 'now' },
    annotations: annotations(scope, { jobs, job }),
    links: [
      {
        type: 'dashboards',
        title: 'Takt',
        tags: ['takt'],
        asDropdown: true,
        keepTime: true,
        includeVars: true,
        icon: 'external link',
        targetBlank: false,
        tooltip: 'The other boards',
        url: '',
      },
    ],
    templating: {
      list: [
        source('datasource', 'Metrics', 'prometheus', true),
        source('sql', 'Records', 'postgres', uses(POSTGRESQL)),
        ...shown,
        ...fields,
        ...kept.map(carried),
      ],
    },
    panels: setOut(panels),
  };
}
