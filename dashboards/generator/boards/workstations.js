import { board, row } from '../board.js';
import { FREE, count, gpuLines } from '../gpus.js';
import { nodeLines } from '../nodes.js';
import { firingTable } from './alerts.js';
import { linkTable, linkUse } from './network.js';
import { gpuTable, jobsHere, machine } from './node.js';
import { diskTable, hung, nfsTime, nvmeTable } from './storage.js';
import { CLUSTER, NODE, instant, jobsOnGpus, range, rows, series } from '../query.js';
import { fromLabels } from '../look.js';
import { VALUES, badFrom, joined, lines, spans, stat, steps, table, worseFrom } from '../panels.js';

const links = fromLabels();
const NO_GPU = 'No node with an NVIDIA GPU is scraped.';
const UP = `max by (cluster, node) (${series('up', NODE, 'node!=""')})`;
const named = new Set([
  'CPU by mode',
  'Load for each CPU',
  'Memory in use',
  'File systems',
  'Network traffic',
  'Events of the kernel log',
]);

export default board({
  uid: 'workstations',
  title: 'a few workstations',
  about: 'Everything of a handful of machines on one page. Needs no scheduler and no SQL.',
  variables: ['cluster', 'node', 'user'],
  panels: [
    row('Now'),
    stat({
      title: 'Machines',
      unit: 'none',
      none: 'No machine is scraped.',
      width: 5,
      textMode: 'value_and_name',
      mappings: [
        {
          type: 'value',
          options: {
            0: { text: 'down', color: 'red', index: 0 },
            1: { text: 'up', color: 'green', index: 1 },
          },
        },
      ],
      thresholds: steps('text'),
      about: 'Whether the exporter of each machine answers.',
      targets: [instant(UP, '{{node}}')],
      links: [links.node],
    }),
    stat({
      title: 'GPUs',
      unit: 'none',
      none: NO_GPU,
      width: 4,
      thresholds: steps('text'),
      about: 'GPUs that answer, and all that are known. Worry when they differ.',
      targets: [instant(count.answering(NODE), 'answer'), instant(count.all(NODE), 'all')],
    }),
    stat({
      title: 'GPUs free',
      unit: 'none',
      none: NO_GPU,
      thresholds: steps('text'),
      about: FREE,
      targets: [instant(count.free(NODE), 'free')],
    }),
    stat({
      title: 'Alerts',
      unit: 'none',
      none: '0',
      thresholds: worseFrom(1, 5),
      about: 'Alerts that fire now, without the permanent Watchdog. The table below names them.',
      targets: [
        instant(
          `count(${series('ALERTS', CLUSTER, 'alertstate="firing", alertname!="Watchdog"')}) or
            vector(0)`,
          'alerts',
        ),
      ],
    }),
    hung,
    stat({
      title: 'Energy in this time',
      unit: 'kwatth',
      none: NO_GPU,
      width: 5,
      decimals: 2,
      thresholds: steps('text'),
      about: 'Energy that the GPUs drew in the time range.',
      targets: [
        instant(
          `sum(increase(${series('takt_gpu_energy_joules_total', NODE)}[$__range])) / 3.6e6`,
          'GPUs',
        ),
      ],
    }),
    firingTable,
    row('GPUs and who uses them'),
    gpuTable,
    table({
      title: 'Who uses which GPU',
      unit: 'none',
      none: 'No process of a user is on a GPU.',
      height: 6,
      sort: 'memory',
      about: `Processes on GPUs by user and command, with the memory they hold. Processes of a job
        stand
          on the jobs table.`,
      targets: [
        rows(
          `sum by (cluster, node, uuid, user, command)
            (${series('takt_gpu_process_memory_used_bytes', NODE, 'user=~"$user"')})`,
        ),
      ],
      transformations: joined(['memory'], ['user', 'command', 'node', VALUES, 'uuid']),
      columns: { memory: { unit: 'bytes' } },
    }),
    gpuLines('utilization'),
    gpuLines('memory'),
    gpuLines('power'),
    gpuLines('temperature'),
    gpuLines('throttle'),
    lines({
      title: 'XIDs',
      unit: 'none',
      none: 'No XID happened in this time.',
      bars: true,
      min: 0,
      about: `Errors of the GPU driver by number, when they happened. 13, 31 and 43 are mostly the
          program's fault.`,
      targets: [
        range(
          `increase(${series('takt_gpu_xid_errors_total', NODE)}[$__interval]) > 0`,
          '{{node}}: XID {{xid}}',
        ),
      ],
      links: [links.gpu, links.faults],
    }),
    spans({
      title: 'Jobs on GPUs',
      unit: 'none',
      none: 'No job held a GPU: without a scheduler there are none.',
      height: 6,
      about: 'When which job held which GPU, the forty longest.',
      targets: [
        range(
          `max by (cluster, node, uuid, jobid, user)
            (${jobsOnGpus(NODE, 'user=~"$user"')})`,
          '{{node}}: {{jobid}} {{user}}',
        ),
      ],
      links: [links.job, links.user],
    }),
    jobsHere,
    row('Machines'),
    ...machine.filter((panel) => named.has(panel.title)),
    nodeLines('waiting'),
    lines({
      title: 'Sensors',
      unit: 'celsius',
      none: 'No temperature sensor of these boards is reported.',
      about: 'The ten hottest sensors of CPUs, boards and disks.',
      targets: [
        range(
          `topk(10, ${series('node_hwmon_temp_celsius', NODE)})`,
          '{{node}} {{chip}} {{sensor}}',
        ),
      ],
    }),
    row('Disks, NFS and links'),
    nvmeTable,
    diskTable,
    nfsTime,
    linkUse,
    linkTable,
  ],
});
