// What is shown of a node: one entry a quantity, used by every board that shows it.

import { NODE, range, series } from './query.js';
import { fromLabels } from './look.js';
import { lines, worseFrom } from './panels.js';

/** File systems of disks: neither memory nor images nor the network. */
export const ON_DISK = 'fstype!~"tmpfs|ramfs|overlay|squashfs|iso9660|nfs.*|fuse.*|autofs"';
const REAL_LINK = 'device!~"lo|veth.*|docker.*|br-.*|virbr.*|cni.*|flannel.*|cali.*"';
const NO_NODE =
  'No exporter of these nodes reports it. Check that takt-exporter runs there and is scraped.';

export const NODES = {
  cpu: {
    title: 'CPU busy',
    unit: 'percentunit',
    min: 0,
    max: 1,
    expr: (scope) =>
      // A share of the measured time: at the edges of a gap, uncounted time is not busy. The node's clock is one
      // series, all modes of all CPUs are a thousand.
      `1 - avg by (cluster, node) (rate(${series('node_cpu_seconds_total', scope, 'mode="idle"')}` +
      '[$__rate_interval])) / max by (cluster, node) ' +
      `(rate(${series('node_time_seconds', scope)}[$__rate_interval]))`,
    about:
      `Share of the CPU time in which CPUs worked. 100 % is fine on a compute node. Worry when jobs
        hold the ` + 'node and it stays near 0, or when GPUs wait for CPUs that are all busy.',
  },
  memory: {
    title: 'Memory in use',
    unit: 'percentunit',
    min: 0,
    max: 1,
    limit: ['node_memory_low_ratio', (ratio) => 1 - ratio, (expr) => `1 - ${expr}`],
    expr: (scope) =>
      `1 - ${series('node_memory_MemAvailable_bytes', scope)} / ` +
      `${series('node_memory_MemTotal_bytes', scope)}`,
    about:
      `Share of the memory that programs hold and the kernel cannot free. Above the limit the kernel
        may kill ` + 'processes.',
  },
  load: {
    title: 'Load for each CPU',
    unit: 'none',
    min: 0,
    limit: 'node_load_per_cpu',
    expr: (scope) =>
      `max by (cluster, node) (${series('node_load1', scope)}) / count by (cluster, node) ` +
      `(${series('node_cpu_seconds_total', scope, 'mode="idle"')})`,
    about:
      `Tasks that run, wait for a CPU or hang in the kernel, for each CPU. Worry above the limit
        while CPUs ` + 'idle: then tasks wait for disks or NFS.',
  },
  disk: {
    title: 'Fullest file system',
    unit: 'percentunit',
    min: 0,
    max: 1,
    limit: ['node_disk_low_ratio', (ratio) => 1 - ratio, (expr) => `1 - ${expr}`],
    expr: (scope) =>
      `max by (cluster, node) (1 - ${series('node_filesystem_avail_bytes', scope, ON_DISK)} / ` +
      `${series('node_filesystem_size_bytes', scope, ON_DISK)})`,
    about: `How full the fullest local file system is. Above the limit logs and jobs begin to fail
        soon.`,
  },
  received: {
    title: 'Network received',
    unit: 'Bps',
    min: 0,
    expr: (scope) =>
      `sum by (cluster, node)
        (rate(${series('node_network_receive_bytes_total', scope, REAL_LINK)}` +
      '[$__rate_interval]))',
    about: `Bytes received over all real links. Compare with the speed of the link on the network
        board.`,
  },
  sent: {
    title: 'Network sent',
    unit: 'Bps',
    min: 0,
    expr: (scope) =>
      `sum by (cluster, node)
        (rate(${series('node_network_transmit_bytes_total', scope, REAL_LINK)}` +
      '[$__rate_interval]))',
    about: `Bytes sent over all real links. Checkpoints of many nodes at once fill the link of the
      file
        server.`,
  },
  waiting: {
    title: 'Waiting for disks and NFS',
    unit: 'percentunit',
    min: 0,
    max: 1,
    thresholds: worseFrom(0.2, 0.5),
    expr: (scope) =>
      `max by (cluster, node) (rate(${series('node_pressure_io_waiting_seconds_total', scope)}` +
      '[$__rate_interval]))',
    about:
      `Share of time in which at least one task waited for a disk or a network file system. Above 20
        % jobs ` + 'feel it.',
    none: `The kernels of these nodes do not report pressure (psi=1 on the kernel command line turns
      it on).`,
  },
};

/** Lines over time, one a node. */
export function nodeLines(name, { scope = NODE, only = (expr) => expr, ...more } = {}) {
  const quantity = NODES[name];
  const links = fromLabels();
  return lines({
    none: NO_NODE,
    ...quantity,
    targets: [range(only(quantity.expr(scope)), '{{node}}')],
    links: [links.node],
    ...more,
  });
}

/** The same for any number of nodes: the highest, the middle and the lowest. */
export function spread(name, { scope = NODE, ...more } = {}) {
  const quantity = NODES[name];
  const expr = quantity.expr(scope);
  return lines({
    none: NO_NODE,
    ...quantity,
    title: `${quantity.title}: highest, middle, lowest node`,
    targets: [
      range(`max(${expr})`, 'highest'),
      range(`quantile(0.95, ${expr})`, '95 % of the nodes are below'),
      range(`quantile(0.5, ${expr})`, 'middle'),
      range(`min(${expr})`, 'lowest'),
    ],
    ...more,
  });
}
