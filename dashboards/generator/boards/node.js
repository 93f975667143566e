import { board, row } from '../board.js';
import { count, gpuLines } from '../gpus.js';
import { NODES, ON_DISK, nodeLines } from '../nodes.js';
import {
  NODE,
  indexed,
  instant,
  jobsOnGpus,
  limitDefault,
  range,
  ranked,
  rows,
  series,
} from '../query.js';
import { FAULT, SEVERITY, fromLabels } from '../look.js';
import { VALUES, badFrom, joined, lines, spans, stat, steps, table, worseFrom } from '../panels.js';

const links = fromLabels();
const NO_NODE =
  'No exporter of this node reports it. Check that takt-exporter runs there and is scraped.';
const NO_GPU = 'This node has no NVIDIA GPU that answers.';
const rate = (metric, more) => `rate(${series(metric, NODE, more)}[$__rate_interval])`;
const UNAVAILABLE = series('takt_slurm_node_unavailable', NODE);
const LINK = 'device!~"lo|veth.*|docker.*|virbr.*|cni.*|cali.*"';

/** The panels of a node, without its GPUs. */
export const machine = [
  lines({
    title: 'CPU by mode',
    unit: 'percentunit',
    none: NO_NODE,
    stack: true,
    min: 0,
    max: 1,
    about: `Share of the CPU time by what CPUs did, all chosen nodes together. Much "iowait" means waiting for disks or NFS,
      much
        "system" many small requests to the kernel.`,
    targets: [
      range(
        `sum by (mode) (${rate('node_cpu_seconds_total', 'mode!="idle"')}) / scalar(sum(
          ${rate('node_cpu_seconds_total')}))`,
        '{{mode}}',
      ),
    ],
  }),
  nodeLines('load'),
  nodeLines('memory'),
  lines({
    title: 'Waiting for CPU, memory and disks',
    unit: 'percentunit',
    min: 0,
    max: 1,
    thresholds: worseFrom(0.2, 0.5),
    none: NODES.waiting.none,
    about: `Share of time in which at least one task waited for the resource. Memory above a few
      percent
        means that the node is close to killing processes.`,
    targets: [
      range(rate('node_pressure_cpu_waiting_seconds_total'), '{{node}} CPU'),
      range(rate('node_pressure_memory_waiting_seconds_total'), '{{node}} memory'),
      range(rate('node_pressure_io_waiting_seconds_total'), '{{node}} disks'),
    ],
  }),
  lines({
    title: 'File systems',
    unit: 'percentunit',
    none: NO_NODE,
    min: 0,
    max: 1,
    limit: ['node_disk_low_ratio', (ratio) => 1 - ratio, (expr) => `1 - ${expr}`],
    about: `How full each local file system is. Above the limit make room; a steep line fills within
        hours.`,
    targets: [
      range(
        `1 - ${series('node_filesystem_avail_bytes', NODE, ON_DISK)} /
          ${series('node_filesystem_size_bytes', NODE, ON_DISK)}`,
        '{{node}} {{mountpoint}}',
      ),
    ],
    links: [links.storage],
  }),
  lines({
    title: 'Disk traffic',
    unit: 'Bps',
    none: NO_NODE,
    about: 'Bytes read (above zero) and written (below) by each disk.',
    targets: [
      range(
        rate('node_disk_read_bytes_total', 'device!~"loop.*|zram.*"'),
        '{{node}} {{device}} read',
      ),
      range(
        `-${rate('node_disk_written_bytes_total', 'device!~"loop.*|zram.*"')}`,
        '{{node}} {{device}} written',
      ),
    ],
    links: [links.storage],
  }),
  lines({
    title: 'Network traffic',
    unit: 'Bps',
    none: NO_NODE,
    about: `Bytes received (above zero) and sent (below) by each link. The network board compares
      with
        the speed of the link.`,
    targets: [
      range(rate('node_network_receive_bytes_total', LINK), '{{node}} {{device}} received'),
      range(`-${rate('node_network_transmit_bytes_total', LINK)}`, '{{node}} {{device}} sent'),
    ],
    links: [links.network],
  }),
  lines({
    title: 'Events of the kernel log',
    unit: 'none',
    none: 'Nothing happened, or the kernel log is not readable.',
    bars: true,
    min: 0,
    about: `Events that the exporter read from the kernel log and from the GPU driver, by kind:
      XIDs,
        killed processes, NFS, disks. Each is worth a look.`,
    targets: [
      range(`increase(${series('takt_events_total', NODE)}[$__interval]) > 0`, '{{node}} {{kind}}'),
    ],
    links: [links.faults],
  }),
];

/** The GPUs of a node side by side. */
export const gpuTable = table({
  title: 'GPUs',
  unit: 'none',
  none: NO_GPU,
  sort: 'use',
  height: 7,
  about: 'One row a GPU. "action" is what the driver wants done. Click an index for the GPU.',
  targets: [
    rows(`max by (cluster, node, uuid, index, model, driver) (${series('takt_gpu_info', NODE)})`),
    rows(indexed(series('takt_gpu_utilization_ratio', NODE))),
    rows(
      indexed(
        `${series('takt_gpu_memory_used_bytes', NODE)} /
          ${series('takt_gpu_memory_total_bytes', NODE)}`,
      ),
    ),
    rows(indexed(series('takt_gpu_power_watts', NODE))),
    rows(indexed(series('takt_gpu_temperature_celsius', NODE, 'sensor="gpu"'))),
    rows(
      indexed(
        `sum by (cluster, node, uuid) (increase(${series('takt_gpu_xid_errors_total', NODE)}[1d]))`,
      ),
    ),
    rows(indexed(series('takt_gpu_pcie_degraded', NODE))),
  ],
  transformations: joined(
    ['', 'use', 'memory', 'power', 'temperature', 'XIDs in a day', 'slow PCIe'],
    ['node', 'index', VALUES, 'model', 'driver', 'uuid'],
  ),
  columns: {
    use: { unit: 'percentunit', bar: true, min: 0, max: 1, decimals: 0 },
    memory: { unit: 'percentunit', bar: true, min: 0, max: 1, decimals: 0 },
    power: { unit: 'watt', decimals: 0 },
    temperature: { unit: 'celsius', decimals: 0 },
    'XIDs in a day': { decimals: 0, thresholds: badFrom(1) },
    'slow PCIe': { mappings: FAULT },
  },
});

/** Jobs of the chosen nodes, by the exporter's own sight. */
export const jobsHere = table({
  title: 'Jobs on these nodes',
  unit: 'none',
  none: 'No job runs here, or the exporter sees no job cgroups (docs/jobs-on-a-node.md).',
  height: 7,
  about: `One row for each job and node: CPUs in use, memory now and at most, GPUs held. Click a job
    or
      its user.`,
  targets: [
    rows(`max by (cluster, node, jobid, user) (${series('takt_job_info', NODE)})`),
    rows(`sum by (cluster, node, jobid) (${rate('takt_job_cpu_seconds_total')})`),
    rows(`max by (cluster, node, jobid) (${series('takt_job_cpus', NODE)})`),
    rows(`max by (cluster, node, jobid) (${series('takt_job_memory_current_bytes', NODE)})`),
    rows(`max by (cluster, node, jobid) (${series('takt_job_memory_limit_bytes', NODE)})`),
    rows(`count by (cluster, node, jobid) (${series('takt_gpu_job_info', NODE)})`),
  ],
  transformations: joined(
    ['', 'CPUs used', 'CPUs held', 'memory', 'memory limit', 'GPUs'],
    ['jobid', 'user', 'node'],
  ),
  columns: {
    'CPUs used': { decimals: 1 },
    memory: { unit: 'bytes' },
    'memory limit': { unit: 'bytes' },
  },
});

export default board({
  uid: 'node',
  title: 'node',
  about: 'One node, or a few: its GPUs, jobs, CPUs, memory, disks and links.',
  variables: ['cluster', 'nodePartition', 'oneNode'],
  panels: [
    row('Now'),
    stat({
      title: 'Up for',
      unit: 's',
      none: NO_NODE,
      width: 4,
      decimals: 0,
      thresholds: steps('orange', [limitDefault('boot_grace_seconds'), 'text']),
      about: 'Time since the node was booted. Orange in the first ten minutes.',
      targets: [
        instant(
          `${series('node_time_seconds', NODE)} - ${series('node_boot_time_seconds', NODE)}`,
          '{{node}}',
        ),
      ],
    }),
    stat({
      title: 'System',
      unit: 'none',
      none: NO_NODE,
      width: 6,
      textMode: 'name',
      thresholds: steps('text'),
      about: 'Kernel and system. Nodes of one kind should agree.',
      targets: [instant(series('node_uname_info', NODE), '{{sysname}} {{release}}')],
    }),
    stat({
      title: 'Slurm state',
      unit: 'none',
      none: 'Slurm knows no such node, or is not asked.',
      width: 4,
      textMode: 'name',
      colorMode: 'background',
      thresholds: badFrom(1),
      about: `Why Slurm cannot use the node, if it cannot, with the reason. "available" if nothing
        is
          wrong.`,
      targets: [
        instant(
          `max by (cluster, node, state, reason) (${UNAVAILABLE}) or on (cluster, node)
            label_replace(0 * group by (cluster, node)
            (${series('takt_slurm_node_partition', NODE)}), "state", "available", "", "")`,
          '{{state}} {{reason}}',
        ),
      ],
    }),
    stat({
      title: 'GPUs',
      unit: 'none',
      none: NO_GPU,
      width: 4,
      thresholds: steps('text'),
      about: 'GPUs that answer, and GPUs that the node should have. Worry when they differ.',
      targets: [instant(count.answering(NODE), 'answer'), instant(count.all(NODE), 'all')],
    }),
    stat({
      title: 'Collectors failing',
      unit: 'none',
      none: NO_NODE,
      thresholds: badFrom(1),
      about: `Parts of the exporter that could not read what they should; missing hardware does not
          count. The exporter's log names the reason.`,
      targets: [
        instant(
          `count((${series('node_scrape_collector_success', NODE)} == 0) unless on (cluster, node,
            collector) (${series('takt_exporter_collector_absent', NODE)} == 1)) or vector(0)`,
          'failing',
        ),
      ],
    }),
    stat({
      title: 'Stuck task',
      unit: 's',
      none: NO_NODE,
      limit: 'node_task_stuck_seconds',
      about: `How long the task that hangs longest has hung in the kernel. Above the limit look at
        NFS
          and disks.`,
      targets: [instant(`max(${series('takt_stuck_task_seconds', NODE)})`, 'hangs')],
    }),
    table({
      title: 'Alerts',
      unit: 'none',
      none: 'No alert fires for this node.',
      height: 5,
      about:
        'Alerts of this node that fire or are about to. docs/rules.md says what to do about each.',
      targets: [
        rows(ranked('cluster, node, alertname, alertstate', NODE, 'alertname!="Watchdog"')),
      ],
      sort: 'severity',
      transformations: joined(['severity'], ['severity', 'alertname', 'alertstate', 'node']),
      columns: { severity: { mappings: SEVERITY } },
    }),
    row('GPUs'),
    gpuTable,
    gpuLines('utilization'),
    gpuLines('memory'),
    gpuLines('power'),
    gpuLines('temperature'),
    spans({
      title: 'Jobs on GPUs',
      unit: 'none',
      none: 'No job held a GPU of this node.',
      showValue: 'never',
      height: 7,
      about:
        'When which job held which GPU, the forty longest. Gaps are time in which the GPU was free.',
      targets: [
        range(
          `max by (cluster, node, uuid, index, jobid, user)
            (${indexed(jobsOnGpus(NODE))})`,
          'GPU {{index}}: {{jobid}} {{user}}',
        ),
      ],
      links: [links.job, links.user, links.gpu],
    }),
    row('Jobs'),
    jobsHere,
    row('Machine'),
    ...machine,
    lines({
      title: 'Sensors',
      unit: 'celsius',
      none: 'No temperature sensor of this board is reported.',
      about: `Temperatures of CPUs, board and disks, by sensor. Compare with the neighbours; the
        alert
          NodeHwSensor uses the board's own limits.`,
      targets: [
        range(
          `topk(20, ${series('node_hwmon_temp_celsius', NODE)})`,
          '{{node}} {{chip}} {{sensor}}',
        ),
      ],
    }),
    lines({
      title: 'Zombies and open files',
      unit: 'none',
      none: NO_NODE,
      min: 0,
      about: `Finished processes whose parent has not fetched them, in thousandths of the limit of
        open
          files. Many zombies use up process numbers.`,
      targets: [
        range(series('takt_zombie_processes', NODE), '{{node}} zombies'),
        range(
          `1000 * ${series('node_filefd_allocated', NODE)} /
            ${series('node_filefd_maximum', NODE)}`,
          '{{node}} open files, thousandths',
        ),
      ],
    }),
  ],
});
