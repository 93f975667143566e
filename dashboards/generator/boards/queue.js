import { board, row } from '../board.js';
import {
  CLUSTER,
  FROM,
  JOB_COLUMNS,
  TO,
  chosen,
  dated,
  instant,
  instants,
  range,
  series,
  sql,
} from '../query.js';
import { bars, columns, lines, stat, steps, table } from '../panels.js';
import { words } from '../look.js';

const NO_SLURM = 'No Slurm is asked, or slurmctld does not answer.';
const NO_JOBS = 'No job of this choice started in the time range, or no job records are read.';
const pending = (more) =>
  series('takt_slurm_jobs_pending', CLUSTER, ['partition=~"$partition"', ...more].join(', '));
const IDLE = series('takt_slurm_partition_idle_nodes', CLUSTER, 'partition=~"$partition"');
const PENDING = pending([]);
const STARTED = `start_time >= ${FROM} AND start_time < ${TO} AND
  ${chosen('cluster', 'partition', 'account', 'user')}`;
const OPEN = `from_time < ${TO} AND coalesce(to_time, now()::TIMESTAMP) > ${FROM} AND cluster ~
  '\${cluster:regex}'`;

const HOURS = instants('hour', `date_trunc('hour', ${FROM})`, 'INTERVAL 1 HOUR');

export default board({
  uid: 'queue',
  title: 'queue',
  about: 'Who waits for what, how long, what is free, and what is reserved.',
  variables: ['cluster', 'partition', 'account', 'sqlUser'],
  from: 'now-7d',
  panels: [
    row('Now'),
    stat({
      title: 'Jobs that wait',
      unit: 'none',
      none: NO_SLURM,
      width: 4,
      thresholds: steps('text'),
      about: 'Pending jobs, as of the last time slurmctld was asked.',
      targets: [instant(`sum(${PENDING})`, 'jobs')],
    }),
    stat({
      title: 'for resources',
      unit: 'none',
      none: NO_SLURM,
      width: 4,
      thresholds: steps('text'),
      about:
        "Pending jobs that would start if there were room: Slurm's reasons Resources and Priority.",
      targets: [
        instant(
          `sum(${pending(['reason=~"Resources|Priority"'])})
            or vector(0)`,
          'jobs',
        ),
      ],
    }),
    stat({
      title: 'Idle nodes',
      unit: 'none',
      none: NO_SLURM,
      width: 4,
      thresholds: steps('text'),
      about: `Nodes that take a job at once. Idle nodes and jobs that wait for resources together:
        Slurm
          may be stuck, or the jobs need more than a node has.`,
      targets: [
        // A node of two partitions is idle in both, so the sum is at most the cluster's idle nodes.
        instant(
          `sum(min by (cluster) (sum by (cluster)
            (${series('takt_slurm_nodes', CLUSTER, 'state="idle"')}) and on (cluster) ${IDLE} or
            label_replace(sum by (cluster) (${IDLE}), "of", "partitions", "", "")))`,
          'nodes',
        ),
      ],
    }),
    stat({
      title: 'Last job started',
      unit: 's',
      none: NO_SLURM,
      width: 4,
      limit: 'slurm_queue_stuck_seconds',
      decimals: 0,
      about:
        'Time since a job was last started. Above the limit with a full queue look at slurmctld.',
      targets: [
        instant(
          `time() - max(${series('takt_slurm_last_start_timestamp_seconds', CLUSTER)})`,
          'ago',
        ),
      ],
    }),
    stat({
      title: 'Slurm answers',
      unit: 'none',
      none: NO_SLURM,
      width: 4,
      mappings: words({ 0: ['no', 'red'], 1: ['yes', 'green'] }),
      thresholds: steps('text'),
      about: 'Whether each daemon of Slurm answered the last time it was asked.',
      targets: [instant(series('takt_slurm_up', CLUSTER), '{{daemon}}')],
    }),
    stat({
      title: 'Nodes out of service',
      unit: 'percentunit',
      none: NO_SLURM,
      width: 4,
      decimals: 0,
      limit: 'slurm_nodes_down_ratio',
      about: 'Share of the nodes that are down, drained or failing, planned work not counted.',
      targets: [
        instant(
          `(sum(${series('takt_slurm_nodes', CLUSTER, 'state="unavailable"')}) or vector(0)) /
            sum(${series('takt_slurm_nodes', CLUSTER)})`,
          'nodes',
        ),
      ],
    }),
    lines({
      title: 'Jobs that wait, by reason',
      unit: 'none',
      none: NO_SLURM,
      stack: true,
      min: 0,
      about: `Resources and Priority are a full cluster. Assoc…Limit and QOS…Limit are limits of
          an account, Dependency waits for other jobs, ReqNodeNotAvail for broken or reserved
          nodes.`,
      targets: [range(`sum by (reason) (${PENDING})`, '{{reason}}')],
    }),
    lines({
      title: 'Jobs that wait, by partition',
      unit: 'none',
      none: NO_SLURM,
      stack: true,
      min: 0,
      about: 'A queue that only grows in one partition wants more nodes, or shorter limits there.',
      targets: [range(`sum by (partition) (${PENDING})`, '{{partition}}')],
    }),
    table({
      title: 'Waiting longest',
      unit: 'none',
      none: 'No job of this choice waits.',
      height: 10,
      about: `Pending jobs by how long they have waited, with Slurm's last reason and when Slurm
        means to
          start them.`,
      targets: [
        sql(`SELECT ${JOB_COLUMNS}, qos, gpus, cpus, nodes, timelimit_seconds,
          epoch(now()::TIMESTAMP - coalesce(eligible_time, submit_time)) AS waiting,
          arg_max(reason, last_seen) AS reason, arg_max(expected_start, last_seen) AS expected_start
        FROM jobs LEFT JOIN job_reasons USING (cluster, job_id, submit_time)
        WHERE state = 'PENDING' AND ${chosen('cluster', 'partition', 'account', 'user')}
        GROUP BY ALL ORDER BY waiting DESC LIMIT 200`),
      ],
      columns: { timelimit_seconds: { unit: 's', name: 'limit' }, waiting: { unit: 's' } },
    }),
    row('Waiting times'),
    lines({
      title: 'Wait by day of the start',
      unit: 's',
      none: NO_JOBS,
      min: 0,
      about: `Time from when a job could have started until it did, by day. The median is what most
        see,
          95 % what people complain about.`,
      targets: [
        sql(
          `SELECT day_start AS time, median(wait_seconds) AS "median",
            quantile_cont(wait_seconds, 0.9) AS "90 %",
        quantile_cont(wait_seconds, 0.95) AS "95 %", max(wait_seconds) AS "longest" FROM
          ${dated('jobs', 'start_time')} WHERE ${STARTED} GROUP BY 1 ORDER BY 1`,
          'time_series',
        ),
      ],
    }),
    table({
      title: 'Wait by partition',
      unit: 's',
      none: NO_JOBS,
      width: 12,
      about: `Waits of jobs that started in the time range. Compare partitions before asking for
        more
          nodes in one of them.`,
      targets: [
        sql(`SELECT cluster, "partition", count(*) AS jobs, median(wait_seconds) AS "median",
          quantile_cont(wait_seconds, 0.95) AS "95 %", max(wait_seconds) AS longest
        FROM jobs WHERE ${STARTED} GROUP BY ALL ORDER BY 5 DESC`),
      ],
      columns: { jobs: { unit: 'none' } },
    }),
    columns({
      title: 'Wait by number of GPUs',
      unit: 's',
      none: NO_JOBS,
      orientation: 'vertical',
      about: `Median wait by the number of GPUs a job got. A steep rise means that large jobs find
        no
          room.`,
      targets: [
        sql(
          `SELECT coalesce(gpus, 0)::VARCHAR || ' GPUs' AS size, median(wait_seconds) AS "median
            wait" FROM jobs WHERE ${STARTED} GROUP BY gpus ORDER BY gpus NULLS FIRST LIMIT 20`,
        ),
      ],
    }),
    lines({
      title: 'Jobs submitted and started',
      unit: 'none',
      none: NO_JOBS,
      bars: true,
      min: 0,
      about: 'Jobs by hour. More submitted than started for days: the queue grows.',
      targets: [
        sql(
          `SELECT date_trunc('hour', submit_time) AS time, count(*) AS "submitted" FROM jobs WHERE
            submit_time >= ${FROM} AND submit_time < ${TO} AND
            ${chosen('cluster', 'partition', 'account', 'user')} GROUP BY 1 ORDER BY 1`,
          'time_series',
        ),
        sql(
          `SELECT date_trunc('hour', start_time) AS time, count(*) AS "started" FROM jobs WHERE
            ${STARTED} GROUP BY 1 ORDER BY 1`,
          'time_series',
        ),
      ],
    }),
    row('Capacity'),
    lines({
      title: 'Idle nodes by partition',
      unit: 'none',
      none: NO_SLURM,
      min: 0,
      about: 'Nodes of each partition that take a job at once.',
      targets: [range(`sum by (partition) (${IDLE})`, '{{partition}}')],
    }),
    lines({
      title: 'GPUs held by jobs',
      unit: 'none',
      none: NO_JOBS,
      min: 0,
      about: `GPUs that jobs of the choice hold, hour by hour, and GPUs that the cluster has. The
        gap is
          free, down or reserved.`,
      targets: [
        sql(
          `WITH hours AS (${HOURS})
          SELECT hour AS time, coalesce(sum(gpus), 0) AS "held" FROM hours LEFT JOIN jobs ON
            start_time <= hour AND coalesce(end_time, now()::TIMESTAMP) > hour AND
            ${chosen('cluster', 'partition', 'account', 'user')}
          GROUP BY hour ORDER BY hour`,
          'time_series',
        ),
        // The newest row of each cluster that held in the hour.
        sql(
          `WITH hours AS (${HOURS}),
          had AS (SELECT hour, cluster, arg_max(gpus, from_time) AS gpus FROM hours JOIN node_events
            ON from_time < hour + INTERVAL 1 HOUR AND coalesce(to_time, now()::TIMESTAMP) > hour
            WHERE node = '' AND ${chosen('cluster')} GROUP BY ALL)
          SELECT hour AS time, sum(gpus) AS "cluster has" FROM had GROUP BY hour ORDER BY hour`,
          'time_series',
        ),
      ],
    }),
    table({
      title: 'Nodes that take no job',
      unit: 'none',
      none: 'Every node takes jobs, or no scheduler is read.',
      height: 6,
      about: 'Nodes that Slurm does not use now, with the reason that was given.',
      targets: [
        sql(
          `SELECT cluster, node, state, reason, gpus, cpus, recorded_at FROM scheduler_nodes WHERE
            cluster ~ '\${cluster:regex}' AND regexp_matches(state,
            'DOWN|DRAIN|FAIL|MAINT|POWER|NOT_RESP|REBOOT') ORDER BY node`,
        ),
      ],
    }),
    table({
      title: 'Outages in this time',
      unit: 'none',
      none: 'No node was out of service in this time, or no scheduler is read.',
      height: 6,
      about: `When which node could not be used, with Slurm's state and reason. Many short ones of a
          node: look at its hardware.`,
      targets: [
        sql(`SELECT cluster, node, state, reason, from_time, to_time, epoch(coalesce(to_time,
          now()::TIMESTAMP) - from_time) AS lasted
        FROM node_events WHERE node <> '' AND ${OPEN} ORDER BY from_time DESC LIMIT 200`),
      ],
      columns: { lasted: { unit: 's' } },
    }),
    table({
      title: 'Reservations',
      unit: 'none',
      none: 'No reservation in this time, or no scheduler is read.',
      height: 7,
      about: `Reservations now and lately, with their owners. Jobs of others whose limit reaches into a
        reservation wait.`,
      targets: [
        sql(`SELECT cluster, name, flags, owners, node_list, cpus, gpus, from_time, to_time FROM
          reservations
        WHERE cluster ~ '\${cluster:regex}' AND to_time > ${FROM} ORDER BY from_time DESC LIMIT
          100`),
      ],
    }),
    bars({
      title: 'Node failures in a day',
      unit: 'none',
      none: 'No job was lost to a node within a day.',
      width: 24,
      height: 5,
      decimals: 0,
      limit: 'slurm_node_failures_per_day',
      min: 0,
      about: 'Jobs that each node failed within a day. Above the limit drain the node.',
      targets: [instant(`topk(10, ${series('takt_slurm_node_failures_1d', CLUSTER)})`, '{{node}}')],
    }),
  ],
});
