// Rules for the finished boards. Each names a mistake that people saw in Grafana and no schema finds.
// `lint.test.js` breaks a board for each of them.

import { columnsOf, room, roomOf } from './columns.js';

/** Messages about a board; none if it keeps the rules. */
export function lint(board) {
  const marks = board.annotations.list.flatMap((mark) =>
    annotation(mark, board).map((what) => `${board.uid}: annotation ${mark.name}: ${what}`),
  );
  const panels = board.panels
    .filter(({ type }) => type !== 'row')
    .flatMap((panel) => RULES.flatMap((rule) => rule(panel).map((what) => [panel, what])))
    .map(([{ title }, what]) => `${board.uid}: ${title}: ${what}`);
  return [...marks, ...panels];
}

const RULES = [emptyCells, units, absence, headings, widths, severities, colours, spans];

/** "No alert fires." between the rows of alerts that fire. */
function emptyCells({ type, fieldConfig }) {
  const [first] = fieldConfig.overrides;
  const empties =
    first?.matcher.options === '.*' &&
    first.properties.some(({ id, value }) => id === 'noValue' && value === '');
  const later = settings(fieldConfig.overrides.slice(1), 'noValue');
  return those([[type === 'table' && (!empties || later.length), 'fills empty cells with a text']]);
}

/** Grafana writes 3,175 of its hours as "18.9 weeks". A duration has the unit `s`. */
function units({ fieldConfig: { defaults, overrides } }) {
  const units = [defaults.unit, ...settings(overrides, 'unit')];
  return units
    .filter((unit) => ['m', 'h', 'd'].includes(unit))
    .map((unit) => `has the unit ${unit}, which Grafana turns into weeks; see look.js: GPU_HOURS`);
}

/** What a text claims of machines: true only if a series without a condition is absent. */
const OF_HARDWARE =
  /\b(reports?|is reported|is scraped|ha(s|ve) no|mounts? no|has NVLink|is divided)\b/;
/** A comparison that leaves out series. */
const CONDITION = /(==|!=|[<>]=?)\s*(?!bool\b)/;

/**
 * `count(x == 0)` has no value where all is well. There a text such as "No GPU here has NVLink" would
 * be wrong.
 */
function absence({ targets, fieldConfig: { defaults } }) {
  const asked = targets.filter(({ expr, refId }) => expr && refId !== 'limit');
  const mayBeWell = ({ expr }) => {
    const outside = expr.replace(/\{[^}]*\}/g, '');
    return CONDITION.test(outside) && !/ or (vector\(0\)|0 \*)/.test(outside);
  };
  return those([
    [
      asked.length && asked.every(mayBeWell) && OF_HARDWARE.test(defaults.noValue),
      `says "${defaults.noValue}" where all is well; see query.js: counted`,
    ],
  ]);
}

/** Columns that a table shows, with heading and width. */
function shown({ targets, transformations, fieldConfig: { overrides } }) {
  const organize = transformations.find(({ id }) => id === 'organize')?.options ?? {};
  const { indexByName = {}, renameByName = {}, excludeByName = {} } = organize;
  const names = targets[0].rawSql ? columnsOf(targets[0].rawSql) : Object.keys(indexByName);
  const renamed = names
    .filter((name) => !excludeByName[name])
    .map((name) => renameByName[name] ?? name);
  return [...new Set(renamed)].flatMap((name) => {
    const own = overrides.filter(({ matcher }) => matcher.options === name);
    const [hidden] = settings(own, 'custom.hidden');
    const title = settings(own, 'displayName').at(-1) ?? name;
    return hidden ? [] : [{ name, title, width: settings(own, 'custom.width').at(-1) }];
  });
}

/** Names of columns and labels that are no words. */
const NO_WORDS = /_|^(alertname|alertstate|cpus|gpus|jobid|mountpoint|qos|uuid|xid)$/;

function headings(panel) {
  return tableOnly(panel)
    .filter(({ title }) => NO_WORDS.test(title))
    .map(({ title }) => `has the heading ${title}; give it words in columns.js`);
}

/** A column beyond the right edge is not seen. */
function widths(panel) {
  const needed = tableOnly(panel).reduce((sum, { title, width }) => sum + room(title, width), 0);
  const has = roomOf(panel.gridPos.w);
  return those([
    [
      needed > has,
      `needs ${needed} of ${has} pixels; leave out columns, or set widths in columns.js`,
    ],
  ]);
}

const tableOnly = (panel) => (panel.type === 'table' ? shown(panel) : []);

/** As a text, critical sorts after all others; `ranked` and RANK are numbers. */
function severities(panel) {
  const isText = ({ expr = '', rawSql = '' }) =>
    /\bby \([^)]*\bseverity\b/.test(expr) || columnsNamed(rawSql, 'severity');
  return those([
    [
      panel.type === 'table' && panel.targets.some(isText),
      'sorts severities by their names; see query.js: ranked, RANK',
    ],
  ]);
}

/** Whether the last SELECT has a column as it is, not computed. */
const columnsNamed = (statement, name) =>
  new RegExp(`(?<!AS )\\b${name}\\b(?=,| FROM)`).test(
    statement.slice(statement.lastIndexOf('SELECT ')),
  );

/** Grafana's palette begins with green, whatever the first series is. */
function colours({ type, targets, fieldConfig: { overrides } }) {
  const OF_STATES = /^\{\{(severity|state)\}\}$/;
  const isOfStates = ({ legendFormat = '', rawSql = '' }) =>
    OF_STATES.test(legendFormat) ||
    /\b(severity|state)\b[^,]* AS metric|SELECT state\b/.test(rawSql);
  return those([
    [
      type !== 'table' &&
        type !== 'stat' &&
        targets.some(isOfStates) &&
        !settings(overrides, 'color').length,
      'draws states in colours without meaning; set colors',
    ],
  ]);
}

/** All rows green, and "-∞+" below them. */
function spans({ type, options, targets, fieldConfig: { defaults } }) {
  if (type !== 'state-timeline') return [];
  return those([
    [options.legend.showLegend, 'has a legend, which shows limits'],
    [
      targets.some(({ expr }) => !/\btopk\(|jobid=~"\$job"/.test(expr)),
      'has a row for every job; see query.js: jobsOnGpus',
    ],
    [
      defaults.color.mode === 'thresholds' && !defaults.mappings.length,
      'draws every value in one colour',
    ],
  ]);
}

/** What overrides set the property `wanted` to. */
function settings(overrides, wanted) {
  return overrides
    .flatMap(({ properties }) => properties)
    .filter(({ id }) => id === wanted)
    .map(({ value }) => value);
}

/** Spans of alerts and jobs cover the curves, and those of all jobs are the dearest query of a board. */
function annotation({ expr }, board) {
  return those([
    [
      !/ offset \$__interval\b|\bchanges\(/.test(expr),
      'marks everything between beginning and end; ask for beginnings (query.js: begins)',
    ],
    [/==\s*0\b/.test(expr), 'has the value 0, which Grafana does not mark'],
    [
      /\btakt_job_info\b/.test(expr) && board.uid !== 'takt-job',
      'marks jobs, which only the board of a job may',
    ],
  ]);
}

/** The messages whose condition holds. */
function those(conditions) {
  return conditions.filter(([holds]) => holds).map(([, what]) => what);
}
