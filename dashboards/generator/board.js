// A board: variables, annotations, links to the others, and panels set out in lines of 24 columns.

import { CLUSTER, NODE, begins, folded, series } from './query.js';

const PROMETHEUS = { type: 'prometheus', uid: '${datasource}' };
const POSTGRESQL = { type: 'postgres', uid: '${sql}' };

/** Grafana 10.2 reads this version; newer ones migrate it when they load it. */
const SCHEMA_VERSION = 38;

/** Grafana's orders of the values of a variable. */
const SORT = { none: 0, highestNumber: 4, names: 7 };

function list(name, label, datasource, query, how = {}) {
  const { single = false, regex = '', allValue = '.*', sort = SORT.names } = how;
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
    sort,
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

/** Every node, by its cluster and name. */
const NODES = `group by (cluster, node)
  ({__name__=~"up|node_uname_info|${IN_PARTITION}", ${CLUSTER}, node!=""})`;
const WITH_GPUS = `group by (cluster, node) (${series('takt_gpu_info', CLUSTER)})`;

/**
 * Nodes in the chosen partitions. With all partitions, and in a cluster whose partitions are not
 * known, every node.
 */
function inPartition() {
  const known = series(IN_PARTITION, CLUSTER);
  const chosen = series(IN_PARTITION, CLUSTER, 'partition=~"$partition"');
  return `(${NODES} and on (cluster, node) ${chosen} or
    ${NODES} unless on (cluster) (${known} unless ${chosen}))`;
}

/**
 * One of `nodes`, for boards that show one. They are in this order, and the first is opened: critical
 * alerts, warnings, GPUs.
 */
function oneNode(nodes) {
  const alerts = (severity) =>
    `group by (cluster, node)
      (${series('ALERTS', CLUSTER, `alertstate="firing", severity="${severity}", node!=""`)})`;
  const trouble = `(4 * ${alerts('critical')} or 2 * ${alerts('warning')} or 0 * ${NODES})`;
  const gpus = `(${WITH_GPUS} or 0 * ${NODES})`;
  const ranked = `${nodes} + on (cluster, node) ${trouble} + on (cluster, node) ${gpus}`;
  return list(
    'node',
    'Node',
    PROMETHEUS,
    folded(`query_result(sort_desc(max by (node) (${ranked})))`),
    { single: true, regex: '/node="([^"]+)"/', sort: SORT.none },
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
      ? list('node', 'Node', PROMETHEUS, folded(`query_result(group by (node) ${inPartition()})`), {
          regex: '/node="([^"]+)"/',
          // Without it, All is the list of the nodes in the chosen partitions.
          allValue: '',
          ...how,
        })
      : list('node', 'Node', PROMETHEUS, labels('node_uname_info', CLUSTER, 'node'), how),
  oneNode: () => oneNode(inPartition()),
  // Without the nodes that the board could show nothing of.
  oneGpuNode: () => oneNode(`(${inPartition()} and on (cluster, node) ${WITH_GPUS})`),
  gpu: (how) =>
    list(
      'gpu',
      'GPU',
      PROMETHEUS,
      `query_result(label_join(${series('takt_gpu_info', NODE)}, "gpu", " GPU ", "node", "index"))`,
      { regex: '/gpu="(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/', ...how },
    ),
  job: (how) =>
    list(
      'job',
      'Job',
      PROMETHEUS,
      // label_values lists jobs of whole blocks, which may be older than the time range.
      folded(`query_result(group by (jobid)
        (last_over_time(${series('takt_job_info', `${CLUSTER}, user=~"$user"`)}[$__range])))`),
      { single: true, regex: '/jobid="([^"]+)"/', sort: SORT.highestNumber, ...how },
    ),
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

function annotation(name, color, expr, titles) {
  return {
    name,
    enable: true,
    hide: false,
    iconColor: color,
    datasource: PROMETHEUS,
    expr: folded(expr),
    step: '60s',
    titleFormat: titles[0],
    textFormat: titles[1],
    tagKeys: titles[2] ?? '',
    useValueForTime: false,
  };
}

/** Marks where alerts, node states and the like begin. The board of a job marks the job as well. */
function annotations(scope, job) {
  const firing = series('ALERTS', CLUSTER, 'alertstate="firing", alertname!="Watchdog"');
  const here = scope === NODE ? firing.replace('}', ', node=~"$node|"}') : firing;
  const of = (selector, by) => begins((offset) => `max by (${by}) (${selector}${offset})`, by);
  // Grafana drops values of 0.
  const down = (offset) =>
    `(1 - max by (cluster, node) (${series('up', scope, 'node!=""')}${offset}) == 1)`;
  const expressions = {
    alerts: of(here, 'cluster, node, alertname, uuid, severity'),
    states: of(series('takt_slurm_node_unavailable', scope), 'cluster, node, state, reason'),
    down: begins(down, 'cluster, node'),
    reboots: `changes(${series('node_boot_time_seconds', scope)}[$__interval]) > 0`,
  };
  const jobs = job
    ? [annotation('Jobs', 'blue', changes(job), ['Job {{jobid}} {{change}}', '{{user}}'])]
    : [];
  return {
    list: [
      annotation('Alerts', 'red', expressions.alerts, [
        '{{alertname}}',
        '{{node}} {{uuid}}',
        'severity',
      ]),
      ...jobs,
      annotation('Node states', 'orange', expressions.states, [
        '{{node}}: {{state}}',
        '{{reason}}',
        'node',
      ]),
      annotation('Nodes without exporter', 'purple', expressions.down, [
        '{{node}} does not answer',
        '',
        'node',
      ]),
      annotation('Reboots', 'yellow', expressions.reboots, ['{{node}} rebooted', '', 'node']),
    ],
  };
}

/** Where the jobs of a selector start and end, on whichever node. */
function changes(jobs) {
  const held = (offset) => `group by (cluster, jobid, user) (${jobs}${offset})`;
  const [now, before] = [held(''), held(' offset $__interval')];
  const named = (change, expr) => `label_replace(${expr}, "change", "${change}", "", "")`;
  const starts = named('starts', `${now} unless ${before}`);
  return `${starts} or ${named('ends', `${before} unless ${now}`)}`;
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
 * `['user', {single: true}]`; `fields` are text fields; `job` is the selector of the jobs that the
 * board marks.
 */
export function board({
  uid,
  title,
  about,
  variables,
  fields = [],
  from = 'now-6h',
  refresh = '1m',
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
    annotations: annotations(scope, job),
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
