// Queries: label selectors, PromQL and SQL targets, limits from the rules.

import { readFileSync } from 'node:fs';

const RULES = new URL('../rules/thresholds.rules.yml', import.meta.url);

/** Default limits by name, from the rule file that also serves the alerts. */
const LIMITS = new Map(
  [
    ...readFileSync(RULES, 'utf8').matchAll(/labels: \{name: (\w+)\}, expr: vector\(([^)]+)\)/g),
  ].map(([, name, value]) => [name, Number(value)]),
);

/** The default of the limit `name`; fails if no rule sets it. */
export function limitDefault(name) {
  if (!LIMITS.has(name)) throw new Error(`no takt_threshold named ${name}`);
  return LIMITS.get(name);
}

/** A text of several lines as one. */
export function folded(text) {
  return text.replace(/\s+/g, ' ').trim();
}

/** Label matchers of a board's variables. Each query has the one for the cluster. */
export const CLUSTER = 'cluster=~"$cluster"';
export const NODE = `${CLUSTER}, node=~"$node"`;
export const GPU = `${NODE}, uuid=~"$gpu"`;
export const USER = `${CLUSTER}, user=~"$user"`;
export const JOB = `${CLUSTER}, jobid=~"$job"`;

/** `metric{scope, more}` */
export function series(metric, scope, more = '') {
  return `${metric}{${scope}${more ? `, ${more}` : ''}}`;
}

/** A GPU's series with its index, which people know, beside its UUID. */
export function indexed(expr, scope = NODE) {
  const info = `max by (cluster, node, uuid, index) (${series('takt_gpu_info', scope)})`;
  return `(${expr}) * on (cluster, node, uuid) group_left (index) ${info}`;
}

/** Only the GPUs of the chosen job. */
export function ofJob(expr, on = 'cluster, node, uuid', info = 'takt_gpu_job_info') {
  return `(${expr}) and on (${on}) ${series(info, JOB)}`;
}

/**
 * Without the jobs that the scheduler knows in another account or partition than the chosen ones.
 * Without a scheduler every job stays.
 */
export function ofAccount(expr) {
  const known = series('takt_slurm_job_info', CLUSTER);
  const chosen = series(
    'takt_slurm_job_info',
    CLUSTER,
    'account=~"$account", partition=~"$partition"',
  );
  return `(${expr} unless on (cluster, jobid) (${known} unless ${chosen}))`;
}

/**
 * `expr` for the `count` highest by `rank`, the same ones at every step: `rank` looks at the whole
 * time range (`[$__range] @ end()`), so a line does not come and go.
 */
export function highest(count, expr, by, rank) {
  return `(${expr}) and on (${by}) topk(${count}, ${rank})`;
}

/**
 * How many series `found` has; 0 where `all` has some, and no value without any. So the text for no
 * value is shown only where nothing is reported.
 */
export function counted(found, all) {
  return `count(${found}) or 0 * count(${all})`;
}

/**
 * The first steps at which `expr` has a value. It gets what stands after its selector, and answers
 * with the labels `by`.
 */
export function begins(expr, by) {
  return `${expr('')} unless on (${by}) ${expr(' offset $__interval')}`;
}

/** Severities of alerts, with their rank: tables sort by it. */
const RANKS = { critical: 3, warning: 2, info: 1 };

/** The rank of the alerts that `matchers` choose, by `labels`; 0 for other severities. */
export function ranked(labels, scope, matchers) {
  const of = (severity) => series('ALERTS', scope, `${matchers}, severity${severity}`);
  const ranks = Object.entries(RANKS).map(([name, rank]) => `${rank} * ${of(`="${name}"`)}`);
  const others = `0 * ${of(`!~"${Object.keys(RANKS).join('|')}"`)}`;
  return `max by (${labels}) (${[...ranks, others].join(' or ')})`;
}

/** The same rank in SQL. */
export const RANK = `CASE severity ${Object.entries(RANKS)
  .map(([name, rank]) => `WHEN '${name}' THEN ${rank}`)
  .join(' ')} ELSE 0 END`;

/** Jobs on GPUs over time, a series for each of the forty longest; a week has thousands. */
export function jobsOnGpus(scope, more = '') {
  const by = 'cluster, node, uuid, jobid';
  const held = series('takt_gpu_job_info', scope, more);
  const rank = `max by (${by}) (count_over_time(${held}[$__range] @ end()))`;
  return highest(40, held, by, rank);
}

const PROMETHEUS = { type: 'prometheus', uid: '${datasource}' };
// Grafana from 10.2.3 calls the plugin grafana-postgresql-datasource; this name is its alias.
const POSTGRESQL = { type: 'postgres', uid: '${sql}' };

/** A PromQL range query. */
export function range(expr, legend) {
  return {
    datasource: PROMETHEUS,
    expr: folded(expr),
    legendFormat: legend,
    range: true,
    instant: false,
  };
}

/** A PromQL query of the end of the time range. */
export function instant(expr, legend = '__auto') {
  return { ...range(expr, legend), range: false, instant: true };
}

/** The same as rows of a table, a column for each label. */
export function rows(expr) {
  return { ...instant(expr), format: 'table' };
}

/** An SQL statement; `format` is `table` or `time_series`. */
export function sql(statement, format = 'table') {
  return {
    datasource: POSTGRESQL,
    rawSql: folded(statement),
    rawQuery: true,
    editorMode: 'code',
    format,
  };
}

/** Start and end of the time range in SQL. */
export const FROM = '$__timeFrom()::TIMESTAMP';
export const TO = '$__timeTo()::TIMESTAMP';

/** The condition of a variable on a column of SQL. `~` matches the whole text. */
export function chosen(...names) {
  return names
    .map((name) => `${column(name)} ~ '\${${name.split('.').at(-1)}:regex}'`)
    .join(' AND ');
}

function column(name) {
  const parts = name.split('.');
  const last = parts.pop();
  const quoted = ['user', 'partition'].includes(last) ? `"${last}"` : last;
  return [...parts, quoted].join('.');
}

const RUN_END = `coalesce(end_time, now()::TIMESTAMP)`;

/** Seconds of a run inside the time range. */
export const SECONDS = `greatest(0, epoch(least(${RUN_END}, ${TO})) - epoch(greatest(start_time,
  ${FROM})))`;

/** Runs of the chosen clusters, partitions, accounts and users that ran in the time range. */
export const RUNS =
  `start_time < ${TO} AND ${RUN_END} > ${FROM} ` +
  `AND ${chosen('cluster', 'partition', 'account', 'user')}`;

/** Runs of the same choice that ended in the time range. */
export const ENDED =
  `end_time >= ${FROM} AND end_time < ${TO} ` +
  `AND ${chosen('cluster', 'partition', 'account', 'user')}`;

/**
 * The first columns of a table of jobs: `job_id` is Slurm's, `jobid` the number that nodes know it
 * by; `from_ms` and `to_ms` are its time for links, in milliseconds.
 */
export const JOB_COLUMNS = `cluster, job_id, coalesce(raw_job_id, job_id) AS jobid, "user", account,
  "partition",
  epoch_ms(coalesce(start_time, submit_time)) AS from_ms, epoch_ms(${RUN_END}) AS to_ms`;

/** The efficiency of finished jobs, beside their records. */
export const ASSESSED = 'jobs JOIN run_efficiency USING (cluster, job_id, submit_time)';

/** Hours of a column's amount inside the time range. */
export const hours = (column) => `sum(${column} * ${SECONDS}) / 3600`;

/** Instants from `start` to the end of the time range; generate_series takes constants only. */
export function instants(name, start, step) {
  return `SELECT ${name} FROM (SELECT ${start} + i * ${step} AS ${name} FROM (SELECT
    unnest(generate_series(0, 10000)) AS i))
    WHERE ${name} < least(${TO}, now()::TIMESTAMP)`;
}

/**
 * Rows of `from` with `day_start`: the midnight of the cluster's clocks before `instant`. Days have
 * 23 and 25 hours where the clocks change.
 */
export const dated = (from, instant) =>
  `${from} ASOF JOIN (SELECT cluster AS day_cluster, day_start FROM days) AS calendar
    ON day_cluster = cluster AND ${instant} >= day_start`;

/** Hours by day and `by`, the ten largest by name. A run is cut at midnight of its cluster. */
export function daily(column, by) {
  return `WITH held AS (
      SELECT day_start, ${by} AS name, sum(${column} * greatest(0, epoch(least(${RUN_END}, day_end,
        ${TO})) - epoch(greatest(start_time, day_start, ${FROM})))) / 3600 AS hours
      FROM days JOIN jobs USING (cluster)
      WHERE day_start < ${TO} AND day_end > ${FROM} AND start_time < day_end
        AND ${RUN_END} > day_start AND ${RUNS} GROUP BY ALL),
    largest AS (SELECT name FROM held GROUP BY name ORDER BY sum(hours) DESC NULLS LAST LIMIT 10)
    SELECT day_start AS time, CASE WHEN name IN (SELECT name FROM largest) THEN name ELSE 'others'
      END AS metric, sum(hours) AS "hours"
    FROM held GROUP BY ALL ORDER BY time, metric`;
}

/** Hours of a row of `job_prices` inside the time range. */
const PRICED_HOURS = `greatest(0, epoch(least(coalesce(until_time, now()::TIMESTAMP), ${TO})) -
  epoch(greatest(from_time, ${FROM}))) / 3600`;

/** Money for what runs held, and for the energy that their GPUs drew. */
export const MONEY = {
  held: `sum(money_per_hour * ${PRICED_HOURS})`,
  energy: `sum(energy_money_per_hour * ${PRICED_HOURS})`,
};

/** Priced runs of the choice that ran in the time range. */
export const PRICED =
  `FROM job_prices WHERE from_time < ${TO} ` +
  `AND coalesce(until_time, now()::TIMESTAMP) > ${FROM} ` +
  `AND ${chosen('cluster', 'partition', 'account', 'user')}`;
