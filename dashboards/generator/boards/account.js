import { board, field, row } from '../board.js';
import { FROM, RUNS, TO, chosen, hours, instants, sql } from '../query.js';
import {
  NO_JOBS,
  budgets,
  cost,
  endings,
  largest,
  overTime,
  prices,
  summary,
  totals,
} from '../usage.js';
import { CPU_HOURS, GPU_HOURS } from '../look.js';
import { lines, stat, steps, table, worseFrom } from '../panels.js';

const NO_BUDGET = 'Enter a budget in GPU-hours above, for example to try one out.';
const NO_LIMIT = 'Slurm limits no account by GrpTRESMins, or its associations are not read.';
const BUDGET = `nullif(coalesce(try_cast('$budget' AS DOUBLE), 0), 0)`;

/** GrpTRESMins of accounts for GPUs, in hours, from what Slurm last said. */
const LIMITS = `WITH said AS (
    SELECT cluster, arg_max(settings, recorded_at) AS settings FROM share_settings
    WHERE cluster ~ '\${cluster:regex}' GROUP BY cluster),
  associations AS (
    SELECT cluster, unnest(CAST(json_extract(settings, '$.associations') AS JSON[])) AS association
      FROM said),
  limits AS (
    SELECT cluster, association ->> '$.account' AS account,
      try_cast(regexp_extract(association ->> '$.grp_tres_mins', '(^|,)gres/gpu=([0-9]+)', 2) AS
        DOUBLE) / 60 AS limit_hours
    FROM associations WHERE (association ->> '$.user') IS NULL)`;

/** A two-hundredth of the time range, at least 18 seconds. */
const STEP = `to_seconds(greatest(3600, epoch(${TO}) - epoch(${FROM})) / 200)`;

export default board({
  uid: 'account',
  title: 'accounts and budgets',
  about: 'Which account used what, and how much of its budget is left.',
  variables: ['cluster', 'partition', 'account', 'sqlUser'],
  fields: [field('budget', 'Try a budget in GPU-hours', '')],
  from: 'now/M',
  refresh: '5m',
  panels: [
    row('In this time'),
    ...totals,
    ...overTime('account', 'account'),
    largest('account', 'account'),
    endings,
    summary('account', 'By account'),
    summary('"user"', 'By user'),
    row('Budgets and limits'),
    budgets('account'),
    stat({
      title: 'Tried budget used',
      unit: 'percentunit',
      none: NO_BUDGET,
      width: 4,
      decimals: 0,
      thresholds: worseFrom(0.8, 1),
      about: `GPU-hours of the chosen accounts in the time range as a share of the budget entered
        above.
          Orange from 80 % on.`,
      targets: [sql(`SELECT ${hours('gpus')} / ${BUDGET} AS "used" FROM jobs WHERE ${RUNS}`)],
    }),
    stat({
      title: 'Tried budget left',
      unit: GPU_HOURS,
      none: NO_BUDGET,
      width: 4,
      decimals: 0,
      thresholds: steps('red', [0, 'text']),
      about: 'GPU-hours left of the budget entered above. Negative: it is overdrawn.',
      targets: [sql(`SELECT ${BUDGET} - ${hours('gpus')} AS "left" FROM jobs WHERE ${RUNS}`)],
    }),
    lines({
      title: 'GPU-hours so far',
      unit: GPU_HOURS,
      none: NO_JOBS,
      min: 0,
      width: 16,
      about: `GPU-hours of the chosen accounts summed up since the start of the time range, and the
          budget. Extend the line to see when the budget ends.`,
      targets: [
        sql(
          `WITH hours AS
            (${instants('upto', FROM, STEP)})
        SELECT upto AS time, coalesce(sum(gpus * greatest(0, epoch(least(coalesce(end_time,
          now()::TIMESTAMP), upto)) - epoch(greatest(start_time, ${FROM})))) / 3600, 0) AS "used",
          max(${BUDGET}) AS "budget"
        FROM hours LEFT JOIN jobs ON start_time < upto AND coalesce(end_time, now()::TIMESTAMP) >
          ${FROM} AND ${chosen('cluster', 'partition', 'account', 'user')}
        GROUP BY upto ORDER BY upto`,
          'time_series',
        ),
      ],
    }),
    table({
      title: 'Limits of Slurm (GrpTRESMins)',
      unit: 'none',
      none: NO_LIMIT,
      height: 7,
      about: `GPU-hours that Slurm allows each account in all, and GPU-hours held in the time range.
          Slurm's own count decays or is reset as its configuration says: sshare shows it.`,
      targets: [
        sql(`${LIMITS}, held AS (SELECT cluster, account, ${hours('gpus')} AS gpu_hours FROM jobs
          WHERE ${RUNS} GROUP BY ALL)
        SELECT limits.cluster, limits.account, limit_hours, coalesce(gpu_hours, 0) AS gpu_hours,
          coalesce(gpu_hours, 0) / nullif(limit_hours, 0) AS share
        FROM limits LEFT JOIN held ON held.cluster = limits.cluster AND held.account =
          limits.account
        WHERE limit_hours IS NOT NULL AND ${chosen('limits.account')} ORDER BY share DESC`),
      ],
      columns: {
        limit_hours: { unit: GPU_HOURS, name: 'limit' },
        gpu_hours: { unit: GPU_HOURS, name: 'held' },
        share: { unit: 'percentunit', bar: true, min: 0, max: 1, decimals: 0 },
      },
    }),
    row('Cost'),
    ...cost('account', 'account'),
    prices,
    row('Credits'),
    table({
      title: 'Hours given back',
      unit: 'none',
      none: 'No hours were given back in this time.',
      width: 24,
      height: 6,
      about: `GPU-hours and CPU-hours that operators gave back, for example after a node failure. A
          revocation is a row of its own.`,
      targets: [
        sql(`SELECT cluster, credited_to, "user", account, job_id, gpu_seconds / 3600 AS gpu_hours,
          cpu_seconds / 3600 AS cpu_hours, reason, granted_by, revokes
        FROM credits WHERE credited_to >= ${FROM} AND credited_to < ${TO} AND
          ${chosen('cluster', 'account', 'user')} ORDER BY credited_to DESC`),
      ],
      columns: {
        job_id: { link: false },
        gpu_hours: { unit: GPU_HOURS },
        cpu_hours: { unit: CPU_HOURS },
      },
    }),
  ],
});
