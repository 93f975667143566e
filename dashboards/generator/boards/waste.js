import { board, row } from '../board.js';
import {
  ASSESSED,
  ENDED,
  JOB_COLUMNS,
  NODE,
  dated,
  indexed,
  instant,
  limitDefault,
  ofAccount,
  range,
  rows,
  series,
  sql,
} from '../query.js';
import { GPU_KEY, idle } from '../gpus.js';
import { NO_ASSESSMENT } from '../usage.js';
import { CPU_HOURS, GPU_HOURS, JOB_STATE } from '../look.js';
import {
  VALUES,
  badFrom,
  columns,
  joined,
  lines,
  stat,
  steps,
  table,
  worseFrom,
} from '../panels.js';

const NO_GPU = 'No GPU is held by a job now, or no exporter sees jobs (docs/jobs-on-a-node.md).';
const HELD = ofAccount(series('takt_gpu_job_info', NODE, 'user=~"$user"'));
const IDLE = idle(NODE);
const CAUSES = [
  ['waste_idle_gpu_seconds', 'never used'],
  ['waste_streak_gpu_seconds', 'idle stretches'],
  ['waste_low_gpu_seconds', 'low use'],
  ['lost_gpu_seconds', 'lost to a fault'],
];
const split = CAUSES.map(([column, name]) => `sum(${column}) / 3600 AS "${name}"`).join(', ');
const wasted = CAUSES.slice(0, 3)
  .map(([column]) => column)
  .join(' + ');
const total = (title, expression, about, more = {}) =>
  stat({
    title,
    about,
    unit: GPU_HOURS,
    none: NO_ASSESSMENT,
    width: 4,
    decimals: 1,
    thresholds: steps('text'),
    targets: [sql(`SELECT ${expression} AS "hours" FROM ${ASSESSED} WHERE ${ENDED}`)],
    ...more,
  });

export default board({
  uid: 'waste',
  title: 'waste',
  about: 'GPU hours without work, by user, account, job and cause.',
  variables: ['cluster', 'partition', 'account', 'sqlUser', 'node'],
  from: 'now-30d',
  refresh: '5m',
  panels: [
    row('Finished jobs in this time'),
    total(
      'Held',
      'sum(held_gpu_seconds) / 3600',
      'GPU hours of jobs that ended in the time range.',
    ),
    total('Used', 'sum(used_gpu_seconds) / 3600', 'GPU hours in which a GPU worked.'),
    total(
      'Never used',
      'sum(waste_idle_gpu_seconds) / 3600',
      'GPU hours of GPUs that a job held and never used. The job should ask for fewer.',
    ),
    total(
      'Idle stretches',
      'sum(waste_streak_gpu_seconds) / 3600',
      `GPU hours in stretches of at least a quarter of an hour without work: data loading, notebooks
        that wait, hung programs.`,
    ),
    total(
      'Lost to faults',
      'sum(lost_gpu_seconds) / 3600',
      'GPU hours that a node or GPU fault destroyed. They can be given back: takt credit.',
      { thresholds: worseFrom(1, 100) },
    ),
    total(
      'Limits beyond need',
      'sum(limit_excess_gpu_seconds) / 3600',
      `GPU hours asked for as time limit and not needed. Not wasted, but the scheduler cannot fill
        gaps.`,
    ),
    lines({
      title: 'Wasted GPU hours a day, by cause',
      unit: GPU_HOURS,
      none: NO_ASSESSMENT,
      bars: true,
      stack: true,
      min: 0,
      width: 24,
      about: 'GPU hours of jobs that ended that day. Hours that were not measured are in no bar.',
      targets: [
        sql(
          `SELECT day_start AS time, ${split} FROM ${dated(ASSESSED, 'end_time')} WHERE ${ENDED}
            GROUP BY 1 ORDER BY 1`,
          'time_series',
        ),
      ],
    }),
    columns({
      title: 'Wasted by user',
      unit: GPU_HOURS,
      none: NO_ASSESSMENT,
      stack: true,
      decimals: 1,
      height: 10,
      about: `The fifteen users with the most wasted GPU hours, by cause. Talk to them first: see
          docs/reports.md for letters.`,
      targets: [
        sql(
          `SELECT "user", ${split} FROM ${ASSESSED} WHERE ${ENDED} GROUP BY "user" HAVING
            sum(${wasted}) > 0 ORDER BY sum(${wasted}) DESC LIMIT 15`,
        ),
      ],
    }),
    columns({
      title: 'Wasted by account',
      unit: GPU_HOURS,
      none: NO_ASSESSMENT,
      stack: true,
      decimals: 1,
      height: 10,
      about: 'The fifteen accounts with the most wasted GPU hours, by cause.',
      targets: [
        sql(
          `SELECT account, ${split} FROM ${ASSESSED} WHERE ${ENDED} GROUP BY account HAVING
            sum(${wasted}) > 0 ORDER BY sum(${wasted}) DESC LIMIT 15`,
        ),
      ],
    }),
    columns({
      title: 'GPU hours by mean utilization of the job',
      unit: GPU_HOURS,
      none: NO_ASSESSMENT,
      orientation: 'vertical',
      width: 24,
      about: 'GPU hours of finished jobs by how busy their GPUs were. Weight at the left is waste.',
      targets: [
        sql(`SELECT (10 * floor(least(gpu_utilization_mean, 0.999) * 10))::INTEGER || ' %' AS
          utilization, sum(held_gpu_seconds) / 3600 AS "GPU-hours"
        FROM ${ASSESSED} WHERE ${ENDED} AND gpu_utilization_mean IS NOT NULL GROUP BY
          floor(least(gpu_utilization_mean, 0.999) * 10) ORDER BY floor(least(gpu_utilization_mean,
          0.999) * 10)`),
      ],
    }),
    table({
      title: 'Jobs that wasted most',
      unit: 'none',
      none: NO_ASSESSMENT,
      height: 12,
      about: 'Finished jobs by wasted GPU hours. Click a job for its curves.',
      targets: [
        sql(`SELECT ${JOB_COLUMNS}, job_name, state, gpus, run_seconds, gpu_utilization_mean,
          gpus_idle, gpu_idle_longest_seconds,
          (${wasted}) / 3600 AS wasted, coverage_ratio, is_network_bound, fault
        FROM ${ASSESSED} WHERE ${ENDED} AND ${wasted} > 0 ORDER BY wasted DESC LIMIT 200`),
      ],
      columns: {
        state: { mappings: JOB_STATE },
        run_seconds: { unit: 's', name: 'ran' },
        gpu_utilization_mean: { unit: 'percentunit', bar: true, min: 0, max: 1, name: 'GPU use' },
        gpus_idle: { name: 'unused GPUs', thresholds: badFrom(1) },
        gpu_idle_longest_seconds: { unit: 's', name: 'longest idle' },
        wasted: { unit: GPU_HOURS, decimals: 1 },
        coverage_ratio: { unit: 'percentunit', decimals: 0, name: 'measured' },
        is_network_bound: { name: 'network' },
      },
    }),
    table({
      title: 'Jobs lost to faults',
      unit: 'none',
      none: 'No job of this choice was lost to a fault.',
      height: 8,
      about: 'Finished jobs that a node or GPU fault ended, with the hours lost.',
      targets: [
        sql(`SELECT ${JOB_COLUMNS}, state, node_list, lost_gpu_seconds / 3600 AS gpu_hours,
          lost_cpu_seconds / 3600 AS cpu_hours, fault
        FROM ${ASSESSED} WHERE ${ENDED} AND (fault IS NOT NULL OR lost_gpu_seconds > 0) ORDER BY
          gpu_hours DESC LIMIT 100`),
      ],
      columns: {
        state: { mappings: JOB_STATE },
        gpu_hours: { unit: GPU_HOURS, decimals: 1 },
        cpu_hours: { unit: CPU_HOURS, decimals: 1 },
      },
    }),
    row('Now'),
    lines({
      title: 'GPUs held, and held but idle',
      unit: 'none',
      none: NO_GPU,
      min: 0,
      about: `GPUs that jobs hold, and those of them that did nothing for half an hour. The gap
        between
          the lines is use.`,
      targets: [
        range(`count(count by (${GPU_KEY}) (${HELD}))`, 'held'),
        range(
          `count(count by (${GPU_KEY}) (${HELD}) and on (${GPU_KEY}) ${IDLE}) or vector(0)`,
          'idle for half an hour',
        ),
      ],
    }),
    table({
      title: 'Held but idle',
      unit: 'none',
      none: 'Every GPU that is held was used within the last half hour.',
      width: 12,
      sort: 'memory',
      about: `GPUs that a job holds and that did nothing for half an hour. Memory in use and no work
        is
          often a forgotten notebook.`,
      targets: [
        rows(`(${HELD}) and on (${GPU_KEY}) ${IDLE}`),
        rows(
          `(${HELD}) * on (${GPU_KEY}) group_left () ${series('takt_gpu_memory_used_bytes', NODE)} and
            on (${GPU_KEY}) ${IDLE}`,
        ),
      ],
      transformations: joined(['', 'memory'], ['user', 'jobid', 'node', VALUES, 'uuid']),
      columns: { memory: { unit: 'bytes' } },
    }),
    table({
      title: 'Processes without a job',
      unit: 'none',
      none: 'Every process on a GPU belongs to a job.',
      width: 12,
      about: `Users with processes on a GPU that their job was not given. They take memory from
        others:
          ask them to use the scheduler.`,
      targets: [
        rows(
          `sum by (cluster, node, uuid, user)
            (${series('takt_gpu_process_without_job', NODE, 'user=~"$user"')}) > 0`,
        ),
        rows(
          `sum by (cluster, node, uuid, user)
            (${series('takt_gpu_process_memory_used_bytes', NODE, 'user=~"$user"')})`,
        ),
      ],
      transformations: joined(['processes', 'memory'], ['user', 'node', VALUES, 'uuid']),
      columns: { memory: { unit: 'bytes' } },
    }),
    table({
      title: 'Memory held by no process',
      unit: 'none',
      none: 'No GPU holds memory without a process.',
      width: 12,
      about: `GPUs with memory in use, without a process and without a job: something is left of the
        last
          job. Reset the GPU if it stays.`,
      targets: [
        rows(
          indexed(
            `(${series('takt_gpu_memory_used_bytes', NODE)} >
              ${limitDefault('gpu_memory_held_bytes')}) and on (${GPU_KEY})
              (${series('takt_gpu_processes', NODE)} == 0) unless on (${GPU_KEY})
              ${series('takt_gpu_job_info', NODE)}`,
          ),
        ),
      ],
      transformations: joined(['memory'], ['node', 'index', VALUES, 'uuid']),
      columns: { memory: { unit: 'bytes' } },
    }),
  ],
});
