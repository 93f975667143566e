import { board, row } from '../board.js';
import { count, gpuLines } from '../gpus.js';
import { NODE, counted, indexed, instant, limitDefault, range, rows, series } from '../query.js';
import { ANSWERS, FAULT, RECOVERY, WAITING, fromLabels } from '../look.js';
import { VALUES, badFrom, joined, lines, stat, steps, table, worseFrom } from '../panels.js';

const links = fromLabels();
const NO_ECC = 'No GPU here corrects memory errors (GeForce cards do not).';
const NO_GPU = 'No NVIDIA GPU of these nodes reports it.';
const NO_NVLINK = 'No GPU here reports NVLinks.';
const NO_MIG = 'No GPU here reports parts (MIG).';
const grown = (metric, more, window = '1h') => `increase(${series(metric, NODE, more)}[${window}])`;
/** Of many GPUs the twenty highest. */
const worst = { only: (expr) => `topk(20, ${expr})` };
const ecc = (type) => {
  const errors = grown('takt_gpu_ecc_errors_total', `type="${type}"`);
  return worst.only(indexed(`max without (scope) (${errors})`));
};
const NVLINK_ERRORS = `sum by (cluster, node, uuid, type)
  (rate(${series('takt_gpu_nvlink_errors_total', NODE)}[$__rate_interval])) > 0`;
const NVLINK_UP = series('takt_gpu_nvlink_up', NODE);
const READY = series('takt_gpu_fabric_ready', NODE);
const DEGRADED = series('takt_gpu_fabric_degraded', NODE);
const faulty = (metric) => `sum(${series(metric, NODE)} > 0) or vector(0)`;

export default board({
  uid: 'gpu-faults',
  title: 'GPU faults',
  about: `Which cards are failing: XIDs, memory errors, remapped rows, links, heat, and the parts of
      divided GPUs.`,
  variables: ['cluster', 'nodePartition', 'node'],
  from: 'now-7d',
  panels: [
    row('Now'),
    stat({
      title: 'Do not answer',
      unit: 'none',
      none: NO_GPU,
      width: 4,
      thresholds: badFrom(1),
      about: `GPUs that do not answer: fallen off the bus, hung, or without driver. Drain the node,
          power-cycle it, reseat the card.`,
      targets: [instant(count.lost(NODE), 'lost')],
    }),
    stat({
      title: 'To be replaced',
      unit: 'none',
      none: NO_GPU,
      width: 4,
      thresholds: badFrom(1),
      about: `GPUs without spare rows, or with more SRAM errors than NVIDIA allows. They go back to
        the
          maker.`,
      targets: [
        instant(
          `count((${series('takt_gpu_row_remap_failed', NODE)} > 0) or
            (${series('takt_gpu_sram_threshold_exceeded', NODE)} > 0)) or vector(0)`,
          'cards',
        ),
      ],
    }),
    stat({
      title: 'Wait for a reset',
      unit: 'none',
      none: NO_GPU,
      width: 4,
      thresholds: steps('green', [1, 'orange']),
      about: `GPUs that will replace rows or pages at their next reset. Drain the node and reset at
          convenience.`,
      targets: [
        instant(
          `count((${series('takt_gpu_row_remap_pending', NODE)} > 0) or
            (${series('takt_gpu_retired_pages_pending', NODE)} > 0)) or vector(0)`,
          'cards',
        ),
      ],
    }),
    stat({
      title: 'XIDs',
      unit: 'none',
      none: NO_GPU,
      width: 4,
      decimals: 0,
      thresholds: worseFrom(1, 10),
      about: `Errors that the GPU driver reported in the time range. 13, 31 and 43 are mostly the
          program's fault; 48, 63, 64, 74, 79, 94, 95 the hardware's.`,
      targets: [
        instant(`sum(${grown('takt_gpu_xid_errors_total', '', '$__range')}) or vector(0)`, 'XIDs'),
      ],
    }),
    stat({
      title: 'Slow PCIe links',
      unit: 'none',
      none: NO_GPU,
      width: 4,
      thresholds: badFrom(1),
      about: `GPUs with fewer PCIe lanes, or an older generation under load, than card and slot can
        do.
          Reseat the card.`,
      targets: [instant(faulty('takt_gpu_pcie_degraded'), 'cards')],
    }),
    stat({
      title: 'NVLinks down',
      unit: 'none',
      none: NO_NVLINK,
      width: 4,
      thresholds: badFrom(1),
      about: `NVLinks that are not active. Some boards do not wire all of them: compare with the
        other
          nodes.`,
      targets: [instant(counted(`${NVLINK_UP} == 0`, NVLINK_UP), 'links')],
    }),
    table({
      title: 'GPUs that need a look',
      unit: 'none',
      none: 'No GPU has a fault.',
      sort: 'XIDs',
      height: 9,
      about: 'GPUs with at least one fault now or in the last week. Click an index for the GPU.',
      targets: [
        rows(
          indexed(
            `sum by (cluster, node, uuid) (${grown('takt_gpu_xid_errors_total', '', '7d')}) > 0`,
          ),
        ),
        rows(indexed(`min by (cluster, node, uuid) (${series('takt_gpu_up', NODE)}) == 0`)),
        rows(indexed(`${series('takt_gpu_recovery_action', NODE)} > 0`)),
        rows(indexed(`${series('takt_gpu_row_remap_failed', NODE)} > 0`)),
        rows(indexed(`${series('takt_gpu_row_remap_pending', NODE)} > 0`)),
        rows(indexed(`${series('takt_gpu_sram_threshold_exceeded', NODE)} > 0`)),
        rows(indexed(`${series('takt_gpu_pcie_degraded', NODE)} > 0`)),
      ],
      transformations: joined(
        ['XIDs', 'answers', 'action', 'remap failed', 'remap pending', 'SRAM errors', 'slow PCIe'],
        ['node', 'index'],
      ),
      columns: {
        XIDs: { decimals: 0, thresholds: badFrom(1) },
        answers: { mappings: ANSWERS },
        action: { mappings: RECOVERY },
        'remap failed': { mappings: FAULT },
        'remap pending': { mappings: WAITING },
        'SRAM errors': { mappings: FAULT },
        'slow PCIe': { mappings: FAULT },
      },
    }),
    row('XIDs'),
    lines({
      title: 'XIDs over time',
      unit: 'none',
      none: 'No XID happened in this time.',
      bars: true,
      min: 0,
      about: `Errors of the GPU driver by number, when they happened. Several numbers on one GPU
        within
          minutes are one fault: read the first.`,
      targets: [
        range(
          `topk(20, increase(${series('takt_gpu_xid_errors_total', NODE)}[$__interval]) > 0)`,
          '{{node}} {{uuid}}: XID {{xid}}',
        ),
      ],
      links: [links.gpu, links.node],
    }),
    table({
      title: 'Last XIDs',
      unit: 'none',
      none: 'No XID is known of these GPUs.',
      width: 12,
      sort: 'last seen',
      about: `When each GPU last had each XID, also before the exporter was restarted.
        docs/events.md
          lists what they mean.`,
      targets: [
        rows(
          `1000 * max by (cluster, node, uuid, xid)
            (${series('takt_gpu_xid_last_seen_timestamp_seconds', NODE)})`,
        ),
      ],
      transformations: joined(['last seen'], ['node', 'xid', 'last seen', 'uuid']),
      columns: { 'last seen': { unit: 'dateTimeFromNow' } },
    }),
    row('Memory errors'),
    lines({
      title: 'Corrected errors in an hour',
      unit: 'none',
      none: NO_ECC,
      min: 0,
      limit: 'gpu_ecc_corrected_per_hour',
      about: `Memory errors that the GPU corrected itself. Some are normal; above the limit, and
        growing,
          the card wears out.`,
      targets: [range(ecc('corrected'), '{{node}} GPU {{index}}')],
      links: [links.gpu, links.node],
    }),
    lines({
      title: 'Uncorrected errors in an hour',
      unit: 'none',
      none: NO_ECC,
      min: 0,
      thresholds: badFrom(1),
      about: `Memory errors that could not be corrected: the job's data is suspect. Drain the node
        and
          reset the GPU.`,
      targets: [range(ecc('uncorrected'), '{{node}} GPU {{index}}')],
      links: [links.gpu, links.node],
    }),
    table({
      title: 'Replaced rows and retired pages',
      unit: 'none',
      none: NO_ECC,
      width: 12,
      sort: 'rows',
      about: `Rows of memory that were replaced by spare ones, and (up to Volta) pages given up.
        Banks
          without spare rows make the next fault final.`,
      targets: [
        rows(indexed(`sum by (cluster, node, uuid) (${series('takt_gpu_row_remap_rows', NODE)})`)),
        rows(
          indexed(
            `max by (cluster, node, uuid)
              (${series('takt_gpu_row_remap_banks', NODE, 'spare="none"')})`,
          ),
        ),
        rows(indexed(`sum by (cluster, node, uuid) (${series('takt_gpu_retired_pages', NODE)})`)),
      ],
      transformations: joined(['rows', 'banks without spare', 'retired pages'], ['node', 'index']),
      columns: {
        rows: { thresholds: steps('green', [1, 'orange']) },
        'banks without spare': { thresholds: badFrom(1) },
        'retired pages': {
          thresholds: worseFrom(
            limitDefault('gpu_retired_pages'),
            limitDefault('gpu_retired_pages_limit'),
          ),
        },
      },
    }),
    lines({
      title: 'PCIe replays a minute',
      unit: 'none',
      none: NO_GPU,
      min: 0,
      limit: 'gpu_pcie_replays_per_minute',
      about: `Packets that had to be sent again over PCIe. Above the limit reseat the card or change
        the
          riser.`,
      targets: [
        range(
          `topk(20, ${indexed(grown('takt_gpu_pcie_replays_total', '', '1m'))})`,
          '{{node}} GPU {{index}}',
        ),
      ],
      links: [links.gpu, links.node],
    }),
    row('NVLink'),
    lines({
      title: 'NVLink errors a second',
      unit: 'none',
      none: 'No NVLink reported an error in this time.',
      min: 0,
      limit: 'gpu_nvlink_crc_per_second',
      about: `Errors of NVLinks by type. Damaged data (crc) is sent again and costs speed;
        recoveries
          interrupt the job for a moment.`,
      targets: [
        range(
          `topk(20,
            ${indexed(NVLINK_ERRORS)})`,
          '{{node}} GPU {{index}}: {{type}}',
        ),
      ],
      links: [links.gpu, links.node],
    }),
    lines({
      title: 'Fabric of NVSwitches',
      unit: 'none',
      none: 'No GPU here reports a fabric of NVSwitches.',
      min: 0,
      about: `GPUs that wait for their fabric, or get less bandwidth than they could. CUDA does not
        start
          while a GPU waits.`,
      targets: [
        range(counted(`${READY} == 0`, READY), 'not ready'),
        range(counted(`${DEGRADED} == 1`, DEGRADED), 'degraded'),
      ],
    }),
    row('Heat and clocks'),
    gpuLines('margin', worst),
    gpuLines('throttle', worst),
    row('Divided GPUs (MIG)'),
    table({
      title: 'Parts',
      unit: 'none',
      none: NO_MIG,
      width: 16,
      about: 'Parts that GPUs are divided into, with memory in use.',
      targets: [
        rows(
          `max by (cluster, node, uuid, mig_uuid, gpu_instance, profile)
            (${series('takt_gpu_mig_info', NODE)})`,
        ),
        rows(
          `${series('takt_gpu_mig_memory_used_bytes', NODE)} /
            ${series('takt_gpu_mig_memory_total_bytes', NODE)}`,
        ),
      ],
      transformations: joined(
        ['', 'memory'],
        ['node', 'gpu_instance', 'profile', VALUES, 'uuid', 'mig_uuid'],
      ),
      columns: { memory: { unit: 'percentunit', bar: true, min: 0, max: 1 } },
    }),
    lines({
      title: 'Activity of parts',
      unit: 'percentunit',
      none: NO_MIG,
      width: 8,
      min: 0,
      max: 1,
      about: `Share of time in which the compute engine of each part worked. A part near 0 is held
        for
          nothing.`,
      targets: [
        range(
          `topk(20, ${series('takt_gpu_mig_activity_ratio', NODE, 'part="graphics"')})`,
          '{{node}} {{mig_uuid}}',
        ),
      ],
    }),
    row('Versions'),
    table({
      title: 'Drivers and firmware',
      unit: 'none',
      none: NO_GPU,
      width: 24,
      about: 'Number of GPUs by model, driver and firmware. GPUs of one model should agree.',
      targets: [
        rows(
          `count by (cluster, model, driver, version) (max by (cluster, node, uuid, model, driver)
            (${series('takt_gpu_info', NODE)}) * on (cluster, node, uuid) group_left (version) max
            by (cluster, node, uuid, version) (${series('takt_gpu_vbios_info', NODE)}))`,
        ),
      ],
      transformations: joined(['GPUs'], ['model', 'driver', 'version']),
      columns: { version: { name: 'firmware' } },
    }),
  ],
});
