// pgx, Grafana's driver for PostgreSQL, against a takt at HOST PORT.
//
// First as programs use it. Then each statement of the file (a JSON list) as Grafana sends it: by the
// simple protocol, all results read. Prints one JSON line for each: columns, and rows of texts. Ends
// with an error at the first difference.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func equal(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		check(fmt.Errorf("expected %#v, found %#v", expected, found))
	}
}

func usual(ctx context.Context, address string) {
	conn, err := pgx.Connect(ctx, address)
	check(err)
	defer conn.Close(ctx)

	// Values in the types that pgx decodes from the binary format.
	row := conn.QueryRow(ctx, `SELECT true, 7::SMALLINT, 7, 7::BIGINT, 1.5::DOUBLE, 'text', NULL::TEXT,
		TIMESTAMP '2026-10-25 01:02:03.5', DATE '2026-10-25', ['a', 'b'], 12.50::DECIMAL(6, 2)`)
	values := make([]any, 11)
	targets := make([]any, len(values))
	for i := range values {
		targets[i] = &values[i]
	}
	check(row.Scan(targets...))
	equal(values[:7], []any{true, int16(7), int32(7), int64(7), 1.5, "text", nil})
	equal(values[7], time.Date(2026, 10, 25, 1, 2, 3, 500_000_000, time.UTC))
	equal(values[8], time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC))
	equal(values[9], []any{"a", "b"})

	// Parameters in the binary format, in a statement that is prepared once.
	for range 3 {
		var job string
		var gpus int64
		err = conn.QueryRow(ctx, `SELECT job_id, gpus FROM jobs WHERE "user" = $1 AND submit_time < $2 AND gpus >= $3
			ORDER BY job_id LIMIT 1`, "alice", time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), 1).Scan(&job, &gpus)
		check(err)
		equal([]any{job, gpus}, []any{"1", int64(2)})
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		var count int64
		check(conn.QueryRow(ctx, `SELECT count(*) FROM jobs WHERE "user" = $1`, mode, "alice").Scan(&count))
		equal(count, int64(2))
	}
	var total int64
	check(conn.QueryRow(ctx, `SELECT count(*) FROM jobs WHERE job_id = ANY($1)`, []string{"1", "3", "9"}).Scan(&total))
	equal(total, int64(2))

	// Several statements in one round trip.
	batch := &pgx.Batch{}
	batch.Queue("SELECT count(*) FROM jobs")
	batch.Queue("SELECT max(gpus) FROM jobs WHERE account = $1", "a")
	results := conn.SendBatch(ctx, batch)
	for _, expected := range []int64{3, 2} {
		var found int64
		check(results.QueryRow().Scan(&found))
		equal(found, expected)
	}
	check(results.Close())

	// An error has its code, and the connection goes on.
	var failure *pgconn.PgError
	_, err = conn.Exec(ctx, "SELECT * FROM jbs")
	if !errors.As(err, &failure) || failure.Code != "42P01" {
		check(fmt.Errorf("expected 42P01, found %v", err))
	}
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"jobs"}, []string{"job_id"}, pgx.CopyFromRows([][]any{{"1"}}))
	if err == nil {
		check(errors.New("COPY was answered"))
	}
	// A transaction, and one that failed.
	check(pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT count(*) FROM jobs").Scan(&total)
	}))
	tx, err := conn.Begin(ctx)
	check(err)
	_, err = tx.Exec(ctx, "SELECT nope FROM jobs")
	if err == nil {
		check(errors.New("an unknown column was answered"))
	}
	check(tx.Rollback(ctx))

	// A context that ends cancels its statement; the pool replaces the connection.
	pool, err := pgxpool.New(ctx, address)
	check(err)
	defer pool.Close()
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	_, err = pool.Exec(short, "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3")
	cancel()
	if !errors.Is(err, context.DeadlineExceeded) && !pgconn.Timeout(err) {
		check(fmt.Errorf("expected the end of the time, found %v", err))
	}
	check(pool.Ping(ctx))
	check(pool.QueryRow(ctx, "SELECT 1").Scan(&total))
}

type answer struct {
	Columns []string    `json:"columns"`
	Rows    [][]*string `json:"rows"`
}

// As in Grafana's pkg/tsdb/grafana-postgresql-datasource: only results of a SELECT count.
func asGrafana(ctx context.Context, conn *pgconn.PgConn, sql string) (answer, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	found := answer{Columns: []string{}, Rows: [][]*string{}}
	for _, result := range results {
		if !strings.HasPrefix(result.CommandTag.String(), "SELECT") {
			continue
		}
		if result.CommandTag.RowsAffected() != int64(len(result.Rows)) {
			return found, fmt.Errorf("%s for %d rows", result.CommandTag, len(result.Rows))
		}
		found.Columns = found.Columns[:0]
		for _, field := range result.FieldDescriptions {
			found.Columns = append(found.Columns, field.Name)
		}
		for _, row := range result.Rows {
			texts := make([]*string, len(row))
			for i, value := range row {
				if value != nil {
					text := string(value)
					texts[i] = &text
				}
			}
			found.Rows = append(found.Rows, texts)
		}
	}
	return found, err
}

func main() {
	ctx := context.Background()
	address := fmt.Sprintf("host=%s port=%s user=alice dbname=takt", os.Args[1], os.Args[2])
	usual(ctx, address)
	text, err := os.ReadFile(os.Args[3])
	check(err)
	var statements []string
	check(json.Unmarshal(text, &statements))
	conn, err := pgconn.Connect(ctx, address)
	check(err)
	defer conn.Close(ctx)
	// Grafana's test of a connection, and the time zone it sets in the same message as a statement.
	check(conn.Ping(ctx))
	found, err := asGrafana(ctx, conn, "SET TIMEZONE TO 'UTC'; SELECT 42 AS n")
	check(err)
	equal([]any{found.Columns, *found.Rows[0][0]}, []any{[]string{"n"}, "42"})
	out := json.NewEncoder(os.Stdout)
	for _, sql := range statements {
		found, err := asGrafana(ctx, conn, sql)
		if err != nil {
			check(fmt.Errorf("%s\n  %w", sql, err))
		}
		check(out.Encode(found))
	}
}
