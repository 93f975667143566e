-- ping
----
SELECT current_setting('server_version_num')::int/100 as version
=> (1600,)
----
SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'
=> None
----
SET TIMEZONE TO 'UTC'; SELECT 42
=> (42,)
----
SELECT
    CASE WHEN quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )
      THEN quote_ident(table_name)
      ELSE quote_ident(table_schema) || '.' || quote_ident(table_name)
    END AS "table"
    FROM information_schema.tables
    WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', '_timescaledb_cache',
      '_timescaledb_catalog', '_timescaledb_internal', '_timescaledb_config', 'timescaledb_information',
      'timescaledb_experimental') AND table_name = 'jobs'
    ORDER BY 1
=> ("jobs",)
----
SELECT quote_ident(column_name) AS "column", data_type AS "type"
    FROM information_schema.columns
    WHERE
      CASE WHEN array_length(parse_ident('public.jobs'),1) = 2
        THEN quote_ident(table_schema) = (parse_ident('public.jobs'))[1]
          AND quote_ident(table_name) = (parse_ident('public.jobs'))[2]
        ELSE quote_ident(table_name) = 'jobs'
          AND
          quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )
      END AND column_name = 'submit_time'
=> ("submit_time", "timestamp without time zone")
----
SELECT submit_time AS "time", count(*) AS runs FROM jobs
WHERE submit_time BETWEEN '2026-09-30T22:00:00.123456789Z' AND '2026-10-31T23:00:00Z' GROUP BY 1 ORDER BY 1
=> (__import__("datetime").datetime(2026, 10, 1, 8, 0), 1)
----
SELECT floor(extract(epoch from submit_time)/300)*300 AS "time", "user" AS metric, sum(gpus) AS value
FROM jobs WHERE submit_time >= '2026-09-30T22:00:00Z' AND submit_time <= '2026-10-31T23:00:00Z' AND gpus IS NOT NULL
GROUP BY 1, 2 ORDER BY 1, 2
=> (1790841600.0, "alice", 2)
----
SELECT time_bucket('300.000s',submit_time) AS "time", count(*) FROM jobs GROUP BY 1 ORDER BY 1
=> (__import__("datetime").datetime(2026, 10, 1, 8, 0), 1)
----
SELECT count(*) FROM jobs WHERE epoch(submit_time) >= 1790800000 AND epoch(submit_time) <= 1793400000
=> (3,)
