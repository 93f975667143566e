import { board, row } from '../board.js';
import { FREE, count } from '../gpus.js';
import { NODES, ON_DISK, spread } from '../nodes.js';
import {
  JOB_COLUMNS,
  NODE,
  TO,
  FROM,
  chosen,
  highest,
  instant,
  limitDefault,
  range,
  rows,
  series,
  sql,
} from '../query.js';
import { BLUE, GREEN, GREY, NODE_STATES, ORANGE, RED, fromLabels } from '../look.js';
import {
  badFrom,
  bars,
  cells,
  heat,
  joined,
  lines,
  stat,
  steps,
  table,
  worseFrom,
} from '../panels.js';

const links = fromLabels();
const USED = series('takt_gpu_utilization_ratio', NODE);
const UP = `max by (cluster, node) (${series('up', NODE, 'node!=""')})`;
const CRITICAL = series(
  'ALERTS',
  'cluster=~"$cluster"',
  'alertstate="firing", severity="critical"',
);
const NO_GPUS = 'No node with an NVIDIA GPU is scraped.';
const NO_SLURM = 'No Slurm is asked, or slurmctld does not answer.';

/** GPUs whose recent utilization is in a band. */
const band = (from, to) => {
  const recent = `avg_over_time(${USED}[5m])`;
  const low = from === null ? '' : ` > ${from}`;
  const high = to === null ? '' : ` <= ${to}`;
  return `count(${recent}${low}${high}) or vector(0)`;
};

export default board({
  uid: 'cluster',
  title: 'cluster',
  about: 'Is the cluster healthy, who uses it, what is free, what is wasted, what broke.',
  variables: ['cluster', 'partition', 'account', 'sqlUser', 'node'],
  panels: [
    row('Now'),
    stat({
      title: 'Nodes',
      unit: 'none',
      none: 'No node is scraped.',
      width: 4,
      thresholds: steps('text'),
      about: `Nodes whose exporter answers, and nodes that are scraped. Worry when they differ: the
        table
          below names the node.`,
      targets: [instant(`sum(${UP})`, 'answer'), instant(`count(${UP})`, 'all')],
    }),
    stat({
      title: 'Nodes down',
      unit: 'none',
      none: 'No node is scraped.',
      thresholds: badFrom(1),
      about: `Nodes whose exporter does not answer. Look at the node's console, or at the exporter
        if the
          node answers otherwise.`,
      targets: [instant(`count(${UP} == 0) or vector(0)`, 'down')],
    }),
    stat({
      title: 'GPUs',
      unit: 'none',
      none: NO_GPUS,
      width: 4,
      thresholds: steps('text'),
      about: `GPUs that answer, and all that are known. A GPU that is missing has fallen off the bus
        or
          lost its driver.`,
      targets: [instant(count.answering(NODE), 'answer'), instant(count.all(NODE), 'all')],
    }),
    stat({
      title: 'GPUs held',
      unit: 'none',
      none: NO_GPUS,
      thresholds: steps('text'),
      about: 'GPUs that jobs hold, used or not.',
      targets: [instant(count.held(NODE), 'held')],
    }),
    stat({
      title: 'Held but idle',
      unit: 'none',
      none: NO_GPUS,
      thresholds: worseFrom(1, 8),
      about: `GPUs that a job holds and that did nothing for half an hour. Others wait for them: see
        the
          waste board.`,
      targets: [instant(count.heldIdle(NODE), 'idle')],
    }),
    stat({
      title: 'GPUs free',
      unit: 'none',
      none: NO_GPUS,
      thresholds: steps('text'),
      about: `${FREE} Free GPUs and a long queue together are worth a look: CPUs or memory of their
        nodes may be taken.`,
      targets: [instant(count.free(NODE), 'free')],
    }),
    stat({
      title: 'Critical alerts',
      unit: 'none',
      none: '0',
      thresholds: badFrom(1),
      width: 4,
      about: 'Critical alerts that fire now. The alerts board lists them.',
      targets: [
        instant(
          `count(${CRITICAL})
            or vector(0)`,
          'critical',
        ),
      ],
    }),
    row('GPUs'),
    lines({
      title: 'GPUs by how busy they are',
      unit: 'none',
      none: NO_GPUS,
      stack: true,
      min: 0,
      colors: {
        'idle (up to 5 %)': GREY,
        '5 to 30 %': ORANGE,
        '30 to 70 %': 'light-blue',
        'above 70 %': BLUE,
        'do not answer': RED,
      },
      about: `Number of GPUs by mean utilization of five minutes. A thick "idle" band with a full
        queue
          is waste.`,
      targets: [
        range(band(null, 0.05), 'idle (up to 5 %)'),
        range(band(0.05, 0.3), '5 to 30 %'),
        range(band(0.3, 0.7), '30 to 70 %'),
        range(band(0.7, null), 'above 70 %'),
        range(count.lost(NODE), 'do not answer'),
      ],
    }),
    heat({
      title: 'GPU utilization: how many GPUs at which level',
      unit: 'percentunit',
      none: NO_GPUS,
      about: `Each column is a moment, each row a tenth of utilization, the colour the number of
        GPUs.
          Dark at the bottom: many idle GPUs.`,
      targets: [range(`count_values("level", round(${USED}, 0.1))`, '{{level}}')],
    }),
    cells({
      title: 'GPU utilization by node (40 busiest)',
      unit: 'percentunit',
      none: NO_GPUS,
      min: 0,
      max: 1,
      height: 10,
      about: `A row for each node, darker is busier. White stretches in a node that is allocated are
          wasted GPU hours. Click a row for the node.`,
      targets: [
        range(
          highest(
            40,
            `avg by (cluster, node) (${USED})`,
            'cluster, node',
            `avg by (cluster, node) (avg_over_time(${USED}[$__range] @ end()))`,
          ),
          '{{node}}',
        ),
      ],
      links: [links.node],
    }),
    lines({
      title: 'GPU power',
      unit: 'watt',
      none: NO_GPUS,
      min: 0,
      about: `Power of all GPUs together, and of the hungriest one. The sum is what cooling and
        supply
          must carry besides CPUs.`,
      targets: [
        range(`sum(${series('takt_gpu_power_watts', NODE)})`, 'all GPUs'),
        range(`max(${series('takt_gpu_power_watts', NODE)})`, 'highest GPU'),
      ],
    }),
    bars({
      title: 'Hottest GPUs',
      unit: 'celsius',
      none: NO_GPUS,
      width: 12,
      about: `The fifteen GPUs closest to slowing down for heat, in degrees above their limit: -5 is
        five
          degrees below. Worry above the limit.`,
      limit: ['gpu_temperature_margin_celsius', (celsius) => -celsius, (expr) => `-${expr}`],
      targets: [
        instant(
          `topk(15, -${series('takt_gpu_temperature_margin_celsius', NODE)})`,
          '{{node}} {{uuid}}',
        ),
      ],
      links: [links.gpu, links.faults],
      min: -60,
      max: 0,
    }),
    row('Nodes'),
    table({
      title: 'Nodes',
      unit: 'none',
      none: 'No node is scraped.',
      sort: 'alerts',
      height: 12,
      about: `One row a node, those with alerts first. Click a name for the node. A red cell is over
        its
          limit.`,
      targets: [
        rows(UP),
        rows(`count by (cluster, node) (${series('ALERTS', NODE, 'alertstate="firing"')})`),
        rows(
          `sum by (cluster, node) (max by (cluster, node, uuid) (${series('takt_gpu_up', NODE)}))`,
        ),
        rows(`avg by (cluster, node) (${USED})`),
        rows(NODES.cpu.expr(NODE)),
        rows(`max by (cluster, node) (${NODES.memory.expr(NODE)})`),
        rows(NODES.disk.expr(NODE)),
        rows(`max by (cluster, node) (${series('takt_nfs_mount_hung_seconds', NODE)})`),
        rows(`count by (cluster, node) (${series('takt_job_info', NODE)})`),
      ],
      transformations: joined(
        [
          'exporter',
          'alerts',
          'GPUs',
          'GPU use',
          'CPU',
          'memory',
          'fullest disk',
          'NFS hung',
          'jobs',
        ],
        ['node'],
      ),
      columns: {
        exporter: {
          mappings: [
            {
              type: 'value',
              options: {
                0: { text: 'down', color: RED, index: 0 },
                1: { text: 'up', color: GREEN, index: 1 },
              },
            },
          ],
        },
        alerts: { thresholds: badFrom(1) },
        'GPU use': { unit: 'percentunit', bar: true, min: 0, max: 1, decimals: 0 },
        CPU: { unit: 'percentunit', bar: true, min: 0, max: 1, decimals: 0 },
        memory: {
          unit: 'percentunit',
          decimals: 0,
          thresholds: badFrom(1 - limitDefault('node_memory_low_ratio')),
        },
        'fullest disk': {
          unit: 'percentunit',
          decimals: 0,
          thresholds: badFrom(1 - limitDefault('node_disk_low_ratio')),
        },
        'NFS hung': { unit: 's', thresholds: badFrom(limitDefault('nfs_hung_seconds')) },
      },
    }),
    spread('cpu'),
    spread('memory'),
    spread('received'),
    spread('sent'),
    lines({
      title: 'Nodes by Slurm state',
      unit: 'none',
      none: NO_SLURM,
      stack: true,
      min: 0,
      colors: NODE_STATES,
      about: `Nodes by what Slurm can do with them. "unavailable" is down, drained, failing or
        registered with too little; "planned" is idle and kept for a waiting job.`,
      targets: [
        range(`sum by (state) (${series('takt_slurm_nodes', 'cluster=~"$cluster"')})`, '{{state}}'),
      ],
    }),
    bars({
      title: 'Fullest file systems',
      unit: 'percentunit',
      none: 'No file system is reported.',
      width: 12,
      min: 0,
      max: 1,
      limit: ['node_disk_low_ratio', (ratio) => 1 - ratio, (expr) => `1 - ${expr}`],
      about: `The fifteen fullest local file systems. Above the limit make room; the node board
        shows how
          fast it fills.`,
      targets: [
        instant(
          `topk(15, 1 - ${series('node_filesystem_avail_bytes', NODE, ON_DISK)} /
            ${series('node_filesystem_size_bytes', NODE, ON_DISK)})`,
          '{{node}} {{mountpoint}}',
        ),
      ],
      links: [links.node, links.storage],
    }),
    row('Jobs'),
    lines({
      title: 'Jobs that wait, by reason',
      unit: 'none',
      none: NO_SLURM,
      stack: true,
      min: 0,
      about: `Pending jobs by Slurm's reason. Resources and Priority are a full cluster; the others
        are
          limits, dependencies or broken nodes.`,
      targets: [
        range(
          `sum by (reason)
            (${series('takt_slurm_jobs_pending', 'cluster=~"$cluster", partition=~"$partition"')})`,
          '{{reason}}',
        ),
      ],
    }),
    table({
      title: 'Jobs now',
      unit: 'none',
      none: 'No job runs, or no job records are read.',
      width: 12,
      about: `Running jobs of the choice above, largest first. Click a job, its user, account or
          partition.`,
      targets: [
        sql(`SELECT ${JOB_COLUMNS}, gpus, cpus, run_seconds, wait_seconds
        FROM jobs WHERE state = 'RUNNING' AND start_time < ${TO} AND coalesce(end_time,
          now()::TIMESTAMP) > ${FROM}
        AND ${chosen('cluster', 'partition', 'account', 'user')}
        ORDER BY gpus DESC NULLS LAST, cpus DESC NULLS LAST LIMIT 200`),
      ],
      columns: {
        run_seconds: { unit: 's', name: 'runs for' },
        wait_seconds: { unit: 's', name: 'waited' },
      },
    }),
  ],
});
