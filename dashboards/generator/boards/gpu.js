import { board, row } from '../board.js';
import { GPUS, gpuLines } from '../gpus.js';
import { gpuTable } from './node.js';
import { GPU, indexed, instant, jobsOnGpus, range, series } from '../query.js';
import { ANSWERS, RECOVERY, fromLabels } from '../look.js';
import { lines, spans, stat, steps } from '../panels.js';

const links = fromLabels();
const NO_GPU = 'This GPU does not report it. See docs/gpus.md for what each model supports.';
const HELD_DOWN = series('takt_gpu_throttle_seconds_total', GPU, 'reason!~"idle|low_utilization"');
const info = (text) =>
  instant(
    `max by (cluster, node, uuid, index, model, driver, pci_bus_id)
      (${series('takt_gpu_info', GPU)})`,
    text,
  );

export default board({
  uid: 'gpu',
  title: 'GPU',
  about: `One GPU after the other: activity, memory, power, heat, clocks, links and the jobs that
    held
      it.`,
  variables: ['cluster', 'nodePartition', 'oneGpuNode', 'gpu'],
  panels: [
    gpuTable,
    row('$gpu', { repeat: 'gpu' }),
    stat({
      title: 'Model',
      unit: 'none',
      none: NO_GPU,
      width: 6,
      textMode: 'name',
      thresholds: steps('text'),
      about: 'Model of the GPU, its driver and its place on the PCI bus.',
      targets: [info('{{model}}, driver {{driver}}, {{pci_bus_id}}')],
      links: [links.node, links.faults],
    }),
    stat({
      title: 'State',
      unit: 'none',
      none: NO_GPU,
      mappings: ANSWERS,
      thresholds: steps('text'),
      about: 'Whether the GPU answers. docs/gpus.md explains each reason why it may not.',
      targets: [instant(`min by (cluster, node, uuid) (${series('takt_gpu_up', GPU)})`, 'state')],
      links: [links.faults],
    }),
    stat({
      title: 'Driver asks for',
      unit: 'none',
      none: NO_GPU,
      mappings: RECOVERY,
      width: 4,
      thresholds: steps('text'),
      about: 'What must be done for the GPU to work again, as its driver says.',
      targets: [instant(series('takt_gpu_recovery_action', GPU), 'action')],
    }),
    stat({
      title: 'Processes',
      unit: 'none',
      none: NO_GPU,
      thresholds: steps('text'),
      about: `Processes that use the GPU, a desktop included. Processes without memory in use are
          normal.`,
      targets: [instant(series('takt_gpu_processes', GPU), 'processes')],
    }),
    stat({
      title: 'Energy in this time',
      unit: 'joule',
      none: NO_GPU,
      width: 4,
      thresholds: steps('text'),
      about: 'Energy that the GPU drew in the time range, by its counter. 3.6 MJ are one kWh.',
      targets: [
        instant(`increase(${series('takt_gpu_energy_joules_total', GPU)}[$__range])`, 'energy'),
      ],
    }),
    stat({
      title: 'Mean utilization',
      unit: 'percentunit',
      none: NO_GPU,
      width: 4,
      thresholds: steps('text'),
      about: 'Mean share of time in which a kernel ran, over the time range.',
      targets: [
        instant(`avg_over_time(${series('takt_gpu_utilization_ratio', GPU)}[$__range])`, 'mean'),
      ],
    }),
    lines({
      title: 'Activity',
      unit: 'percentunit',
      none: NO_GPU,
      min: 0,
      max: 1,
      about: `${GPUS.utilization.about} Data-centre GPUs from Hopper on also report which part
        worked.`,
      targets: [
        range(series('takt_gpu_utilization_ratio', GPU), 'a kernel ran'),
        range(series('takt_gpu_memory_utilization_ratio', GPU), 'memory read or written'),
        range(series('takt_gpu_activity_ratio', GPU), '{{part}} active'),
      ],
    }),
    lines({
      title: 'Memory',
      unit: 'bytes',
      none: NO_GPU,
      min: 0,
      about: 'Memory that processes have allocated, and what the driver keeps, below the total.',
      targets: [
        range(series('takt_gpu_memory_used_bytes', GPU), 'in use'),
        range(series('takt_gpu_memory_reserved_bytes', GPU), 'kept by the driver'),
        range(series('takt_gpu_memory_total_bytes', GPU), 'total'),
      ],
    }),
    lines({
      title: 'Power and its limit',
      unit: 'watt',
      none: NO_GPU,
      min: 0,
      about: `${GPUS.power.about} A limit below the default was configured.`,
      targets: [
        range(series('takt_gpu_power_watts', GPU), 'power'),
        range(series('takt_gpu_power_limit_watts', GPU), 'limit in force'),
        range(series('takt_gpu_power_limit_default_watts', GPU), 'default limit'),
      ],
    }),
    lines({
      title: 'Temperature and limits',
      unit: 'celsius',
      none: NO_GPU,
      about: `${GPUS.temperature.about} The other lines are the card's own limits.`,
      targets: [
        range(series('takt_gpu_temperature_celsius', GPU), '{{sensor}}'),
        range(
          series('takt_gpu_temperature_limit_celsius', GPU, 'limit=~"slowdown|gpu_max|memory_max"'),
          'limit: {{limit}}',
        ),
      ],
    }),
    lines({
      title: 'Clocks',
      unit: 'hertz',
      none: NO_GPU,
      min: 0,
      about: GPUS.clock.about,
      targets: [
        range(series('takt_gpu_clock_hertz', GPU), '{{domain}}'),
        range(series('takt_gpu_clock_max_hertz', GPU, 'domain="sm"'), 'highest sm'),
      ],
    }),
    lines({
      title: 'Reasons for lower clocks',
      unit: 'percentunit',
      none: 'Nothing held the clocks down in this time.',
      stack: true,
      min: 0,
      about: `Share of time for which each reason held the clocks down. sw_power_cap is normal under
          load; heat (thermal) and hw_power_brake are not.`,
      targets: [
        range(
          `rate(${HELD_DOWN}[$__rate_interval])
            > 0`,
          '{{reason}}',
        ),
      ],
      links: [links.faults],
    }),
    lines({
      title: 'PCIe and NVLink',
      unit: 'Bps',
      none: NO_GPU,
      min: 0,
      about: `${GPUS.pcie.about} ${GPUS.nvlink.about}`,
      targets: [
        range(
          `rate(${series('takt_gpu_pcie_bytes_total', GPU)}[$__rate_interval])`,
          'PCIe {{direction}}',
        ),
        range(
          `rate(${series('takt_gpu_nvlink_bytes_total', GPU)}[$__rate_interval])`,
          'NVLink {{direction}}',
        ),
      ],
    }),
    lines({
      title: 'Fans',
      unit: 'percentunit',
      none: 'This GPU reports no fan: most often the server cools it.',
      min: 0,
      max: 1,
      about: 'Speed that each fan is set to. A hot card with a fan at 0 has a broken fan.',
      targets: [range(series('takt_gpu_fan_ratio', GPU), 'fan {{fan}}')],
    }),
    spans({
      title: 'Jobs that held it',
      unit: 'none',
      none: 'No job held this GPU in the time range.',
      height: 6,
      about: 'When which job held the GPU, the forty longest. Click a span for the job.',
      targets: [
        range(
          `max by (cluster, node, uuid, jobid, user) (${jobsOnGpus(GPU)})`,
          '{{jobid}} {{user}}',
        ),
      ],
      links: [links.job, links.user],
    }),
  ],
});
