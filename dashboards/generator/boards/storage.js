import { board, row } from '../board.js';
import { ON_DISK, nodeLines } from '../nodes.js';
import { NODE, counted, instant, limitDefault, range, rows, series } from '../query.js';
import { HEALTHY, NVME, fromLabels } from '../look.js';
import { badFrom, bars, joined, lines, stat, steps, table, worseFrom } from '../panels.js';

const links = fromLabels();
const NO_NFS = 'No exporter of these nodes reports an NFS mount.';
const HUNG = series('takt_nfs_mount_hung_seconds', NODE);
const NO_SMART =
  'No disk here reports its health, or the exporter may not ask it (docs/privileges.md).';
const NO_NVME =
  'No NVMe disk here reports its health, or the exporter may not ask it (docs/privileges.md).';
const HEALTH = series('takt_disk_healthy', NODE);
const WARNING = series('takt_nvme_critical_warning', NODE);
const rate = (metric, more) => `rate(${series(metric, NODE, more)}[$__rate_interval])`;
const OPERATION = 'cluster, node, export, operation';
const requests = `sum by (${OPERATION}) (${rate('node_mountstats_nfs_operations_requests_total')})`;

/** Panels of NFS and of disks that also stand on the board of a few workstations. */
export const hung = stat({
  title: 'Hung NFS mounts',
  unit: 'none',
  none: NO_NFS,
  width: 4,
  thresholds: badFrom(1),
  about: `Mounts whose server answers nothing though requests wait. Jobs on them stand still: look
    at the
      server first, then at the network.`,
  targets: [instant(counted(`${HUNG} > 0`, HUNG), 'mounts')],
});
export const diskTable = table({
  title: 'Disks',
  unit: 'none',
  none: NO_SMART,
  height: 8,
  about: `Health of SATA and SAS disks as they report it. Any bad sector is a reason to save what is
    on
      the disk and replace it.`,
  targets: [
    rows(`max by (cluster, node, device) (${series('takt_disk_healthy', NODE)})`),
    rows(`max by (cluster, node, device) (${series('takt_disk_failing_attributes', NODE)})`),
    rows(`max by (cluster, node, device) (${series('takt_disk_pending_sectors', NODE)})`),
    rows(`max by (cluster, node, device) (${series('takt_disk_reallocated_sectors_total', NODE)})`),
    rows(
      `max by (cluster, node, device)
        (${series('takt_disk_reported_uncorrectable_errors_total', NODE)})`,
    ),
    rows(`max by (cluster, node, device) (${series('takt_disk_used_ratio', NODE)})`),
    rows(`max by (cluster, node, device) (${series('takt_disk_temperature_celsius', NODE)})`),
    rows(`max by (cluster, node, device) (${series('takt_disk_power_on_seconds_total', NODE)})`),
  ],
  transformations: joined(
    [
      'health',
      'failing attributes',
      'unreadable sectors',
      'replaced sectors',
      'uncorrected errors',
      'worn',
      'temperature',
      'in use for',
    ],
    ['node', 'device'],
  ),
  columns: {
    health: { mappings: HEALTHY },
    'failing attributes': { thresholds: badFrom(1) },
    'unreadable sectors': { thresholds: badFrom(limitDefault('node_disk_unreadable_sectors') + 1) },
    'replaced sectors': { thresholds: steps('green', [1, 'orange']) },
    'uncorrected errors': { thresholds: badFrom(1) },
    worn: { unit: 'percentunit', thresholds: worseFrom(0.8, limitDefault('node_disk_used_ratio')) },
    temperature: { unit: 'celsius' },
    'in use for': { unit: 's', decimals: 0 },
  },
});
export const nvmeTable = table({
  title: 'NVMe disks',
  unit: 'none',
  none: NO_NVME,
  height: 8,
  about: `Health of NVMe disks as they report it. "worn" above 100 % means the maker expects no
    more;
      "spare" at its limit turns the disk read-only soon.`,
  targets: [
    rows(`max by (cluster, node, device) (${series('takt_nvme_critical_warning', NODE)})`),
    rows(`max by (cluster, node, device) (${series('takt_nvme_used_ratio', NODE)})`),
    rows(`max by (cluster, node, device) (${series('takt_nvme_available_spare_ratio', NODE)})`),
    rows(`max by (cluster, node, device) (${series('takt_nvme_media_errors_total', NODE)})`),
    rows(`max by (cluster, node, device) (${series('takt_nvme_temperature_celsius', NODE)})`),
    rows(`max by (cluster, node, device) (${series('takt_nvme_written_bytes_total', NODE)})`),
    rows(`max by (cluster, node, device) (${series('takt_nvme_unsafe_shutdowns_total', NODE)})`),
  ],
  transformations: joined(
    ['health', 'worn', 'spare', 'data errors', 'temperature', 'written in its life', 'power cuts'],
    ['node', 'device'],
  ),
  columns: {
    health: { mappings: NVME },
    worn: { unit: 'percentunit', thresholds: worseFrom(0.8, limitDefault('node_nvme_used_ratio')) },
    spare: { unit: 'percentunit' },
    'data errors': { thresholds: badFrom(1) },
    temperature: { unit: 'celsius' },
    'written in its life': { unit: 'decbytes' },
  },
});
export const nfsTime = lines({
  title: 'NFS response time',
  unit: 's',
  none: 'No exporter reported an NFS request in this time.',
  min: 0,
  limit: 'nfs_slow_seconds',
  about: `Mean time from request to reply, the ten slowest of operation and export. Above the limit
    jobs
      feel it: look at the load of the server.`,
  targets: [
    range(
      `topk(10, sum by (${OPERATION})
        (${rate('node_mountstats_nfs_operations_response_time_seconds_total')}) / (${requests} >
        0))`,
      '{{node}} {{export}} {{operation}}',
    ),
  ],
  links: [links.node],
});

export default board({
  uid: 'storage',
  title: 'NFS and disks',
  about: 'Do file servers answer, are disks healthy, what fills up.',
  variables: ['cluster', 'nodePartition', 'node'],
  panels: [
    row('Now'),
    hung,
    stat({
      title: 'Servers that do not answer',
      unit: 'none',
      none: 'No node reports a file server that failed to answer.',
      width: 4,
      thresholds: badFrom(1),
      about: `NFS servers that at least one node's kernel calls not responding. Servers that never
        failed
          are not counted.`,
      targets: [
        instant(
          `count(count by (cluster, server) (${series('takt_nfs_server_responding', NODE)} == 0)) or
            vector(0)`,
          'servers',
        ),
      ],
    }),
    stat({
      title: 'File systems over the limit',
      unit: 'none',
      none: 'No file system is reported.',
      width: 4,
      thresholds: worseFrom(1, 5),
      about: 'Local file systems with little room left. The bars below name them.',
      targets: [
        instant(
          `count(${series('node_filesystem_avail_bytes', NODE, ON_DISK)} /
            ${series('node_filesystem_size_bytes', NODE, ON_DISK)} <
            ${limitDefault('node_disk_low_ratio')}) or vector(0)`,
          'file systems',
        ),
      ],
    }),
    stat({
      title: 'Became read-only',
      unit: 'none',
      none: 'No file system is reported.',
      width: 4,
      thresholds: badFrom(1),
      about: `Local file systems that became read-only in the time range: the kernel does that when
        a
          disk fails.`,
      targets: [
        instant(
          `count((${series('node_filesystem_readonly', NODE, ON_DISK)} == 1) and
            (min_over_time(${series('node_filesystem_readonly', NODE, ON_DISK)}[$__range]) == 0)) or
            vector(0)`,
          'file systems',
        ),
      ],
    }),
    stat({
      title: 'Failing disks',
      unit: 'none',
      none: NO_SMART,
      width: 4,
      thresholds: badFrom(1),
      about: 'Disks that say themselves that they are failing.',
      targets: [
        instant(
          counted(`(${HEALTH} == 0) or (${WARNING} > 0)`, `${HEALTH} or ${WARNING}`),
          'disks',
        ),
      ],
    }),
    stat({
      title: 'Damaged arrays',
      unit: 'none',
      none: 'No exporter of these nodes reports a software RAID (md).',
      width: 4,
      thresholds: badFrom(1),
      about: `Software RAIDs with fewer working disks than they need. Replace the disk before a
        second
          one fails.`,
      targets: [
        instant(
          counted(
            `${series('node_md_disks', NODE, 'state="active"')} < on (cluster, node, device)
              ${series('node_md_disks_required', NODE)}`,
            series('node_md_disks_required', NODE),
          ),
          'arrays',
        ),
      ],
    }),
    row('NFS'),
    lines({
      title: 'Hung mounts',
      unit: 's',
      none: 'No exporter reported a hung mount in this time.',
      min: 0,
      limit: 'nfs_hung_seconds',
      about: `For how long a server has answered nothing on a mount. One node: its network. All
        nodes:
          the server.`,
      targets: [range(`topk(20, ${HUNG} > 0)`, '{{node}} {{mountpoint}} ({{server}})')],
      links: [links.node, links.network],
    }),
    nfsTime,
    lines({
      title: 'NFS traffic by export',
      unit: 'Bps',
      none: NO_NFS,
      about: 'Bytes read from (above zero) and written to (below) each export by all chosen nodes.',
      targets: [
        range(
          `topk(10, sum by (cluster, export)
            (${rate('node_mountstats_nfs_total_read_bytes_total')}))`,
          '{{export}} read',
        ),
        range(
          `-topk(10, sum by (cluster, export)
            (${rate('node_mountstats_nfs_total_write_bytes_total')}))`,
          '{{export}} written',
        ),
      ],
    }),
    bars({
      title: 'Nodes that use NFS most',
      unit: 'Bps',
      none: NO_NFS,
      width: 12,
      min: 0,
      about: 'The fifteen nodes with the most NFS traffic now. Click one for its jobs.',
      targets: [
        instant(
          `topk(15, sum by (cluster, node)
            (rate(${series('node_mountstats_nfs_total_read_bytes_total', NODE)}[5m])) + sum by
            (cluster, node)
            (rate(${series('node_mountstats_nfs_total_write_bytes_total', NODE)}[5m])))`,
          '{{node}}',
        ),
      ],
      links: [links.node],
    }),
    lines({
      title: 'NFS requests by operation',
      unit: 'reqps',
      none: NO_NFS,
      stack: true,
      min: 0,
      about: `Requests a second of all chosen nodes. Many GETATTR, LOOKUP and ACCESS mean many small
          files: pack them.`,
      targets: [
        range(
          `topk(10, sum by (operation) (${rate('node_mountstats_nfs_operations_requests_total')}))`,
          '{{operation}}',
        ),
      ],
    }),
    lines({
      title: 'NFS requests sent again',
      unit: 'percentunit',
      none: 'No exporter reported an NFS request in this time.',
      min: 0,
      limit: 'nfs_retransmissions_ratio',
      about: `Share of requests that had to be sent again. Above the limit look at the errors of the
        link
          on both sides.`,
      targets: [
        range(
          `topk(10, 1 - sum by (cluster, node, export)
            (${rate('node_mountstats_nfs_operations_requests_total')}) / (sum by (cluster, node,
            export) (${rate('node_mountstats_nfs_operations_transmissions_total')}) > 0))`,
          '{{node}} {{export}}',
        ),
      ],
      links: [links.network],
    }),
    lines({
      title: 'NFS errors',
      unit: 'reqps',
      none: 'No exporter reported a failed NFS request in this time.',
      min: 0,
      about: `Requests a second that failed, by operation. LOOKUP errors are files that do not
        exist:
          often a program that searches a long path.`,
      targets: [
        range(
          `topk(10, sum by (cluster, node, operation) (${rate('takt_nfs_operation_errors_total')}) >
            0)`,
          '{{node}} {{operation}}',
        ),
      ],
    }),
    lines({
      title: 'Reads by where they came from',
      unit: 'ops',
      none: 'No exporter of these nodes reports a cache of NFS on disks (FS-Cache).',
      stack: true,
      min: 0,
      about: 'Parts of reads that the local cache answered, and those that went to the server.',
      targets: [
        range(`sum by (source) (${rate('takt_fscache_read_sources_total')})`, '{{source}}'),
      ],
    }),
    row('File systems'),
    bars({
      title: 'Fullest file systems',
      unit: 'percentunit',
      none: 'No file system is reported.',
      width: 12,
      min: 0,
      max: 1,
      limit: ['node_disk_low_ratio', (ratio) => 1 - ratio, (expr) => `1 - ${expr}`],
      about: 'The fifteen fullest local file systems. Above the limit make room.',
      targets: [
        instant(
          `topk(15, 1 - ${series('node_filesystem_avail_bytes', NODE, ON_DISK)} /
            ${series('node_filesystem_size_bytes', NODE, ON_DISK)})`,
          '{{node}} {{mountpoint}}',
        ),
      ],
      links: [links.node],
    }),
    bars({
      title: 'Full within a day',
      unit: 's',
      none: 'No file system grows so fast.',
      width: 12,
      min: 0,
      thresholds: steps('red', [14400, 'orange'], [86400, 'green']),
      about: `Time until a file system is full if it grows as in the last six hours. Red: within
        four
          hours.`,
      targets: [
        instant(
          `bottomk(15, ${series('node_filesystem_avail_bytes', NODE, ON_DISK)} /
            (-deriv(${series('node_filesystem_avail_bytes', NODE, ON_DISK)}[6h]) > 0) < 86400)`,
          '{{node}} {{mountpoint}}',
        ),
      ],
      links: [links.node],
    }),
    row('Disks'),
    nvmeTable,
    diskTable,
    nodeLines('waiting', { only: (expr) => `topk(10, ${expr})` }),
    lines({
      title: 'Busiest disks',
      unit: 'percentunit',
      none: 'No disk is reported.',
      min: 0,
      max: 1,
      about: `Share of time in which a disk had at least one request, the ten busiest. NVMe disks
        can be
          busy and still take more.`,
      targets: [
        range(
          `topk(10, ${rate('node_disk_io_time_seconds_total', 'device!~"loop.*|zram.*|dm-.*"')})`,
          '{{node}} {{device}}',
        ),
      ],
      links: [links.node],
    }),
    lines({
      title: 'Time of a request',
      unit: 's',
      none: 'No disk reported a request a second in this time.',
      min: 0,
      thresholds: worseFrom(0.05, 0.2),
      about: `Mean time of reads and writes, the ten slowest disks. Hard disks take about 10 ms,
        SSDs
          below 1 ms; much more is overload or a dying disk.`,
      targets: [
        range(
          `topk(10, (${rate('node_disk_read_time_seconds_total')} +
            ${rate('node_disk_write_time_seconds_total')}) /
            (${rate('node_disk_reads_completed_total')} +
            ${rate('node_disk_writes_completed_total')} > 1))`,
          '{{node}} {{device}}',
        ),
      ],
      links: [links.node],
    }),
    lines({
      title: 'Software RAID being rebuilt',
      unit: 'percentunit',
      none: 'No exporter reported a software RAID (md) that is rebuilt.',
      min: 0,
      max: 1,
      about: 'How far each array is in sync. Below 100 % it is rebuilt, and slower.',
      targets: [
        range(
          `bottomk(10, ${series('node_md_blocks_synced', NODE)} / ${series('node_md_blocks', NODE)}
            < 1)`,
          '{{node}} {{device}}',
        ),
      ],
    }),
  ],
});
