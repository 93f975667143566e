// Rules for the finished boards. Each names a mistake that people saw in Grafana and no schema finds.
// `lint.test.js` breaks a board for each of them.

/** Messages about a board; none if it keeps the rules. */
export function lint(board) {
  const marks = board.annotations.list.flatMap((mark) =>
    annotation(mark, board).map((what) => `${board.uid}: annotation ${mark.name}: ${what}`),
  );
  return marks;
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
