// What is shown of usage: panels over job records that the user's and the account's boards share.

import {
  ASSESSED,
  ENDED,
  FROM,
  MONEY,
  PRICED,
  RUNS,
  TO,
  chosen,
  daily,
  hours,
  sql,
} from './query.js';
import { CPU_HOURS, ENDINGS, GPU_HOURS } from './look.js';
import { columns, lines, pie, stat, steps, table, worseFrom } from './panels.js';

export const NO_JOBS =
  'No job of this choice held anything in the time range, or no job records are read.';
export const NO_ASSESSMENT = 'No job of this choice ended and was assessed in the time range.';

/** A share of the GPU hours that were measured. */
export const SHARE_USED =
  'sum(used_gpu_seconds) / nullif(sum(held_gpu_seconds - unmeasured_gpu_seconds), 0)';

/** Figures of the whole choice. */
export const totals = [
  stat({
    title: 'GPU-hours',
    unit: GPU_HOURS,
    none: NO_JOBS,
    width: 4,
    decimals: 1,
    thresholds: steps('text'),
    about: `GPUs held times hours, cut at the ends of the time range, used or not. Running jobs
      count up
        to now.`,
    targets: [sql(`SELECT ${hours('gpus')} AS "GPU-hours" FROM jobs WHERE ${RUNS}`)],
  }),
  stat({
    title: 'CPU-hours',
    unit: CPU_HOURS,
    none: NO_JOBS,
    width: 4,
    decimals: 1,
    thresholds: steps('text'),
    about: 'CPUs held times hours, cut at the ends of the time range.',
    targets: [sql(`SELECT ${hours('cpus')} AS "CPU-hours" FROM jobs WHERE ${RUNS}`)],
  }),
  stat({
    title: 'Jobs started',
    unit: 'short',
    none: NO_JOBS,
    width: 4,
    thresholds: steps('text'),
    about: 'Jobs that started in the time range; each task of an array counts.',
    targets: [
      sql(`SELECT count(*) AS "jobs" FROM jobs WHERE start_time >= ${FROM} AND start_time < ${TO}
      AND ${chosen('cluster', 'partition', 'account', 'user')}`),
    ],
  }),
  stat({
    title: 'Users',
    unit: 'none',
    none: NO_JOBS,
    width: 4,
    thresholds: steps('text'),
    about: 'Users with a job in the time range.',
    targets: [sql(`SELECT count(DISTINCT "user") AS "users" FROM jobs WHERE ${RUNS}`)],
  }),
  stat({
    title: 'GPU hours in use',
    unit: 'percentunit',
    none: NO_ASSESSMENT,
    width: 4,
    decimals: 0,
    thresholds: steps('red', [0.3, 'orange'], [0.5, 'green']),
    about: `Share of the measured GPU hours of finished jobs in which a GPU worked. The rest is on
      the
        waste board.`,
    targets: [sql(`SELECT ${SHARE_USED} AS "used" FROM ${ASSESSED} WHERE ${ENDED}`)],
  }),
  stat({
    title: 'Lost to failed jobs',
    unit: GPU_HOURS,
    none: NO_JOBS,
    width: 4,
    decimals: 1,
    thresholds: steps('text'),
    about: `GPU hours of jobs that ended as failed, out of time, out of memory or with a broken
      node.
        Checkpoints save some of it.`,
    targets: [
      sql(`SELECT coalesce(${hours('gpus')}, 0) AS "GPU-hours" FROM jobs WHERE ${RUNS}
      AND state IN ('FAILED', 'TIMEOUT', 'OUT_OF_MEMORY', 'NODE_FAIL')`),
    ],
  }),
];

/** GPU-hours and CPU-hours over days, split by `by`. */
export const overTime = (by, what) => [
  lines({
    title: `GPU-hours a day by ${what}`,
    unit: GPU_HOURS,
    none: NO_JOBS,
    bars: true,
    stack: true,
    min: 0,
    about: `GPU-hours held each day (days of the cluster's clocks), the ten largest by name. Runs are
      cut at midnight.`,
    targets: [sql(daily('gpus', by), 'time_series')],
  }),
  lines({
    title: `CPU-hours a day by ${what}`,
    unit: CPU_HOURS,
    none: NO_JOBS,
    bars: true,
    stack: true,
    min: 0,
    about: 'CPU-hours held each day, the ten largest by name. Runs are cut at midnight.',
    targets: [sql(daily('cpus', by), 'time_series')],
  }),
];

/** The largest by GPU-hours. */
export const largest = (by, what) =>
  columns({
    title: `GPU-hours by ${what}`,
    unit: GPU_HOURS,
    none: NO_JOBS,
    decimals: 1,
    about: `The twenty largest by GPU-hours held in the time range.`,
    targets: [
      sql(`SELECT ${by} AS name, ${hours('gpus')} AS "GPU-hours" FROM jobs WHERE ${RUNS}
    GROUP BY ${by} ORDER BY 2 DESC NULLS LAST LIMIT 20`),
    ],
  });

const ENDED_AS = {
  completed: ['COMPLETED'],
  failed: ['FAILED', 'BOOT_FAIL', 'LAUNCH_FAILED'],
  'out of memory': ['OUT_OF_MEMORY'],
  'node failed': ['NODE_FAIL'],
  timeout: ['TIMEOUT', 'DEADLINE'],
  preempted: ['PREEMPTED'],
  cancelled: ['CANCELLED'],
};
const quoted = (states) => states.map((state) => `'${state}'`).join(', ');
const ended = (name, condition) => `nullif(count(*) FILTER (state ${condition}), 0) AS "${name}"`;

/** How jobs ended. A column for each ending, so that each has its colour. */
export const endings = pie({
  title: 'How jobs ended',
  unit: 'none',
  none: 'No job of this choice ended in the time range.',
  width: 12,
  colors: ENDINGS,
  about: `Jobs that ended in the time range, by state. Many timeouts mean limits that are too short,
    or
      programs without checkpoints.`,
  targets: [
    sql(`SELECT ${Object.entries(ENDED_AS)
      .map(([name, states]) => ended(name, `IN (${quoted(states)})`))
      .join(', ')},
      ${ended('other', `NOT IN (${quoted(Object.values(ENDED_AS).flat())})`)}
      FROM jobs WHERE ${ENDED}`),
  ],
});

/** One row for each of `by`. */
export const summary = (by, title) =>
  table({
    title,
    unit: 'none',
    none: NO_JOBS,
    height: 10,
    about: `Usage in the time range, largest first; "in use" is the share of measured GPU hours in
      which
        GPUs worked. Click a name for its board.`,
    targets: [
      sql(`WITH held AS (
      SELECT cluster, ${by}, count(*) AS runs, ${hours('gpus')} AS gpu_hours, ${hours('cpus')} AS
        cpu_hours,
        avg(wait_seconds) AS mean_wait_seconds,
        count(*) FILTER (state IN ('FAILED', 'TIMEOUT', 'OUT_OF_MEMORY', 'NODE_FAIL')) AS failed
      FROM jobs WHERE ${RUNS} GROUP BY ALL),
    assessed AS (
      SELECT cluster, ${by}, ${SHARE_USED} AS in_use, sum(gpu_energy_joules) / 3.6e6 AS kwh
      FROM ${ASSESSED} WHERE ${ENDED} GROUP BY ALL)
    SELECT held.cluster, held.${by}, runs, gpu_hours, cpu_hours, mean_wait_seconds, failed, in_use,
      kwh
    FROM held LEFT JOIN assessed ON assessed.cluster = held.cluster AND assessed.${by} = held.${by}
    ORDER BY gpu_hours DESC NULLS LAST, cpu_hours DESC`),
    ],
    columns: {
      gpu_hours: { unit: GPU_HOURS, decimals: 1 },
      cpu_hours: { unit: CPU_HOURS, decimals: 1 },
      mean_wait_seconds: { unit: 's', name: 'mean wait' },
      in_use: { unit: 'percentunit', bar: true, min: 0, max: 1, decimals: 0, name: 'in use' },
      kwh: { unit: 'kwatth', decimals: 1 },
    },
  });

export const NO_PRICES = 'No rate card in [[rates.cards]] of takt.toml was valid in this time.';

/** The cost by the rate cards, in all and for each of `by`. */
export const cost = (by, what) => [
  stat({
    title: 'Cost',
    unit: 'none',
    none: NO_PRICES,
    width: 4,
    decimals: 2,
    thresholds: steps('text'),
    textMode: 'value_and_name',
    about: `What the chosen jobs cost in the time range by the rate cards of takt.toml, with the
      measured energy of finished jobs. Running jobs count up to now. Credits are not subtracted.`,
    values: true,
    targets: [
      sql(`SELECT currency, ${MONEY.held} + ${MONEY.energy} AS money ${PRICED} GROUP BY currency`),
    ],
  }),
  table({
    title: `Cost by ${what}`,
    unit: 'none',
    none: NO_PRICES,
    width: 20,
    height: 8,
    about: `Money for GPUs, CPUs and memory held, and for the measured energy of finished jobs, most
      expensive first.`,
    targets: [
      sql(`SELECT cluster, ${by}, ${MONEY.held} AS held, ${MONEY.energy} AS energy,
        ${MONEY.held} + ${MONEY.energy} AS money, currency
      ${PRICED} GROUP BY ALL ORDER BY money DESC`),
    ],
    columns: { held: { decimals: 2 }, energy: { decimals: 2 }, money: { decimals: 2 } },
  }),
];

/** The rate cards that were valid in the time range. */
export const prices = table({
  title: 'Prices',
  unit: 'none',
  none: NO_PRICES,
  height: 5,
  about: `Rate cards of takt.toml that were valid in the time range. A model in "by model" has its own
    price of a GPU-hour.`,
  targets: [
    sql(`SELECT cluster, from_time, currency, gpu_hour, gpu_models::VARCHAR AS gpu_models, cpu_hour,
      mem_gib_hour, kwh, co2_g_per_kwh
    FROM rate_cards WHERE from_time < ${TO} AND coalesce(until_time > ${FROM}, true)
      AND ${chosen('cluster')} ORDER BY cluster, from_time`),
  ],
  columns: {
    from_time: { name: 'from' },
    gpu_hour: { name: 'GPU-hour' },
    gpu_models: { name: 'by model' },
    cpu_hour: { name: 'CPU-hour' },
    mem_gib_hour: { name: 'GiB-hour' },
    kwh: { name: 'kWh' },
    co2_g_per_kwh: { name: 'g CO2 in a kWh' },
  },
});

/** Budgets of takt.toml of the chosen users or accounts. */
export const budgets = (of) =>
  table({
    title: 'Budgets now',
    unit: 'none',
    none: 'No budget of this choice in [[budgets]] of takt.toml.',
    height: 7,
    about: `Each budget with its use in the current month or year, accounts below included and credits
      subtracted. Computed every ten minutes, for any time range of the board. Orange from 80 %.`,
    targets: [
      sql(`SELECT cluster, ${of}, period, unit, amount, used, amount - used AS left_over,
        used / amount AS share, from_time, until_time, noted_at
      FROM budgets WHERE ${chosen('cluster', of.replaceAll('"', ''))} ORDER BY share DESC`),
    ],
    columns: {
      amount: { decimals: 1, name: 'budget' },
      used: { decimals: 1 },
      left_over: { decimals: 1, name: 'left', thresholds: steps('red', [0, 'text']) },
      share: {
        unit: 'percentunit',
        bar: true,
        min: 0,
        max: 1,
        decimals: 0,
        thresholds: worseFrom(0.8, 1),
      },
      from_time: { name: 'from' },
      until_time: { name: 'until' },
      noted_at: { name: 'as of' },
    },
  });
