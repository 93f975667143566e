// Headings and widths of table columns: one entry a column of SQL or a label, for every board.

/** Width of a screen that shows each table whole, and of a 24th of a board on it, in pixels. */
const SCREEN = 1680;
const UNIT = (SCREEN - 48) / 24;
/** Width of a column that shares what the others leave, at least. */
export const NARROWEST = 70;
const TIME = 160;
const UUID = 310;

/** Heading and, for columns of long texts, width in pixels. Others share what is left. */
const COLUMNS = {
  account: ['account', 100],
  alertname: ['alert', 220],
  alertstate: ['state', 90],
  attempts: ['attempts'],
  channel: ['channel', 170],
  cluster: ['cluster', 90],
  command: ['command', 200],
  comment: ['comment'],
  cpu_hours: ['CPU-hours', 110],
  cpus: ['CPUs'],
  created_at: ['time', TIME],
  created_by: ['by', 100],
  credited_to: ['given for', TIME],
  device: ['device', 110],
  end_time: ['ended', TIME],
  ends_at: ['until', TIME],
  exit_code: ['exit code'],
  expected_start: ['expected start', TIME],
  first_seen: ['from', TIME],
  from_time: ['from', TIME],
  gpu_hours: ['GPU-hours', 110],
  gpu_index: ['GPU'],
  gpu_instance: ['part'],
  gpu_model: ['GPU model', 120],
  gpus: ['GPUs'],
  granted_by: ['by', 100],
  happened_at: ['time', TIME],
  in_use: ['in use'],
  index: ['GPU'],
  instance: ['address', 170],
  job_id: ['job', 90],
  job_name: ['name', 140],
  jobid: ['job', 90],
  kwh: ['energy'],
  last_seen: ['until', TIME],
  mig_uuid: ['UUID of the part', UUID],
  model: ['model', 200],
  mountpoint: ['mount point', 130],
  node: ['node', 90],
  node_list: ['node names', 150],
  noted_at: ['as of', TIME],
  partition: ['partition', 90],
  profile: ['profile', 110],
  qos: ['QOS', 80],
  reason: ['reason', 190],
  recorded_at: ['since', TIME],
  run_seconds: ['ran'],
  runs: ['jobs'],
  scope: ['scope', 80],
  severity: ['severity', 90],
  start_time: ['started', TIME],
  starts_at: ['from', TIME],
  state: ['state', 120],
  state_after: ['to', 90],
  state_before: ['from', 90],
  submit_time: ['submitted', TIME],
  timelimit_seconds: ['limit'],
  to_time: ['until', TIME],
  until_time: ['until', TIME],
  user: ['user', 100],
  uuid: ['UUID', UUID],
  version: ['version', 130],
  wait_seconds: ['waited'],
  xid: ['XID'],
};

/** Heading of a column without a name of its own in its panel. */
export const heading = (column) => COLUMNS[column]?.[0] ?? column;
export const width = (column) => COLUMNS[column]?.[1];
/** Columns that need a heading or a width. */
export const known = Object.keys(COLUMNS);

/** Room that a column needs: its width, or that of its heading. */
export const room = (title, own) => own ?? Math.max(NARROWEST, 7.5 * title.length + 26);
/** Room that a panel has for columns on the screen. */
export const roomOf = (units) => units * UNIT - 16;

/** Names of the columns of a statement, from its last SELECT outside parentheses. */
export function columnsOf(statement) {
  const words = outside(statement);
  const start = words.toUpperCase().lastIndexOf('SELECT ') + 'SELECT '.length;
  const end = words.toUpperCase().indexOf(' FROM ', start);
  let from = start;
  const columns = [];
  for (let at = start; at <= end; at += 1) {
    if (words[at] === ',' || at === end) {
      columns.push(statement.slice(from, at).trim());
      from = at + 1;
    }
  }
  return columns.map((column) => column.split(' AS ').at(-1).split('.').at(-1).replaceAll('"', ''));
}

/** The statement with everything inside parentheses and quotes blanked out. */
function outside(statement) {
  let depth = 0;
  let quote = '';
  return [...statement]
    .map((char) => {
      if (quote) {
        if (char === quote) quote = '';
        return ' ';
      }
      if (char === "'" || char === '"') {
        quote = char;
        return ' ';
      }
      if (char === ')') depth -= 1;
      const shown = depth === 0 && char !== ')' ? char : ' ';
      if (char === '(') depth += 1;
      return shown === '(' ? ' ' : shown;
    })
    .join('');
}
