// How values look: colours, value mappings, links.

export const GREEN = 'green';
export const ORANGE = 'orange';
export const RED = 'red';
export const BLUE = 'blue';
export const GREY = 'text';

/** Units of amounts. Grafana would write its unit `h` of 3,175 GPU-hours as "18.9 weeks". */
export const GPU_HOURS = 'suffix:GPU-h';
export const CPU_HOURS = 'suffix:CPU-h';

/** Value mappings: `{0: ['yes', 'green']}`. */
export function words(table) {
  const options = {};
  for (const [index, [value, [text, color]]] of Object.entries(table).entries()) {
    options[value] = { text, color, index };
  }
  return [{ type: 'value', options }];
}

export const UP = words({ 0: ['down', RED], 1: ['up', GREEN] });
export const ANSWERS = words({ 0: ['does not answer', RED], 1: ['answers', GREEN] });
export const FAULT = words({ 0: ['no', GREEN], 1: ['yes', RED] });
export const WAITING = words({ 0: ['no', GREEN], 1: ['at the next reset', ORANGE] });
export const HEALTHY = words({ 0: ['failing', RED], 1: ['healthy', GREEN] });
export const ON = words({ 0: ['off', GREY], 1: ['on', GREEN] });
export const NVME = words({
  0: ['healthy', GREEN],
  1: ['little spare', RED],
  2: ['temperature', ORANGE],
  4: ['unreliable', RED],
  8: ['read-only', RED],
  16: ['backup failed', RED],
});
export const RECOVERY = words({
  0: ['nothing', GREEN],
  1: ['reset the GPU', ORANGE],
  2: ['reboot the node', RED],
  3: ['drain, restart peers', RED],
  4: ['drain and reset', RED],
});
/** By rank: see `ranked` in query.js. */
export const SEVERITY = words({
  3: ['critical', RED],
  2: ['warning', ORANGE],
  1: ['info', BLUE],
  0: ['none', GREY],
});
/** Colours of series by the name that they have in the legend. */
export const SEVERITIES = { critical: RED, warning: ORANGE, info: BLUE, none: GREY };
export const NODE_STATES = {
  idle: GREEN,
  allocated: BLUE,
  mixed: 'light-blue',
  planned: 'purple',
  maintenance: ORANGE,
  unavailable: RED,
  powered_down: GREY,
  future: GREY,
};
export const ENDINGS = {
  completed: GREEN,
  failed: RED,
  'out of memory': 'dark-red',
  'node failed': 'purple',
  timeout: ORANGE,
  preempted: 'yellow',
  cancelled: GREY,
  other: 'blue',
};
export const JOB_STATE = words({
  RUNNING: ['running', BLUE],
  PENDING: ['pending', GREY],
  COMPLETED: ['completed', GREEN],
  FAILED: ['failed', RED],
  TIMEOUT: ['timeout', ORANGE],
  OUT_OF_MEMORY: ['out of memory', RED],
  NODE_FAIL: ['node failed', RED],
  CANCELLED: ['cancelled', GREY],
  PREEMPTED: ['preempted', ORANGE],
  SUSPENDED: ['suspended', GREY],
});
export const ALERT_STATE = words({
  firing: ['firing', RED],
  pending: ['pending', ORANGE],
  inactive: ['resolved', GREEN],
  unknown: ['unknown', GREY],
});
export const SENT = words({
  sent: ['sent', GREEN],
  queued: ['queued', BLUE],
  sending: ['sending', BLUE],
  gave_up: ['gave up', RED],
  superseded: ['superseded', GREY],
});

const SOURCES = '${datasource:queryparam}&${sql:queryparam}';

/** A link to another board. `values` maps its variables to this panel's fields or labels. */
function to(board, title, values, time = '${__url_time_range}') {
  const query = Object.entries(values).map(([name, value]) => `var-${name}=${value}`);
  return { title, url: `/d/takt-${board}?${[...query, time, SOURCES].join('&')}` };
}

/** Links from a line or bar, by its labels. */
export function fromLabels() {
  const label = (name) => `\${__field.labels.${name}}`;
  const cluster = { cluster: label('cluster') };
  const node = { ...cluster, node: label('node') };
  return {
    node: to('node', `Node ${label('node')}`, node),
    gpu: to('gpu', 'This GPU', { ...node, gpu: label('uuid') }),
    job: to('job', `Job ${label('jobid')}`, { ...cluster, job: label('jobid') }),
    user: to('user', `User ${label('user')}`, { ...cluster, user: label('user') }),
    storage: to('storage', 'NFS and disks', node),
    network: to('network', 'Network links', node),
    faults: to('gpu-faults', 'GPU faults', node),
  };
}

/** Links from a row of a table, by its columns. */
export function fromColumns() {
  const cell = (name) => `\${__data.fields["${name}"]}`;
  const cluster = { cluster: cell('cluster') };
  const node = { ...cluster, node: cell('node') };
  return {
    node: to('node', 'Node ${__value.text}', node),
    gpu: to('gpu', 'This GPU', { ...node, gpu: cell('uuid') }),
    uuid: to('gpu', 'This GPU', { ...node, gpu: '${__value.raw}' }),
    job: to('job', 'Job ${__value.text}', { ...cluster, job: '${__value.raw}' }),
    record: to(
      'job',
      'Job ${__value.text}',
      { ...cluster, job: cell('jobid') },
      `from=${cell('from_ms')}&to=${cell('to_ms')}`,
    ),
    user: to('user', 'User ${__value.text}', { ...cluster, user: '${__value.raw}' }),
    account: to('account', 'Account ${__value.text}', { ...cluster, account: '${__value.raw}' }),
    partition: to('queue', 'Queue of ${__value.text}', { ...cluster, partition: '${__value.raw}' }),
  };
}
