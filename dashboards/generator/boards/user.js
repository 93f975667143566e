import { board, row } from '../board.js';
import {
  ASSESSED,
  CLUSTER,
  ENDED,
  FROM,
  JOB_COLUMNS,
  RUNS,
  TO,
  USER,
  chosen,
  dated,
  instant,
  ofAccount,
  rows,
  series,
  sql,
} from '../query.js';
import { GPU_KEY, idle } from '../gpus.js';
import {
  NO_ASSESSMENT,
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
import { JOB_STATE } from '../look.js';
import { joined, lines, stat, steps, table, worseFrom } from '../panels.js';

const NO_GPU = 'No chosen user holds a GPU now.';
const HELD = `max by (cluster, node, uuid, user)
  (${ofAccount(series('takt_gpu_job_info', USER))})`;

export default board({
  uid: 'user',
  title: 'users',
  about: 'Who used what, how well, and how long they waited.',
  variables: ['cluster', 'partition', 'account', 'sqlUser'],
  from: 'now-30d',
  refresh: '5m',
  panels: [
    row('In this time'),
    ...totals,
    ...overTime('"user"', 'user'),
    largest('"user"', 'user'),
    endings,
    summary('"user"', 'By user'),
    row('Cost and budgets'),
    ...cost('"user"', 'user'),
    prices,
    budgets('"user"'),
    row('Now'),
    stat({
      title: 'GPUs held now',
      unit: 'none',
      none: NO_GPU,
      width: 4,
      thresholds: steps('text'),
      about: 'GPUs that the chosen users hold at the end of the time range.',
      targets: [instant(`count(count by (${GPU_KEY}) (${HELD})) or vector(0)`, 'GPUs')],
    }),
    stat({
      title: 'of them idle',
      unit: 'none',
      none: NO_GPU,
      width: 4,
      thresholds: worseFrom(1, 4),
      about: 'GPUs held by the chosen users that did nothing for half an hour.',
      targets: [
        instant(
          `count(count by (${GPU_KEY}) (${HELD}) and on (${GPU_KEY}) ${idle(CLUSTER)}) or vector(0)`,
          'GPUs',
        ),
      ],
    }),
    table({
      title: 'GPUs held now, by user',
      unit: 'none',
      none: NO_GPU,
      width: 16,
      height: 7,
      sort: 'GPUs',
      about: 'GPUs of each user and their mean utilization now. Works without SQL.',
      targets: [
        rows(`count by (cluster, user) (${HELD})`),
        rows(
          `avg by (cluster, user) ((${HELD}) * on (cluster, node, uuid) group_left ()
            ${series('takt_gpu_utilization_ratio', 'cluster=~"$cluster"')})`,
        ),
        rows(`sum by (cluster, user) (${series('takt_gpu_process_without_job', USER)})`),
      ],
      transformations: joined(['GPUs', 'use', 'processes without a job'], ['user']),
      columns: {
        use: { unit: 'percentunit', bar: true, min: 0, max: 1 },
        'processes without a job': { thresholds: worseFrom(1, 5) },
      },
    }),
    row('Waiting and efficiency'),
    lines({
      title: 'Wait by day of the start',
      unit: 's',
      none: NO_JOBS,
      min: 0,
      about: `Time from when a job could have started until it did: half of the jobs wait less than
          "median", one in twenty longer than "95 %".`,
      targets: [
        sql(
          `SELECT day_start AS time, median(wait_seconds) AS "median",
            quantile_cont(wait_seconds, 0.95) AS "95 %"
        FROM ${dated('jobs', 'start_time')} WHERE start_time >= ${FROM} AND start_time < ${TO} AND
          ${chosen('cluster', 'partition', 'account', 'user')}
        GROUP BY 1 ORDER BY 1`,
          'time_series',
        ),
      ],
    }),
    lines({
      title: 'GPU hours in use, by day of the end',
      unit: 'percentunit',
      none: NO_ASSESSMENT,
      min: 0,
      max: 1,
      about: 'Share of the measured GPU hours in which GPUs worked, of jobs that ended that day.',
      targets: [
        sql(
          `SELECT day_start AS time, sum(used_gpu_seconds) / nullif(sum(held_gpu_seconds -
            unmeasured_gpu_seconds), 0) AS "in use"
        FROM ${dated(ASSESSED, 'end_time')} WHERE ${ENDED} GROUP BY 1 ORDER BY 1`,
          'time_series',
        ),
      ],
    }),
    row('Jobs'),
    table({
      title: 'Jobs',
      unit: 'none',
      none: NO_JOBS,
      height: 14,
      about: 'The last 500 jobs of the choice. Click a job for its GPUs and its verdict.',
      targets: [
        sql(`SELECT ${JOB_COLUMNS}, job_name, state, start_time, run_seconds, wait_seconds,
          timelimit_seconds, gpus, cpus,
          gpu_utilization_mean, cpu_ratio, memory_ratio
        FROM jobs LEFT JOIN run_efficiency USING (cluster, job_id, submit_time) WHERE ${RUNS} ORDER
          BY start_time DESC LIMIT 500`),
      ],
      columns: {
        state: { mappings: JOB_STATE },
        run_seconds: { unit: 's', name: 'ran' },
        wait_seconds: { unit: 's', name: 'waited' },
        timelimit_seconds: { unit: 's', name: 'limit' },
        gpu_utilization_mean: { unit: 'percentunit', bar: true, min: 0, max: 1, name: 'GPU use' },
        cpu_ratio: { unit: 'percentunit', decimals: 0, name: 'CPU use' },
        memory_ratio: { unit: 'percentunit', decimals: 0, name: 'memory use' },
      },
    }),
  ],
});
