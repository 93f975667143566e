SET extra_float_digits = 3
----
SET application_name = 'PostgreSQL JDBC Driver'
----
SHOW TRANSACTION ISOLATION LEVEL
=> ("read committed",)
----
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ UNCOMMITTED
----
SELECT current_schema(), session_user
=> ("public", "grafana")
----
SHOW search_path
=> ('"$user", public, metrics',)
----
select version()
----
SELECT nspname AS "TABLE_SCHEM", current_database() AS "TABLE_CATALOG" FROM pg_catalog.pg_namespace
WHERE nspname <> 'pg_toast' AND (nspname !~ '^pg_temp_' OR nspname = (pg_catalog.current_schemas(true))[1])
AND (nspname !~ '^pg_toast_temp_' OR nspname = replace((pg_catalog.current_schemas(true))[1], 'pg_temp_', 'pg_toast_temp_'))
ORDER BY "TABLE_SCHEM"
=> ("information_schema", "takt")
----
SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d
ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass ORDER BY nspname
----
SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = 1114
=> (True, "pg_catalog", "timestamp")
----
SELECT typinput = 'pg_catalog.array_in'::regproc AS is_array, typtype, typname, pg_type.oid FROM pg_catalog.pg_type
LEFT JOIN (SELECT ns.oid AS nspoid, ns.nspname, r.r FROM pg_namespace AS ns JOIN (
    SELECT s.r, (current_schemas(false))[s.r] AS nspname
    FROM generate_series(1, array_upper(current_schemas(false), 1)) AS s(r)) AS r USING (nspname)) AS sp
ON sp.nspoid = typnamespace WHERE pg_type.oid = 1115 ORDER BY sp.r, pg_type.oid DESC
----
SELECT current_database() AS "TABLE_CAT", n.nspname AS "TABLE_SCHEM", c.relname AS "TABLE_NAME",
CASE n.nspname ~ '^pg_' OR n.nspname = 'information_schema' WHEN true THEN 'SYSTEM' WHEN false THEN
    CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'v' THEN 'VIEW' ELSE NULL END
ELSE NULL END AS "TABLE_TYPE", d.description AS "REMARKS", '' AS "TYPE_CAT"
FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_description d ON (c.oid = d.objoid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass)
WHERE c.relnamespace = n.oid AND n.nspname LIKE 'public' AND c.relname LIKE 'job_' ORDER BY 4, 2, 3
=> ("takt", "public", "jobs", "TABLE", None, "")
----
SELECT * FROM (SELECT n.nspname, c.relname, a.attname, a.atttypid,
    a.attnotnull OR (t.typtype = 'd' AND t.typnotnull) AS attnotnull, a.atttypmod, a.attlen, t.typtypmod,
    row_number() OVER (PARTITION BY a.attrelid ORDER BY a.attnum) AS attnum, nullif(a.attidentity, '') AS attidentity,
    nullif(a.attgenerated, '') AS attgenerated, pg_catalog.pg_get_expr(def.adbin, def.adrelid) AS adsrc,
    dsc.description, t.typbasetype, t.typtype
FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_class c ON (c.relnamespace = n.oid)
JOIN pg_catalog.pg_attribute a ON (a.attrelid = c.oid) JOIN pg_catalog.pg_type t ON (a.atttypid = t.oid)
LEFT JOIN pg_catalog.pg_attrdef def ON (a.attrelid = def.adrelid AND a.attnum = def.adnum)
LEFT JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
LEFT JOIN pg_catalog.pg_class dc ON (dc.oid = dsc.classoid AND dc.relname = 'pg_class')
LEFT JOIN pg_catalog.pg_namespace dn ON (dc.relnamespace = dn.oid AND dn.nspname = 'pg_catalog')
WHERE c.relkind IN ('r', 'p', 'v', 'f', 'm') AND a.attnum > 0 AND NOT a.attisdropped AND n.nspname LIKE 'public'
    AND c.relname LIKE 'jobs') c WHERE true AND attname LIKE 'cpus' ORDER BY nspname, c.relname, attnum
=> ("public", "jobs", "cpus", 20, False, -1, 8, -1, 14, None, None, None, None, 0, "b")
----
SELECT "n"."nspname" AS "schema", "c"."relname" AS "name", CASE "c"."relkind" WHEN 'r' THEN 'TABLE' WHEN 'v' THEN
'VIEW' ELSE NULL END AS "type", "d"."description" AS "description", "stat"."n_live_tup" AS "estimated_row_count"
FROM "pg_catalog"."pg_class" AS "c" INNER JOIN "pg_catalog"."pg_namespace" AS "n" ON "c"."relnamespace" = "n"."oid"
LEFT JOIN "pg_catalog"."pg_description" AS "d" ON ("c"."oid" = "d"."objoid") AND ("d"."objsubid" = '0')
AND ("d"."classoid" = 'pg_class'::regclass) LEFT JOIN "pg_stat_user_tables" AS "stat"
ON ("n"."nspname" = "stat"."schemaname") AND ("c"."relname" = "stat"."relname")
WHERE ("n"."nspname" !~ '^pg_') AND ("n"."nspname" <> 'information_schema') AND c.relkind IN ('r', 'p', 'v', 'f', 'm')
AND ("n"."nspname" IN ('public')) AND "c"."relname" = 'gpus' ORDER BY "type" ASC, "schema" ASC, "name" ASC
=> ("public", "gpus", "TABLE", None, None)
----
with table_privileges as (
  select NULL as role, t.schemaname as schema, t.objectname as table,
    pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' || replace(t.objectname, '"', '""') || '"', 'update') as update,
    pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' || replace(t.objectname, '"', '""') || '"', 'select') as select
  from (select schemaname, tablename as objectname from pg_catalog.pg_tables
    union select schemaname, viewname as objectname from pg_catalog.pg_views
    union select schemaname, matviewname as objectname from pg_catalog.pg_matviews) t
  where t.schemaname !~ '^pg_' and t.schemaname <> 'information_schema'
    and pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage'))
select t.* from table_privileges t where t.table = 'jobs'
=> (None, "public", "jobs", False, True)
----
SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description
FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid WHERE t.typname IS NOT NULL
AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')
----
SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datname = 'takt'
----
SELECT * FROM pg_catalog.pg_settings where name = 'standard_conforming_strings'
----
SELECT string_agg(word, ',') FROM pg_catalog.pg_get_keywords() WHERE word <> ALL ('{a,abs,absolute}'::text[])
----
SELECT table_schema, table_name, table_type FROM information_schema.tables
WHERE table_schema NOT IN ('pg_catalog', 'information_schema') AND table_name = 'users'
=> ("public", "users", "BASE TABLE")
----
SELECT "public"."jobs"."user" AS "user", DATE_TRUNC('month', "public"."jobs"."submit_time") AS "submit_time",
COUNT(*) AS "count" FROM "public"."jobs" WHERE "public"."jobs"."user" = 'bob'
GROUP BY "public"."jobs"."user", DATE_TRUNC('month', "public"."jobs"."submit_time") ORDER BY 1 ASC
=> ("bob", __import__("datetime").datetime(2026, 10, 1, 0, 0), 1)
----
DISCARD ALL
----
-- pgjdbc's getTables escapes underscores; a backslash is LIKE's default escape character
SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relname LIKE 'job\_usage' AND c.relname NOT LIKE 'job\_x%'
=> ("job_usage",)
----
SELECT to_char(TIMESTAMP '2026-10-05 01:02:03.5', 'YYYY-MM-DD HH24:MI:SS.MS "week" IW')
=> ("2026-10-05 01:02:03.500 week 41",)
