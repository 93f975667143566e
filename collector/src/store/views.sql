-- The tables that people query, kept in memory: made anew at every start, so they always fit the program.
USE memory;

CREATE VIEW jobs AS SELECT * FROM records.jobs;

CREATE VIEW rejects AS SELECT * FROM records.rejects;

CREATE VIEW series AS SELECT * FROM hot.series;

CREATE VIEW samples AS
SELECT s.metric, s.labels, h.ts, h.value
FROM hot.samples AS h JOIN hot.series AS s ON s.id = h.series;

CREATE VIEW alert_transitions AS SELECT * FROM records.alert_transitions;

CREATE VIEW notifications AS
SELECT id, channel, instead_of, group_key, reason, status, alerts, state, created_at, updated_at, attempts, error, body
FROM records.notifications;

CREATE VIEW silences AS SELECT * EXCLUDE (body) FROM records.silences;

CREATE VIEW run_efficiency AS SELECT * FROM records.run_efficiency;

CREATE VIEW credits AS SELECT * FROM records.credits;
