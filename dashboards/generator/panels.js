// Panels. Each needs `title`, `about` (meaning, and when to worry), `unit`, `none` (why it may have
// no data) and its queries; a panel without one of them is refused.

import { folded, instant, limitDefault } from './query.js';
import { NARROWEST, columnsOf, heading, known, width } from './columns.js';
import { GREEN, GREY, ORANGE, RED, fromColumns } from './look.js';

const WIDTHS = {
  stat: 3,
  gauge: 3,
  timeseries: 12,
  table: 24,
  bargauge: 8,
  barchart: 12,
  heatmap: 12,
  'status-history': 24,
  'state-timeline': 24,
  piechart: 6,
};
/** Panels that write the text for no value in the colour of a value, such as green. */
const FIGURES = new Set(['stat', 'bargauge']);
const NO_VALUE = [
  { type: 'special', options: { match: 'null+nan', result: { color: GREY, index: 99 } } },
];
const HEIGHTS = { stat: 4, gauge: 4 };

/** Colours by value: pairs of a lower bound and a colour, above a first colour without bound. */
export function steps(base, ...levels) {
  return {
    mode: 'absolute',
    steps: [{ color: base, value: null }, ...levels.map(([value, color]) => ({ color, value }))],
  };
}

/** Red from `value` on. */
export const badFrom = (value) => steps(GREEN, [value, RED]);
/** Orange from `some` on, red from `much` on. */
export const worseFrom = (some, much) => steps(GREEN, [some, ORANGE], [much, RED]);

/**
 * A limit of the rules: the colour changes at the value of `takt_threshold`, or at the default.
 * `limit` is its name, or `[name, f, g]` with `f` for numbers and `g` for the same in PromQL.
 */
function limited(limit) {
  if (!limit) return { targets: [], transformations: [] };
  const [name, number, promql] = Array.isArray(limit) ? limit : [limit, (x) => x, (x) => x];
  const expr = promql(`max(takt_threshold{cluster=~"$cluster|", name="${name}"})`);
  return {
    thresholds: badFrom(Number(number(limitDefault(name)).toPrecision(6))),
    targets: [{ ...instant(expr, 'limit'), refId: 'limit' }],
    transformations: [
      {
        id: 'configFromData',
        options: {
          configRefId: 'limit',
          mappings: [{ fieldName: 'limit', handlerKey: 'threshold1' }],
        },
      },
    ],
  };
}

const letters = (index) => String.fromCharCode(65 + index);

function panel(type, spec, { options, custom = {}, overrides = [], transformations = [] }) {
  for (const key of ['title', 'about', 'unit', 'none', 'targets']) {
    if (!spec[key]?.length) throw new Error(`panel "${spec.title}" lacks ${key}`);
  }
  const limit = limited(spec.limit);
  const defaults = {
    unit: spec.unit,
    noValue: folded(spec.none),
    color: spec.color ?? { mode: 'palette-classic' },
    mappings: [...(spec.mappings ?? []), ...(FIGURES.has(type) ? NO_VALUE : [])],
    thresholds: spec.thresholds ?? limit.thresholds ?? steps(GREEN),
    links: spec.links ?? [],
    custom,
  };
  for (const key of ['min', 'max', 'decimals'])
    if (spec[key] !== undefined) defaults[key] = spec[key];
  const made = {
    type,
    title: spec.title,
    description: folded(spec.about),
    datasource: { type: 'mixed', uid: '-- Mixed --' },
    gridPos: { w: spec.width ?? WIDTHS[type], h: spec.height ?? HEIGHTS[type] ?? 8 },
    fieldConfig: { defaults, overrides: [...overrides, ...coloured(spec.colors)] },
    options,
    targets: [
      ...spec.targets.map((target, index) => ({ ...target, refId: letters(index) })),
      ...limit.targets,
    ],
    transformations: [...limit.transformations, ...transformations],
  };
  const sources = new Set(made.targets.map((target) => JSON.stringify(target.datasource)));
  if (sources.size === 1) made.datasource = made.targets[0].datasource;
  for (const key of ['maxDataPoints', 'interval', 'timeFrom']) if (spec[key]) made[key] = spec[key];
  return made;
}

/** Fixed colours of series by name: `{critical: RED}`. Without them Grafana draws `critical` green. */
function coloured(colors = {}) {
  return Object.entries(colors).map(([name, fixedColor]) => ({
    matcher: { id: 'byName', options: name },
    properties: [{ id: 'color', value: { mode: 'fixed', fixedColor } }],
  }));
}

/** One or a few figures. */
export function stat(spec) {
  return panel(
    'stat',
    { color: { mode: 'thresholds' }, ...spec },
    {
      options: {
        colorMode: spec.colorMode ?? 'value',
        graphMode: spec.spark ? 'area' : 'none',
        justifyMode: 'auto',
        orientation: 'auto',
        textMode: spec.textMode ?? (spec.targets.length > 1 ? 'value_and_name' : 'auto'),
        reduceOptions: {
          calcs: ['lastNotNull'],
          fields: spec.fields ?? '',
          values: spec.values ?? false,
        },
      },
    },
  );
}

/** Lines over time. `stack` piles them up. */
export function lines(spec) {
  const limit = spec.limit || spec.thresholds;
  return panel('timeseries', spec, {
    options: {
      legend: {
        displayMode: spec.legend ?? 'list',
        placement: spec.legend === 'table' ? 'right' : 'bottom',
        showLegend: true,
        calcs: spec.legend === 'table' ? ['mean', 'max', 'lastNotNull'] : [],
      },
      tooltip: { mode: 'multi', sort: 'desc' },
    },
    custom: {
      drawStyle: spec.bars ? 'bars' : 'line',
      lineWidth: 1,
      fillOpacity: spec.bars ? 80 : spec.stack ? 60 : 8,
      showPoints: 'never',
      spanNulls: false,
      stacking: { mode: spec.stack ? 'normal' : 'none', group: 'A' },
      thresholdsStyle: { mode: limit ? 'dashed' : 'off' },
    },
  });
}

/** Bars, one for each of a few series, longest first. */
export function bars(spec) {
  return panel(
    'bargauge',
    { color: { mode: 'thresholds' }, ...spec },
    {
      options: {
        displayMode: 'basic',
        orientation: 'horizontal',
        showUnfilled: true,
        minVizHeight: 10,
        minVizWidth: 0,
        // Without a size, the text for no value fills the panel.
        text: { titleSize: 13, valueSize: 13 },
        valueMode: 'color',
        reduceOptions: {
          calcs: ['lastNotNull'],
          fields: '',
          values: spec.values ?? false,
          limit: 25,
        },
      },
      transformations: spec.transformations,
    },
  );
}

/** Columns from rows of SQL: the first column names them. */
export function columns(spec) {
  return panel('barchart', spec, {
    options: {
      orientation: spec.orientation ?? 'horizontal',
      stacking: spec.stack ? 'normal' : 'none',
      showValue: 'auto',
      barWidth: 0.8,
      groupWidth: 0.8,
      xTickLabelRotation: 0,
      legend: {
        displayMode: 'list',
        placement: 'bottom',
        showLegend: Boolean(spec.stack),
        calcs: [],
      },
      tooltip: { mode: 'multi', sort: 'none' },
    },
    custom: { fillOpacity: 80, lineWidth: 0 },
  });
}

/** How many have which value, over time. Each series is one step of the scale. */
export function heat(spec) {
  return panel(
    'heatmap',
    { maxDataPoints: 200, ...spec },
    {
      options: {
        calculate: false,
        cellGap: 1,
        cellValues: { unit: 'short' },
        color: {
          mode: 'scheme',
          scheme: 'Blues',
          fill: 'blue',
          scale: 'exponential',
          exponent: 0.5,
          steps: 64,
          reverse: false,
        },
        exemplars: { color: 'rgba(255,0,255,0.7)' },
        filterValues: { le: 1e-9 },
        legend: { show: true },
        rowsFrame: { layout: 'auto' },
        // `show` is for Grafana 10.2, `mode` for later ones.
        tooltip: { show: true, mode: 'single', yHistogram: false },
        yAxis: { axisPlacement: 'left', unit: spec.unit, reverse: false },
      },
    },
  );
}

/** A row of coloured cells for each series. */
export function cells(spec) {
  return panel(
    'status-history',
    { maxDataPoints: 96, color: { mode: 'continuous-BlPu' }, ...spec },
    {
      options: {
        rowHeight: 0.9,
        colWidth: 1,
        showValue: 'never',
        legend: { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] },
        tooltip: { mode: 'single', sort: 'none' },
      },
      custom: { fillOpacity: 90, lineWidth: 0 },
    },
  );
}

/**
 * A row of coloured spans for each series, in the colours of its `mappings`, or a colour for each row.
 * A legend of limits would say "-∞+".
 */
export function spans(spec) {
  const color = { mode: spec.mappings ? 'thresholds' : 'palette-classic' };
  return panel(
    'state-timeline',
    { color, maxDataPoints: 300, ...spec },
    {
      options: {
        mergeValues: true,
        rowHeight: 0.8,
        alignValue: 'left',
        showValue: spec.showValue ?? 'never',
        legend: { displayMode: 'list', placement: 'bottom', showLegend: false, calcs: [] },
        tooltip: { mode: 'single', sort: 'none' },
      },
      custom: { fillOpacity: 80, lineWidth: 0 },
    },
  );
}

/** Shares of a whole. */
export function pie(spec) {
  return panel('piechart', spec, {
    options: {
      pieType: 'donut',
      displayLabels: [],
      legend: {
        displayMode: 'table',
        placement: 'right',
        showLegend: true,
        calcs: [],
        values: ['percent'],
      },
      tooltip: { mode: 'single', sort: 'none' },
      reduceOptions: { calcs: ['lastNotNull'], fields: '', values: spec.values ?? false },
    },
  });
}

/** The text for no value is that of a table without rows. In a cell it would be a lie. */
const EMPTY_CELLS = {
  matcher: { id: 'byRegexp', options: '.*' },
  properties: [{ id: 'noValue', value: '' }],
};

/**
 * A table. `columns` maps a column to how it differs from the panel: `unit`, `thresholds`,
 * `mappings`, `link`, `bar`, `name` (its heading, if columns.js has another), `width`, `hidden`.
 * Columns such as `node`, `user` and `job_id` link by themselves. The cluster is the last column: most
 * sites have one.
 */
export function table(spec) {
  const links = fromColumns();
  const linked = {
    node: 'node',
    user: 'user',
    account: 'account',
    jobid: 'job',
    job_id: 'record',
    uuid: 'uuid',
    index: 'gpu',
    partition: 'partition',
  };
  const [{ rawSql }] = spec.targets;
  const selected = rawSql ? columnsOf(rawSql) : [];
  const hidden = selected.includes('from_ms') ? ['jobid', 'from_ms', 'to_ms'] : [];

  const overrides = [EMPTY_CELLS];
  for (const name of known) {
    const own = (spec.columns ?? {})[name] ?? {};
    const title = heading(name);
    overrides.push(
      override(name, {
        name: own.name || title === name ? undefined : title,
        width: own.width ?? width(name),
        link: own.link === false ? undefined : links[own.link ?? linked[name]],
      }),
    );
  }
  for (const name of hidden) overrides.push(override(name, { hidden: true }));
  for (const [name, column] of Object.entries(spec.columns ?? {}))
    overrides.push(override(name, known.includes(name) ? { ...column, width: undefined } : column));

  const present = rawSql ? new Set(selected) : shownOf(spec.transformations);
  const isPresent = ({ matcher: { id, options } }) => id !== 'byName' || present.has(options);
  return panel(
    'table',
    { color: { mode: 'thresholds' }, ...spec, columns: undefined },
    {
      options: {
        showHeader: true,
        cellHeight: 'sm',
        sortBy: spec.sort ? [{ displayName: spec.sort, desc: true }] : [],
      },
      custom: {
        align: 'auto',
        cellOptions: { type: 'auto' },
        inspect: false,
        filterable: true,
        minWidth: NARROWEST,
      },
      overrides: overrides.filter((made) => made.properties.length && isPresent(made)),
      transformations: spec.transformations ?? clusterLast(selected),
    },
  );
}

/** Columns that a joined table shows. */
function shownOf(transformations) {
  const { indexByName, renameByName } = transformations.find(({ id }) => id === 'organize').options;
  return new Set(Object.keys(indexByName).map((name) => renameByName[name] ?? name));
}

/** The columns of a statement in their order, the cluster last. */
function clusterLast(selected) {
  if (!selected.includes('cluster')) return [];
  const order = [...selected.filter((name) => name !== 'cluster'), 'cluster'];
  const indexByName = Object.fromEntries(order.map((name, index) => [name, index]));
  return [{ id: 'organize', options: { excludeByName: {}, indexByName, renameByName: {} } }];
}

function override(name, column) {
  const properties = [];
  const set = (id, value) => {
    if (value !== undefined) properties.push({ id, value });
  };
  set('unit', column.unit);
  set('decimals', column.decimals);
  set('mappings', column.mappings);
  set('thresholds', column.thresholds);
  set('min', column.min);
  set('max', column.max);
  set('displayName', column.name);
  set('custom.hidden', column.hidden);
  set('custom.width', column.width);
  if (typeof column.link === 'object') set('links', [column.link]);
  if (column.bar) set('custom.cellOptions', { type: 'gauge', mode: 'basic' });
  else if (column.thresholds || column.mappings) set('custom.cellOptions', { type: 'color-text' });
  return { matcher: { id: 'byName', options: name }, properties };
}

/** Where the values stand in the `order` of a joined table; at its end without this mark. */
export const VALUES = '…';

/**
 * The transformations that make one table of several instant PromQL queries. `headings` name their
 * values; an empty one hides a value whose labels alone count. `order` has the labels, and headings
 * that stand elsewhere than at VALUES.
 */
export function joined(headings, order = []) {
  const renameByName = {};
  const excludeByName = {
    Time: true,
    __name__: true,
    job: true,
    instance: !order.includes('instance'),
  };
  const valuesOf = (index) =>
    headings.length === 1 ? ['Value', 'Value #A'] : [`Value #${letters(index)}`];
  headings.forEach((title, index) => {
    for (const value of valuesOf(index)) {
      if (title) renameByName[value] = title;
      else excludeByName[value] = true;
    }
  });

  const [before, after = []] = order.includes(VALUES)
    ? [order.slice(0, order.indexOf(VALUES)), order.slice(order.indexOf(VALUES) + 1)]
    : [order];
  const elsewhere = headings.filter((title) => title && !order.includes(title));
  const sequence = [...before, ...elsewhere, ...after]
    .flatMap((name) => (headings.includes(name) ? valuesOf(headings.indexOf(name)) : [name]))
    .filter((name) => name !== 'cluster');
  const indexByName = Object.fromEntries([...sequence, 'cluster'].map((name, i) => [name, i]));
  return [
    { id: 'merge', options: {} },
    { id: 'organize', options: { excludeByName, indexByName, renameByName } },
  ];
}
