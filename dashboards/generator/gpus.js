// What is shown of a GPU: one entry a quantity, used by every board that shows it.

import { NODE, counted, indexed, limitDefault, range, series } from './query.js';
import { fromLabels } from './look.js';
import { lines } from './panels.js';

const NO_GPU =
  'No NVIDIA GPU of these nodes reports it. See docs/gpus.md for what each model supports.';
/** The margin to the slowdown temperature as a negative number, so that more is worse. */
const CLOSE_TO_SLOWDOWN = [
  'gpu_temperature_margin_celsius',
  (celsius) => -celsius,
  (expr) => `-${expr}`,
];

export const GPUS = {
  utilization: {
    title: 'Utilization',
    unit: 'percentunit',
    min: 0,
    max: 1,
    expr: (scope) => series('takt_gpu_utilization_ratio', scope),
    about:
      `Share of time in which a kernel ran. 100 % does not mean that the GPU is full: one small
        kernel at a ` +
      'time counts as much as a large one. Worry when a GPU that a job holds stays near 0.',
  },
  memory: {
    title: 'Memory in use',
    unit: 'percentunit',
    min: 0,
    max: 1,
    expr: (scope) =>
      `${series('takt_gpu_memory_used_bytes', scope)} /
        ${series('takt_gpu_memory_total_bytes', scope)}`,
    about:
      `Share of the GPU's memory that processes have allocated. Frameworks keep what they once took,
        so a high ` +
      `value is normal. Worry at 100 % with failing jobs, or when memory is in use without any
        job.`,
  },
  power: {
    title: 'Power',
    unit: 'watt',
    min: 0,
    expr: (scope) => series('takt_gpu_power_watts', scope),
    about:
      `Power that the board draws. Under full load it is close to the power limit. A busy GPU far
        below its ` + 'limit waits for something: data, the network, or other GPUs.',
  },
  temperature: {
    title: 'Temperature',
    unit: 'celsius',
    expr: (scope) => series('takt_gpu_temperature_celsius', scope, 'sensor="gpu"'),
    about:
      `Temperature of the GPU chip. Most models slow down between 83 and 95 °C. Compare with the
        neighbours: ` + 'one that is much hotter has a fan, dust or airflow problem.',
  },
  margin: {
    title: 'Degrees to slowdown',
    unit: 'celsius',
    limit: CLOSE_TO_SLOWDOWN,
    expr: (scope) => `-${series('takt_gpu_temperature_margin_celsius', scope)}`,
    about:
      `Distance to the temperature at which the GPU slows down, as a negative number: -10 is 10
        degrees below. ` + 'Worry above the dashed limit.',
  },
  clock: {
    title: 'SM clock',
    unit: 'hertz',
    min: 0,
    expr: (scope) => series('takt_gpu_clock_hertz', scope, 'domain="sm"'),
    about:
      `Clock of the multiprocessors. It falls when the GPU idles, and when heat or the power limit
        holds it ` + 'down: the throttle panel gives the reason.',
  },
  throttle: {
    title: 'Time held down',
    unit: 'percentunit',
    min: 0,
    max: 1,
    limit: 'gpu_thermal_throttle_ratio',
    expr: (scope) =>
      `sum by (cluster, node, uuid) (rate(${series(
        'takt_gpu_throttle_seconds_total',
        scope,
        'reason=~"hw_thermal|sw_thermal|hw_slowdown|hw_power_brake"',
      )}[$__rate_interval]))`,
    about:
      `Share of time in which heat or the power supply held the clocks down; the plain power limit
        is not ` + 'counted. Worry when it lasts: jobs run slower than they could.',
  },
  pcie: {
    title: 'PCIe traffic',
    unit: 'Bps',
    min: 0,
    expr: (scope) =>
      `sum by (cluster, node, uuid)
        (rate(${series('takt_gpu_pcie_bytes_total', scope)}[$__rate_interval]))`,
    about:
      `Bytes to and from the GPU over PCIe. A constant high value with low utilization means that
        the job moves ` + 'data more than it computes.',
  },
  nvlink: {
    title: 'NVLink traffic',
    unit: 'Bps',
    min: 0,
    expr: (scope) =>
      `sum by (cluster, node, uuid)
        (rate(${series('takt_gpu_nvlink_bytes_total', scope)}[$__rate_interval]))`,
    about:
      `Bytes to and from the GPU over all its NVLinks. No traffic in a job of several GPUs means
        that it does ` + 'not use NVLink.',
  },
  tensor: {
    title: 'Tensor cores active',
    unit: 'percentunit',
    min: 0,
    max: 1,
    expr: (scope) => series('takt_gpu_activity_ratio', scope, 'part="tensor"'),
    about:
      `Share of time in which tensor cores worked, averaged over all of them. Training that never
        uses them runs ` + 'in full precision: try mixed precision.',
    none: 'Only data-centre GPUs from Hopper on report it (GPM).',
  },
  sm: {
    title: 'Multiprocessors active',
    unit: 'percentunit',
    min: 0,
    max: 1,
    expr: (scope) => series('takt_gpu_activity_ratio', scope, 'part="sm"'),
    about:
      `Share of the multiprocessors with work. High utilization and low activity means kernels that
        are too ` + 'small: larger batches may help.',
    none: 'Only data-centre GPUs from Hopper on report it (GPM).',
  },
  energy: {
    title: 'Mean power by the energy counter',
    unit: 'watt',
    min: 0,
    expr: (scope) => `rate(${series('takt_gpu_energy_joules_total', scope)}[$__rate_interval])`,
    about:
      `Mean power between two readings, from the energy counter. It misses no peaks, unlike single
        readings of ` + 'the power. Energy reports are computed from this counter.',
  },
};

/** The labels of a GPU. A series of it may have more, so that counts go by these. */
export const GPU_KEY = 'cluster, node, uuid';
const each = (metric, scope) => `max by (${GPU_KEY}) (${series(metric, scope)})`;

/** GPUs that did nothing in the last `window`. */
export const idle = (scope, window = '30m') =>
  `(max_over_time(${series('takt_gpu_utilization_ratio', scope)}[${window}]) <=
    ${limitDefault('job_gpu_idle_ratio')})`;

/** Numbers of GPUs, the same on every board. */
export const count = {
  all: (scope) => `count(${each('takt_gpu_up', scope)})`,
  answering: (scope) => `sum(${each('takt_gpu_up', scope)})`,
  lost: (scope) => counted(`${each('takt_gpu_up', scope)} == 0`, each('takt_gpu_up', scope)),
  held: (scope) => `count(${each('takt_gpu_job_info', scope)}) or 0 * ${count.all(scope)}`,
  heldIdle: (scope) =>
    `count(${each('takt_gpu_job_info', scope)} and on (${GPU_KEY}) ${idle(scope)}) or
      0 * ${count.all(scope)}`,
  free: (scope) =>
    `count((${each('takt_gpu_up', scope)} == 1) and on (${GPU_KEY}) ${idle(scope, '5m')}
      unless on (${GPU_KEY}) ${series('takt_gpu_job_info', scope)}
      unless on (cluster, node) ${series('takt_slurm_node_unavailable', scope)}) or
      0 * ${count.all(scope)}`,
};
export const FREE =
  'GPUs that answer, that no job holds, that did nothing for five minutes, and whose node Slurm can use.';

/** Lines over time, one a GPU. `only` narrows the expression, for example to a job's GPUs. */
export function gpuLines(
  name,
  { scope = NODE, only = (expr) => expr, legend = '{{node}} GPU {{index}}', ...more } = {},
) {
  const quantity = GPUS[name];
  const links = fromLabels();
  return lines({
    none: NO_GPU,
    ...quantity,
    targets: [range(only(indexed(quantity.expr(scope), scope === NODE ? NODE : scope)), legend)],
    links: [links.gpu, links.node],
    ...more,
  });
}
