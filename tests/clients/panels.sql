SELECT timestamptz '2026-10-01 00:00:00+00' AT TIME ZONE 'Europe/Oslo'
=> (__import__("datetime").datetime(2026, 10, 1, 2, 0),)
----
SELECT '2026-10-01 00:00:00+00'::timestamptz AT TIME ZONE 'Europe/Oslo'
=> (__import__("datetime").datetime(2026, 10, 1, 2, 0),)
----
SELECT date_trunc('day', '2026-10-01 23:30:00+00'::timestamptz AT TIME ZONE 'Europe/Oslo')
=> (__import__("datetime").datetime(2026, 10, 2, 0, 0),)
----
SELECT 'gpu-long' ~ 'gpu', 'GPU' ~* 'gpu', 'gpu' !~ 'x', 'GPU' !~* 'gpu', E'a\nb' ~ 'a.b', 'ab' ~ '^b', 'gpu-long' ~ '^gpu$|long$'
=> (True, True, True, False, True, False, True)
----
SELECT job_id FROM jobs WHERE "user" ~ 'li' ORDER BY 1
=> ('1',)
----
SELECT "user" FROM jobs WHERE "user" SIMILAR TO '(ali|bo)%' ORDER BY 1
=> ('alice',)
----
SELECT floor(extract(epoch from submit_time)/300)*300 AS "time", count(*) FROM jobs WHERE submit_time BETWEEN '2026-09-30T22:00:00.123Z' AND '2026-10-31T23:00:00Z' GROUP BY 1 ORDER BY 1
=> (1790841600, 1)
----
SELECT extract(epoch from submit_time) AS "time", gpus FROM jobs ORDER BY 1
=> (1790841600, 2)
----
SELECT date_trunc('hour', submit_time) AS "time", "partition" AS metric, sum(gpus) FROM jobs GROUP BY 1, 2 ORDER BY 1, 2
=> (__import__("datetime").datetime(2026, 10, 1, 8, 0), 'gpu', 2)
----
SELECT to_timestamp(floor((extract(epoch from submit_time)/86400))*86400) AT TIME ZONE 'UTC' AS "time", count(*) FROM jobs GROUP BY 1 ORDER BY 1
=> (__import__("datetime").datetime(2026, 10, 1, 0, 0), 1)
----
SELECT to_timestamp(1790841600) AT TIME ZONE 'UTC'
=> (__import__("datetime").datetime(2026, 10, 1, 8, 0),)
----
SELECT generate_series('2026-10-01'::timestamp, '2026-10-03'::timestamp, '1 day'::interval) AS day
=> (__import__("datetime").datetime(2026, 10, 1, 0, 0),)
----
SELECT DATE_TRUNC('week', "public"."jobs"."submit_time") AS "submit_time", COUNT(*) AS "count" FROM "public"."jobs" GROUP BY 1 ORDER BY 1
=> (__import__("datetime").datetime(2026, 9, 28, 0, 0), 3)
----
SELECT (CAST(DATE_TRUNC('week', (CAST("submit_time" AS timestamp) + INTERVAL '1 day')) AS timestamp) + INTERVAL '-1 day') AS w, COUNT(*) FROM jobs GROUP BY 1 ORDER BY 1
=> (__import__("datetime").datetime(2026, 9, 27, 0, 0), 3)
----
SELECT CAST(EXTRACT(hour FROM "submit_time") AS integer) AS h, COUNT(distinct "user") FROM jobs GROUP BY 1 ORDER BY 1
=> (8, 2)
----
SELECT CAST(EXTRACT(isodow FROM "submit_time") AS integer), CAST(EXTRACT(dow FROM "submit_time") AS integer), CAST(EXTRACT(quarter FROM "submit_time") AS integer), CAST(extract(doy from submit_time) AS integer), CAST(extract(week from submit_time) AS integer) FROM jobs ORDER BY submit_time
=> (4, 4, 4, 274, 40)
----
SELECT MOD(CAST(EXTRACT(dow FROM submit_time) AS int), 7) + 1 FROM jobs ORDER BY submit_time
=> (5,)
----
SELECT COUNT(*) FROM jobs WHERE submit_time >= DATE_TRUNC('day', TIMESTAMP WITH TIME ZONE '2026-10-02 00:00:00.000+00:00') AND submit_time < timestamp '2026-10-03 00:00:00.000'
=> (1,)
----
SELECT COUNT(*) FROM jobs WHERE submit_time >= TO_TIMESTAMP('2026-10-02 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND submit_time < TO_TIMESTAMP('2026-10-04 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')
=> (2,)
----
SELECT COUNT(*) FROM jobs WHERE submit_time >= TO_DATE('2026-10-02', 'YYYY-MM-DD')
=> (2,)
----
SELECT DATE_TRUNC('day', submit_time) AS __timestamp, "user" AS "user", SUM(gpus) AS "SUM(gpus)" FROM public.jobs JOIN (SELECT "user" AS "user__", SUM(gpus) AS mme_inner__ FROM public.jobs GROUP BY "user" ORDER BY mme_inner__ DESC NULLS LAST LIMIT 10) AS anon_1 ON "user" = "user__" GROUP BY DATE_TRUNC('day', submit_time), "user" ORDER BY 1, 2 LIMIT 100
=> (__import__("datetime").datetime(2026, 10, 1, 0, 0), 'alice', 2)
----
SELECT CASE WHEN "user" IN ('alice') THEN 'A' ELSE 'B' END AS who, COUNT(*) FROM jobs GROUP BY 1 HAVING ((COUNT(*) > 0)) ORDER BY 2 DESC, 1
=> ('A', 2)
----
SELECT "user", gpus, NULLIF(gpus, 0), COALESCE(gpus, 0) FROM jobs ORDER BY gpus DESC, "user"
=> ('alice', 2, 2, 2)
----
SELECT "user", gpus FROM jobs ORDER BY gpus, "user"
=> ('bob', 0)
----
SELECT "user" FROM jobs ORDER BY gpus DESC NULLS LAST, "user" LIMIT 1
=> ('alice',)
----
SELECT sum(run_seconds) FILTER (WHERE state = 'COMPLETED') FROM jobs
=> (7800,)
----
SELECT string_agg(DISTINCT "user", ', ' ORDER BY "user") FROM jobs
=> ('alice, bob',)
----
SELECT array_agg("user" ORDER BY job_id) FROM jobs
=> (['alice', 'alice', 'bob'],)
----
SELECT regexp_replace('foo bar', 'o', 'x'), regexp_replace('foo bar', 'o', 'x', 'g'), regexp_replace('node-07', '^node-0*([0-9]+)$', '\1')
=> ('fxo bar', 'fxx bar', '7')
----
SELECT 'abc' ILIKE 'A%', 'abc' ~~ 'a%', 'ABC' ~~* 'a%', 'abc' !~~ 'b%', 'abc' !~~* 'A%'
=> (True, True, True, True, False)
----
SELECT to_char(submit_time, 'YYYY-MM-DD'), to_char(submit_time, 'HH24:MI'), to_char(submit_time, 'Dy DD Mon') FROM jobs ORDER BY 1
=> ('2026-10-01', '08:00', 'Thu 01 Oct')
----
SELECT extract(epoch from (end_time - start_time)) FROM jobs ORDER BY job_id
=> (7200,)
----
SELECT date_part('epoch', end_time - start_time), date_part('year', submit_time), extract(month from submit_time) FROM jobs ORDER BY job_id
=> (7200.0, 2026.0, 10)
----
SELECT timestamp '2026-10-31' + interval '1 month', date '2026-10-31' - 7, date '2026-10-31' - date '2026-10-01', date '2026-10-31' + 1
=> (__import__("datetime").datetime(2026, 11, 30, 0, 0), __import__("datetime").date(2026, 10, 24), 30, __import__("datetime").date(2026, 11, 1))
----
SELECT date_bin('15 minutes', submit_time, timestamp '2001-01-01'), count(*) FROM jobs GROUP BY 1 ORDER BY 1
=> (__import__("datetime").datetime(2026, 10, 1, 8, 0), 1)
----
SELECT width_bucket(run_seconds, 0, 10000, 10), count(*) FROM jobs GROUP BY 1 ORDER BY 1
=> (1, 1)
----
SELECT greatest(1, 2, NULL), least(3, NULL, 2), sign(-3), abs(-3), power(2, 10), sqrt(16), ceil(1.2), floor(-1.2), mod(7, 3), ln(1), log(100), exp(0)
=> (2, 2, -1.0, 3, 1024.0, 4.0, 2, -2, 1, 0.0, 2.0, 1.0)
----
SELECT rank() OVER (ORDER BY run_seconds DESC), "user", lag(run_seconds) OVER (ORDER BY run_seconds) FROM jobs ORDER BY 1
=> (1, 'alice', 3600)
----
SELECT DISTINCT ON ("user") "user", job_id FROM jobs ORDER BY "user", job_id DESC
=> ('alice', '2')
----
SELECT count(*) FILTER (WHERE state <> 'COMPLETED')::float / count(*) FROM jobs
=> (0.3333333333333333,)
----
SELECT 100.0 * sum(CASE WHEN state = 'FAILED' THEN 1 ELSE 0 END) / count(*) FROM jobs
=> (33.333333333333336,)
----
SELECT "user", sum(gpus * run_seconds) / 3600.0 AS gpu_hours FROM jobs GROUP BY "user" ORDER BY 2 DESC NULLS LAST
=> ('alice', 5)
----
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t(n, s)
=> (1, 'a')
----
SELECT unnest(ARRAY[1,2]) AS n
=> (1,)
----
SELECT j."user", x.n FROM jobs j CROSS JOIN LATERAL (SELECT count(*) AS n FROM jobs k WHERE k."user" = j."user") x ORDER BY 1
=> ('alice', 2)
----
SELECT true::text, 1::text, 'yes'::boolean, '5'::int, 5.7::int, '1.5'::float8, 1/3.0
=> ('true', '1', True, 5, 6, 1.5, 0.3333333333333333)
----
SELECT count(*)::text || ' jobs' FROM jobs
=> ('3 jobs',)
----
SELECT 'a' || 1, 'it''s', E'tab\there'
=> ('a1', "it's", 'tab\there')
----
SELECT max(submit_time) AS "time", 'x' AS text, 'a,b' AS tags FROM jobs
=> (__import__("datetime").datetime(2026, 10, 3, 8, 0), 'x', 'a,b')
----
SELECT DISTINCT "user" AS __text, "user" AS __value FROM jobs ORDER BY 1
=> ('alice', 'alice')
----
SELECT "user" FROM jobs WHERE ("user" IN ('alice','bob')) AND 'All' IN ('All') ORDER BY 1
=> ('alice',)
----
SELECT count(*) FROM jobs WHERE lower("user") LIKE '%' || lower('LI') || '%'
=> (2,)
----
SELECT count(*) FROM jobs WHERE (lower("user") LIKE '%li%') AND NOT (state = 'FAILED' OR state IS NULL)
=> (1,)
----
SELECT bool_or(gpus > 1), bool_and(gpus > 1), every(gpus > 0) FROM jobs
=> (True, False, False)
----
SELECT mode() WITHIN GROUP (ORDER BY "user") FROM jobs
=> ('alice',)
----
SELECT "user", "partition", count(*) FROM jobs GROUP BY ROLLUP ("user", "partition") ORDER BY 1, 2
=> ('alice', 'gpu', 2)
----
SELECT GROUPING("user"), count(*) FROM jobs GROUP BY GROUPING SETS (("user"), ()) ORDER BY 1, 2
=> (0, 1)
----
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT sum(n) FROM t
=> (6,)
----
SELECT * FROM (SELECT job_id, "user" FROM jobs ORDER BY job_id OFFSET 1 ROWS FETCH NEXT 1 ROWS ONLY) t
=> ('2', 'alice')
----
SELECT CAST('2026-10-01 00:00:00+02' AS timestamptz) AT TIME ZONE 'UTC'
=> (__import__("datetime").datetime(2026, 9, 30, 22, 0),)
----
SELECT CAST('2026-10-01 00:00:00+02' AS timestamp with time zone) < timestamp '2026-10-01 00:00'
=> (True,)
----
SELECT (timestamptz '2026-10-01 00:00:00+00')::date, timestamptz '2026-10-01 23:00:00+00'::date
=> (__import__("datetime").date(2026, 10, 1), __import__("datetime").date(2026, 10, 1))
----
SELECT "user" FROM jobs WHERE "user" > 'Alice' ORDER BY "user" LIMIT 1
=> ('alice',)
----
SELECT * FROM (VALUES ('b'), ('A'), ('a'), ('_'), ('B')) AS t(x) ORDER BY x COLLATE "C"
=> ('A',)
----
SELECT NULL = NULL, 1 IS DISTINCT FROM NULL, 'a' IS NOT DISTINCT FROM 'a', 1 <> 2, 1 != 2
=> (None, True, True, True, True)
----
SELECT count(1), count(gpus), sum(NULL::int) FROM jobs
=> (3, 3, None)
----
SELECT 'a' < 'b', 'Z' < 'a' COLLATE "C"
=> (True, True)
----
SELECT extract(epoch from timestamptz '2026-10-01 00:00:00+00')
=> (1790812800,)
----
SELECT avg(gpus), avg(run_seconds), sum(gpus), sum(run_seconds), min("user") FROM jobs
=> (1, 3800, 3, 11400, 'alice')
----
SELECT coalesce(sum(gpus), 0)::int AS "GPUs" FROM jobs WHERE "user" = 'nobody'
=> (0,)
----
SELECT isfinite(timestamp '2026-10-01'), date_part('hour', timestamp '2026-10-01 10:20'), make_date(2026, 10, 1), make_timestamp(2026, 10, 1, 5, 6, 7.5)
=> (True, 10.0, __import__("datetime").date(2026, 10, 1), __import__("datetime").datetime(2026, 10, 1, 5, 6, 7, 500000))
----
SELECT job_id FROM jobs WHERE "user" !~ 'li' AND "user" !~* 'ALI' ORDER BY 1
=> ('3',)
----
SELECT timestamptz '2026-10-01' AT TIME ZONE 'Asia/Tokyo', timestamp '2026-03-29 02:30' AT TIME ZONE 'Europe/Oslo' AT TIME ZONE 'UTC', timestamp '2026-10-25 02:30' AT TIME ZONE 'Europe/Oslo' AT TIME ZONE 'UTC'
=> (__import__("datetime").datetime(2026, 10, 1, 9, 0), __import__("datetime").datetime(2026, 3, 29, 1, 30), __import__("datetime").datetime(2026, 10, 25, 1, 30))
----
SELECT timestamp '2026-10-01 00:00'::timestamptz
=> (__import__("datetime").datetime(2026, 10, 1, 0, 0),)
----
SELECT timestamp without time zone '2026-10-01 00:00'::timestamptz
=> (__import__("datetime").datetime(2026, 10, 1, 0, 0),)
----
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY run_seconds), round(STDDEV_POP(run_seconds))::bigint FROM jobs
=> (3600.0, 2698)
