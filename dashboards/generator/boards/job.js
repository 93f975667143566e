import { board, row } from '../board.js';
import { GPUS, gpuLines } from '../gpus.js';
import { nodeLines } from '../nodes.js';
import {
  CLUSTER,
  JOB,
  JOB_COLUMNS,
  indexed,
  instant,
  ofJob,
  range,
  rows,
  series,
  sql,
} from '../query.js';
import { GPU_HOURS, JOB_STATE, fromLabels } from '../look.js';
import { VALUES, badFrom, joined, lines, spans, stat, steps, table, worseFrom } from '../panels.js';

const links = fromLabels();
const NO_JOB = 'Choose a job that ran in this time range. Its nodes must run takt-exporter.';
const NO_GPU = 'This job held no NVIDIA GPU, or none that answered.';
const NO_RECORD = 'No record of this job: its scheduler is not read, or the job is too old.';
const NO_VERDICT =
  'Not assessed: the job still runs, is too short, or its nodes were not measured.';
const THIS = `cluster ~ '\${cluster:regex}' AND (job_id ~ '\${job:regex}' OR raw_job_id ~
  '\${job:regex}')`;
const RECORD = `FROM jobs WHERE ${THIS} ORDER BY submit_time DESC LIMIT 1`;
const VERDICT = `FROM run_efficiency JOIN jobs USING (cluster, job_id, submit_time) WHERE ${THIS}
  ORDER BY submit_time DESC LIMIT 1`;
const gpu = { scope: CLUSTER, only: (expr) => ofJob(expr) };
const node = { scope: CLUSTER, only: (expr) => ofJob(expr, 'cluster, node', 'takt_job_info') };
const nodeRate = (metric) => `rate(${series(metric, CLUSTER)}[$__rate_interval])`;
const USED = `avg_over_time(${series('takt_gpu_utilization_ratio', CLUSTER)}[$__range])`;
const rate = (metric, more) => `rate(${series(metric, JOB, more)}[$__rate_interval])`;

export default board({
  uid: 'job',
  title: 'job',
  about: 'One job: did it use its GPUs, CPUs and memory, why not, and what happened to it.',
  variables: ['cluster', 'user', 'job'],
  job: series('takt_job_info', JOB),
  panels: [
    row('Record'),
    table({
      title: 'Job',
      unit: 'none',
      none: NO_RECORD,
      height: 4,
      about: 'The job as its scheduler recorded it, and what it was given.',
      targets: [
        sql(`SELECT ${JOB_COLUMNS}, job_name, state, exit_code, nodes, gpus, gpu_model, cpus,
          mem_bytes, node_list, reservation ${RECORD}`),
      ],
      columns: {
        state: { mappings: JOB_STATE },
        mem_bytes: { unit: 'bytes', name: 'memory' },
      },
    }),
    table({
      title: 'Its times',
      unit: 'none',
      none: NO_RECORD,
      height: 4,
      about: `When the job was submitted, started and ended. A run time close to the limit may have
        been cut off.`,
      targets: [
        sql(`SELECT submit_time, wait_seconds, start_time, run_seconds, timelimit_seconds, end_time
          ${RECORD}`),
      ],
      columns: {
        wait_seconds: { unit: 's' },
        run_seconds: { unit: 's' },
        timelimit_seconds: { unit: 's' },
      },
    }),
    table({
      title: 'Why it waited',
      unit: 'none',
      none: 'No reason was recorded: the job started at once, or slurmctld was not asked.',
      width: 11,
      height: 5,
      about: "Slurm's reason for each stretch of waiting, and when Slurm meant to start the job.",
      targets: [
        sql(`SELECT reason, expected_start, first_seen, last_seen FROM job_reasons
        JOIN jobs USING (cluster, job_id, submit_time) WHERE ${THIS} ORDER BY first_seen`),
      ],
    }),
    table({
      title: 'GPUs it held',
      unit: 'none',
      none: NO_GPU,
      width: 13,
      height: 5,
      about: "Each GPU that the job held, as slurmctld or the node's exporter said.",
      targets: [
        sql(`SELECT cluster, node, gpu_index, uuid, min(first_seen) AS first_seen, max(last_seen) AS
          last_seen, source
        FROM job_gpus WHERE cluster ~ '\${cluster:regex}' AND job_id ~ '\${job:regex}' GROUP BY ALL
          ORDER BY node, gpu_index`),
      ],
      columns: { cluster: { hidden: true } },
    }),
    row('Verdict'),
    stat({
      title: 'GPU utilization',
      unit: 'percentunit',
      none: NO_VERDICT,
      width: 4,
      decimals: 0,
      thresholds: steps('red', [0.3, 'orange'], [0.5, 'green']),
      about: `Mean over all GPUs and the whole run, computed when the job ended. Below 50 % ask
        whether
          it needs all its GPUs.`,
      targets: [sql(`SELECT gpu_utilization_mean AS "utilization" ${VERDICT}`)],
    }),
    stat({
      title: 'GPUs never used',
      unit: 'none',
      none: NO_VERDICT,
      thresholds: badFrom(1),
      about: `GPUs that the job held and never used. Ask for fewer, or check that the program starts
        on
          all of them.`,
      targets: [sql(`SELECT gpus_idle AS "GPUs" ${VERDICT}`)],
    }),
    stat({
      title: 'CPU in use',
      unit: 'percentunit',
      none: NO_VERDICT,
      decimals: 0,
      thresholds: steps('text'),
      about: `Share of its CPUs that the job used. Far below 100 %: ask for fewer CPUs, so that
        others
          can use the node's GPUs.`,
      targets: [sql(`SELECT cpu_ratio AS "CPU" ${VERDICT}`)],
    }),
    stat({
      title: 'Memory peak',
      unit: 'percentunit',
      none: NO_VERDICT,
      decimals: 0,
      thresholds: steps('text', [0.95, 'orange']),
      about: `Highest memory in use as a share of what the job asked for. Near 100 % it was close to
          being killed; far below, ask for less.`,
      targets: [sql(`SELECT memory_ratio AS "memory" ${VERDICT}`)],
    }),
    stat({
      title: 'Energy',
      unit: 'kwatth',
      none: NO_VERDICT,
      decimals: 2,
      thresholds: steps('text'),
      about: 'Energy that the GPUs of the job drew over its whole run.',
      targets: [sql(`SELECT gpu_energy_joules / 3.6e6 AS "energy" ${VERDICT}`)],
    }),
    stat({
      title: 'Waiting for the network',
      unit: 'percentunit',
      none: NO_VERDICT,
      width: 4,
      decimals: 0,
      thresholds: worseFrom(0.1, 0.2),
      about: `Share of the run in which a full link kept its GPUs waiting. From 20 % on the job is
          network-bound.`,
      targets: [sql(`SELECT link_bound_ratio AS "network" ${VERDICT}`)],
    }),
    stat({
      title: 'Measured',
      unit: 'percentunit',
      none: NO_VERDICT,
      width: 4,
      decimals: 0,
      thresholds: steps('orange', [0.5, 'text']),
      about: 'Share of the run that was measured. Below 50 % the other figures say little.',
      targets: [sql(`SELECT coverage_ratio AS "measured" ${VERDICT}`)],
    }),
    table({
      title: 'Where its GPU hours went',
      unit: GPU_HOURS,
      none: NO_VERDICT,
      height: 4,
      about: `GPU hours that the job used, and those lost by cause. A fault is the cluster's: ask
        for the
          hours back.`,
      targets: [
        sql(`SELECT used_gpu_seconds / 3600 AS used, waste_idle_gpu_seconds / 3600 AS "never used",
        waste_streak_gpu_seconds / 3600 AS "idle stretches", waste_low_gpu_seconds / 3600 AS "low
          use",
        lost_gpu_seconds / 3600 AS "lost to a fault", unmeasured_gpu_seconds / 3600 AS "not
          measured",
        limit_excess_gpu_seconds / 3600 AS "asked for beyond need", fault ${VERDICT}`),
      ],
    }),
    row('GPUs'),
    gpuLines('utilization', gpu),
    gpuLines('memory', gpu),
    gpuLines('power', gpu),
    gpuLines('throttle', gpu),
    gpuLines('sm', gpu),
    gpuLines('tensor', gpu),
    gpuLines('pcie', gpu),
    gpuLines('nvlink', gpu),
    row('CPU and memory'),
    lines({
      title: 'CPUs in use',
      unit: 'none',
      none: NO_JOB,
      min: 0,
      about: `CPUs that the job keeps busy on each node, below the CPUs that it holds. A flat line
        at 1
          is a program that uses one thread.`,
      targets: [
        range(`sum by (cluster, node) (${rate('takt_job_cpu_seconds_total')})`, '{{node}} in use'),
        range(`max by (cluster, node) (${series('takt_job_cpus', JOB)})`, '{{node}} held'),
      ],
      links: [links.node],
    }),
    lines({
      title: 'Memory',
      unit: 'bytes',
      none: NO_JOB,
      min: 0,
      about: `Memory of the job on each node, without cached files, below its limit. At the limit
        the
          kernel kills its processes.`,
      targets: [
        range(
          `max by (cluster, node) (${series('takt_job_memory_anonymous_bytes', JOB)})`,
          '{{node}} in use',
        ),
        range(
          `max by (cluster, node) (${series('takt_job_memory_file_bytes', JOB)})`,
          '{{node}} cached files',
        ),
        range(
          `max by (cluster, node) (${series('takt_job_memory_limit_bytes', JOB)})`,
          '{{node}} limit',
        ),
      ],
      links: [links.node],
    }),
    lines({
      title: 'Waiting',
      unit: 'percentunit',
      none: NO_JOB,
      min: 0,
      thresholds: worseFrom(0.2, 0.5),
      about: `Share of time in which some of its threads waited for CPU, memory or disks. "io" is
        mostly
          data loading.`,
      targets: [
        range(
          `max by (cluster, node, resource) (${rate('takt_job_pressure_seconds_total')})`,
          '{{node}} {{resource}}',
        ),
      ],
    }),
    lines({
      title: 'Local disks',
      unit: 'Bps',
      none: NO_JOB,
      min: 0,
      about:
        'Bytes that the job reads from and writes to local disks. NFS is not counted: see below.',
      targets: [
        range(
          `sum by (cluster, node, direction) (${rate('takt_job_io_bytes_total')})`,
          '{{node}} {{direction}}',
        ),
      ],
      links: [links.storage],
    }),
    row('Network and NFS of its nodes'),
    nodeLines('received', { ...node, title: 'Network received by its nodes' }),
    nodeLines('sent', { ...node, title: 'Network sent by its nodes' }),
    lines({
      title: 'NFS traffic of its nodes',
      unit: 'Bps',
      none: 'No node of this job reported NFS traffic in this time.',
      min: 0,
      about: `Bytes from and to NFS servers on the nodes of the job, other jobs included. A steady
        read
          that fills the link means data loading is the brake.`,
      targets: [
        range(
          ofJob(
            `sum by (cluster, node)
              (${nodeRate('node_mountstats_nfs_total_read_bytes_total')})`,
            'cluster, node',
            'takt_job_info',
          ),
          '{{node}} read',
        ),
        range(
          ofJob(
            `sum by (cluster, node)
              (${nodeRate('node_mountstats_nfs_total_write_bytes_total')})`,
            'cluster, node',
            'takt_job_info',
          ),
          '{{node}} written',
        ),
      ],
      links: [links.storage],
    }),
    lines({
      title: 'Killed processes',
      unit: 'none',
      none: NO_JOB,
      bars: true,
      min: 0,
      thresholds: badFrom(1),
      about: 'Processes of the job that the kernel killed for lack of memory. Ask for more memory.',
      targets: [
        range(
          `sum by (cluster, node)
            (increase(${series('takt_job_oom_kills_total', JOB)}[$__interval]))`,
          '{{node}}',
        ),
      ],
    }),
    row('Without records'),
    stat({
      title: 'Mean GPU utilization',
      unit: 'percentunit',
      none: NO_GPU,
      width: 6,
      decimals: 0,
      thresholds: steps('red', [0.3, 'orange'], [0.5, 'green']),
      about: `Mean over the time range and all GPUs of the job, also while it runs.
        ${GPUS.utilization.about}`,
      targets: [instant(`avg(${ofJob(USED)})`, 'mean')],
    }),
    table({
      title: 'Its GPUs now',
      unit: 'none',
      none: NO_GPU,
      width: 18,
      height: 6,
      about: `The GPUs that the job holds at the end of the time range. Works without a scheduler
        and
          without SQL.`,
      targets: [
        rows(ofJob(indexed(series('takt_gpu_utilization_ratio', CLUSTER), CLUSTER))),
        rows(ofJob(indexed(series('takt_gpu_memory_used_bytes', CLUSTER), CLUSTER))),
        rows(ofJob(indexed(series('takt_gpu_power_watts', CLUSTER), CLUSTER))),
      ],
      transformations: joined(['use', 'memory', 'power'], ['node', 'index', VALUES, 'uuid']),
      columns: {
        use: { unit: 'percentunit', bar: true, min: 0, max: 1 },
        memory: { unit: 'bytes' },
        power: { unit: 'watt' },
      },
    }),
    spans({
      title: 'When it held which GPU',
      unit: 'none',
      none: NO_GPU,
      height: 6,
      about: 'A row for each GPU of the job.',
      targets: [
        range(
          `max by (cluster, node, uuid, jobid, user) (${series('takt_gpu_job_info', JOB)})`,
          '{{node}} {{uuid}}',
        ),
      ],
      links: [links.gpu, links.node],
    }),
  ],
});
