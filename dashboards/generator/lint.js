// Rules for the finished boards. Each names a mistake that people saw in Grafana and no schema finds.
// `lint.test.js` breaks a board for each of them.

/** Messages about a board; none if it keeps the rules. */
export function lint(board) {
  const marks = board.annotations.list.flatMap((mark) =>
    annotation(mark, board).map((what) => `${board.uid}: annotation ${mark.name}: ${what}`),
  );
  const panels = board.panels
    .filter(({ type }) => type !== 'row')
    .flatMap((panel) => RULES.flatMap((rule) => rule(panel).map((what) => [panel, what])))
    .map(([{ title }, what]) => `${board.uid}: ${title}: ${what}`);
  return [...marks, ...panels];
}

const RULES = [emptyCells, units, absence];

/** "No alert fires." between the rows of alerts that fire. */
function emptyCells({ type, fieldConfig }) {
  const [first] = fieldConfig.overrides;
  const empties =
    first?.matcher.options === '.*' &&
    first.properties.some(({ id, value }) => id === 'noValue' && value === '');
  const later = settings(fieldConfig.overrides.slice(1), 'noValue');
  return those([[type === 'table' && (!empties || later.length), 'fills empty cells with a text']]);
}

/** Grafana writes 3,175 of its hours as "18.9 weeks". A duration has the unit `s`. */
function units({ fieldConfig: { defaults, overrides } }) {
  const units = [defaults.unit, ...settings(overrides, 'unit')];
  return units
    .filter((unit) => ['m', 'h', 'd'].includes(unit))
    .map((unit) => `has the unit ${unit}, which Grafana turns into weeks; see look.js: GPU_HOURS`);
}

/** What a text claims of machines: true only if a series without a condition is absent. */
const OF_HARDWARE = /\b(reports?|is reported|is scraped|ha(s|ve) no|mounts? no|has NVLink|is divided)\b/;
/** A comparison that leaves out series. */
const CONDITION = /(==|!=|[<>]=?)\s*(?!bool\b)/;

/**
 * `count(x == 0)` has no value where all is well. There a text such as "No GPU here has NVLink" would
 * be wrong.
 */
function absence({ targets, fieldConfig: { defaults } }) {
  const asked = targets.filter(({ expr, refId }) => expr && refId !== 'limit');
  const mayBeWell = ({ expr }) => {
    const outside = expr.replace(/\{[^}]*\}/g, '');
    return CONDITION.test(outside) && !/ or (vector\(0\)|0 \*)/.test(outside);
  };
  return those([
    [
      asked.length && asked.every(mayBeWell) && OF_HARDWARE.test(defaults.noValue),
      `says "${defaults.noValue}" where all is well; see query.js: counted`,
    ],
  ]);
}

/** What overrides set the property `wanted` to. */
function settings(overrides, wanted) {
  return overrides
    .flatMap(({ properties }) => properties)
    .filter(({ id }) => id === wanted)
    .map(({ value }) => value);
}

/** Spans of alerts and jobs cover the curves, and those of all jobs are the dearest query of a board. */
function annotation({ expr }, board) {
  return those([
    [
      !/ offset \$__interval\b|\bchanges\(/.test(expr),
      'marks everything between beginning and end; ask for beginnings (query.js: begins)',
    ],
    [
      /\btakt_job_info\b/.test(expr) && board.uid !== 'takt-job',
      'marks jobs, which only the board of a job may',
    ],
  ]);
}

/** The messages whose condition holds. */
function those(conditions) {
  return conditions.filter(([holds]) => holds).map(([, what]) => what);
}
