use super::super::token::{statements, tokens};
use super::*;
use proptest::prelude::*;

#[test]
fn statements_of_clients_are_translated_for_duckdb() {
    for (theirs, ours) in [
        ("SELECT 1", "SELECT 1"),
        (
            "SELECT * FROM pg_catalog.pg_class",
            "SELECT * FROM pg_class",
        ),
        (
            "SELECT * FROM \"takt\".\"public\".\"jobs\"",
            "SELECT * FROM \"jobs\"",
        ),
        ("SELECT takt.x FROM t takt", "SELECT takt.x FROM t takt"),
        (
            "SELECT * FROM information_schema.tables",
            "SELECT * FROM information.tables",
        ),
        (
            "WHERE a OPERATOR(pg_catalog.~) '^(j)$' COLLATE pg_catalog.default AND b",
            "WHERE a  ~@  '^(j)$'  AND b",
        ),
        ("WHERE a = ANY (b.keys)", "WHERE a  IN same_list(b.keys)"),
        ("WHERE a = ANY (SELECT 1)", "WHERE a = ANY (SELECT 1)"),
        (
            "WHERE a <> ALL ('{x,y}')",
            "WHERE a  NOT IN same_list(['x', 'y'])",
        ),
        ("SELECT '{1,NULL}'::int4[]", "SELECT ['1', NULL]::int4[]"),
        (
            "WHERE c = 'pg_class'::regclass",
            "WHERE c = to_regclass('pg_class')",
        ),
        (
            "SELECT c.oid::pg_catalog.regclass",
            "SELECT c.oid::regclass",
        ),
        (
            "SELECT '1970-01-01T02:00:01+02:00'::timestamptz",
            "SELECT make_timestamp(1000000)",
        ),
        (
            "SELECT timestamptz '2026-10-01 00:00:00+00' AT TIME ZONE 'Europe/Oslo', b",
            "SELECT make_timestamp(1790820000000000), b",
        ),
        (
            "SELECT date_trunc('day', '2026-10-01 23:30:00+00'::timestamptz AT TIME ZONE 'Europe/Oslo')",
            "SELECT date_trunc('day', make_timestamp(1790904600000000)) AS date_trunc",
        ),
        (
            "SELECT timestamp '2026-10-01 00:00'::timestamptz, timestamp without time zone '2026-10-01 00:00'::timestamptz",
            "SELECT make_timestamp(1790812800000000), make_timestamp(1790812800000000)",
        ),
        (
            "SELECT timestamp '2026-10-01 02:00' AT TIME ZONE 'Europe/Oslo', '2026-10-01'::timestamp with time zone",
            "SELECT make_timestamp(1790812800000000), make_timestamp(1790812800000000)",
        ),
        (
            "WHERE ts > timestamp '2026-10-01 02:00' AND ts AT TIME ZONE 'utc' < now()",
            "WHERE ts > timestamp '2026-10-01 02:00' AND ts ::timestamp < now()",
        ),
        (
            "SELECT ts AT TIME ZONE 'Europe/Oslo'",
            "SELECT ts AT TIME ZONE 'Europe/Oslo'",
        ),
        (
            "WHERE a ~ 'gpu' AND b !~* $1::text OR c!~d.e AND f ~~* '~' OR NOT a~lower('y')",
            "WHERE a ~@ 'gpu' AND b !~* $1::text OR c!~@d.e AND f ~~* '~' OR NOT a~@lower('y')",
        ),
        (
            r"WHERE a SIMILAR TO '(ali|bo)%_.[_%]\%' AND b NOT SIMILAR TO c",
            r"WHERE a SIMILAR TO '(?s)(ali|bo).*.\.[_%]\%' AND b NOT SIMILAR TO c",
        ),
        (
            "SELECT generate_series(1, 3), generate_series(1, 3)::int AS i, len(generate_series(1, 3)) n FROM t",
            "SELECT unnest(generate_series(1, 3)) AS generate_series, unnest(generate_series(1, 3))::int AS i, \
             len(generate_series(1, 3)) n FROM t",
        ),
        (
            "SELECT a::float, cast(b AS float) n, c AS float, d::float4 FROM t CROSS JOIN LATERAL (SELECT 1) x",
            "SELECT a::double, cast(b AS double) n, c AS float, d::float4 FROM t CROSS JOIN  (SELECT 1) x",
        ),
        (
            "WHERE a > TO_TIMESTAMP('2026-10-02', 'YYYY-MM-DD HH24:MI:SS.US') AND b > to_date(c, 'YYYY-MM-DD') \
             AND d > to_timestamp(5)",
            "WHERE a > strptime('2026-10-02', '%Y-%m-%d %H:%M:%S.%f') AND b > strptime(c, '%Y-%m-%d')::DATE \
             AND d > to_timestamp(5)",
        ),
        ("WHERE r = '{0}'", "WHERE r = [0]"),
        (
            "SELECT count(*) AS n FROM generate_series(1, 3) AS i, f('a') s",
            "SELECT count(*) AS n FROM generate_series(1, 3) AS i(i), unnest([f('a')]) AS s(s)",
        ),
        (
            "SELECT * FROM generate_series(1, 3) AS s(r)",
            "SELECT * FROM generate_series(1, 3) AS s(r)",
        ),
        (
            "SELECT extract(epoch FROM ts), f(x) n FROM jobs j",
            "SELECT extract(epoch FROM ts) AS extract, f(x) n FROM jobs j",
        ),
        (
            "SELECT count(*), pg_catalog.max(a) , sum(a) + 1 FROM t",
            "SELECT count(*) AS count, max(a) AS max , sum(a) + 1 FROM t",
        ),
        (
            "SELECT DISTINCT lower(a), cast(b AS text), count(*) n, count(*) FILTER (WHERE c) FROM t",
            "SELECT DISTINCT lower(a) AS lower, cast(b AS text), count(*) n, count(*) FILTER (WHERE c) FROM t",
        ),
        (
            "SELECT greatest(1, count(*)) FROM (SELECT count(*) FROM t GROUP BY lower(a), b) s",
            "SELECT greatest(1, count(*)) AS greatest FROM (SELECT count(*) AS count FROM t GROUP BY lower(a), b) s",
        ),
        (
            r"WHERE a LIKE 'job\_usage' AND b NOT ILIKE $1 OR c LIKE 'x%'",
            r"WHERE a LIKE 'job\_usage' ESCAPE '\' AND b NOT ILIKE $1 ESCAPE '\' OR c LIKE 'x%'",
        ),
        (
            r"WHERE a LIKE 'a\_' ESCAPE '!' OR b LIKE '\' || c",
            r"WHERE a LIKE 'a\_' ESCAPE '!' OR b LIKE '\' || c",
        ),
        (
            "SELECT to_char(max(ts), 'YYYY-MM-DD\"T\"HH24:MI:SS.MS') AS day, to_char(ts, 'Q')",
            "SELECT strftime(max(ts), '%Y-%m-%dT%H:%M:%S.%g') AS day, to_char(ts, 'Q') AS to_char",
        ),
        (
            "SELECT 'public.x', '= ANY (y)'",
            "SELECT 'public.x', '= ANY (y)'",
        ),
    ] {
        assert_eq!(translate(&tokens(theirs)), ours, "{theirs}");
    }
}

#[test]
fn arrays_are_read_with_their_quotes() {
    assert_eq!(array_items("{}"), Some(vec![]));
    let items = array_items("{a, \"b,\\\"c\",NULL,\"NULL\"}").unwrap();
    assert_eq!(
        items,
        [
            Some("a".into()),
            Some("b,\"c".into()),
            None,
            Some("NULL".into())
        ]
    );
    assert_eq!(array_items("{{1},{2}}"), None);
    assert_eq!(array_items("x"), None);
}

#[test]
fn a_million_calls_in_calls_take_no_stack() {
    for call in ["f(", "to_char(", "(select f(", "unnest("] {
        let text = format!("select {}", call.repeat(100_000));
        for statement in statements(&text) {
            assert!(translate(&statement).len() >= text.len() / 2, "{call}");
        }
        let closed = format!("select {}1{}", "f(".repeat(2000), ")".repeat(2000));
        for statement in statements(&closed) {
            translate(&statement);
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_translated(
        text in "([ '\"$;a1/*(),.\\-\\\\eE\n:=<>\\[\\]{}]|from|any|all|~|!~*|at time zone 'UTC'|timestamptz|::|operator|collate|public|as)*",
    ) {
        for statement in statements(&text) {
            translate(&statement);
        }
    }
}
