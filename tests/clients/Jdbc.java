// pgjdbc against a takt at HOST PORT: first as programs and BI tools use it, then each statement of the
// file (a JSON list of texts). Prints one JSON line for each: columns, and rows of texts. Ends with an
// error at the first difference.

import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;

public class Jdbc {
    static void equal(Object found, Object expected) {
        if (!Objects.deepEquals(found, expected)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static Connection connect(String[] place, String... settings) throws SQLException {
        Properties given = new Properties();
        given.setProperty("user", "alice");
        for (int i = 0; i < settings.length; i += 2) {
            given.setProperty(settings[i], settings[i + 1]);
        }
        return DriverManager.getConnection("jdbc:postgresql://" + place[0] + ":" + place[1] + "/takt", given);
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) {
            found.add(rows.getString(name));
        }
        return found;
    }

    static void usual(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            ResultSet row = statement.executeQuery("SELECT true, 7::SMALLINT, 7, 7::BIGINT, 1.5::DOUBLE,"
                + " 12.50::DECIMAL(6, 2), 'text', TIMESTAMP '2026-10-25 01:02:03.5', DATE '2026-10-25', NULL, ['a', 'b']");
            row.next();
            equal(row.getBoolean(1), true);
            equal(row.getObject(2), 7);
            equal(row.getObject(3), 7);
            equal(row.getObject(4), 7L);
            equal(row.getObject(5), 1.5);
            equal(row.getBigDecimal(6).toString(), "12.50");
            equal(row.getObject(7), "text");
            equal(row.getObject(8, LocalDateTime.class), LocalDateTime.parse("2026-10-25T01:02:03.5"));
            equal(row.getObject(9, LocalDate.class), LocalDate.parse("2026-10-25"));
            equal(row.getObject(10), null);
            equal(row.getArray(11).getArray(), new String[] {"a", "b"});
            ResultSet named = statement.executeQuery("SELECT count(*), max(gpus) AS most FROM jobs");
            ResultSetMetaData columns = named.getMetaData();
            equal(List.of(columns.getColumnLabel(1), columns.getColumnLabel(2)), List.of("count", "most"));
            equal(columns.getColumnType(1), Types.BIGINT);
        }
        // From the fifth time on, pgjdbc prepares on the server and asks for binary values.
        String sql = "SELECT job_id, start_time, gpus * 1.5::DOUBLE FROM jobs WHERE \"user\" = ? AND submit_time < ?"
            + " AND gpus >= ? ORDER BY 1";
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < 8; i++) {
                statement.setString(1, "alice");
                statement.setTimestamp(2, Timestamp.valueOf("2026-11-01 00:00:00"));
                statement.setLong(3, 2);
                ResultSet rows = statement.executeQuery();
                equal(rows.next(), true);
                equal(rows.getString(1), "1");
                equal(rows.getObject(2, LocalDateTime.class), LocalDateTime.parse("2026-10-01T08:01:00"));
                equal(rows.getDouble(3), 3.0);
                equal(rows.next(), false);
            }
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT count(*) FROM jobs WHERE job_id = ANY (?)")) {
            statement.setArray(1, connection.createArrayOf("text", new String[] {"1", "3", "9"}));
            ResultSet rows = statement.executeQuery();
            rows.next();
            equal(rows.getLong(1), 2L);
        }
        // Rows in portions.
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(50);
            ResultSet rows = statement.executeQuery("SELECT n FROM range(120) AS t(n)");
            int count = 0;
            while (rows.next()) {
                equal(rows.getInt(1), count++);
            }
            equal(count, 120);
        }
        connection.rollback();
        connection.setAutoCommit(true);
        for (String[] wrong : new String[][] {{"SELECT * FROM jbs", "42P01"}, {"DELETE FROM jobs", "25006"}}) {
            try (Statement statement = connection.createStatement()) {
                statement.execute(wrong[0]);
                throw new AssertionError(wrong[0] + " was answered");
            } catch (SQLException error) {
                equal(error.getSQLState(), wrong[1]);
            }
        }
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            statement.execute("SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3");
            throw new AssertionError("an endless statement was answered");
        } catch (SQLException error) {
            equal(error.getSQLState(), "57014");
        }
    }

    /** What DBeaver, Metabase and Trino ask before they show a table. */
    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData data = connection.getMetaData();
        equal(data.getDatabaseProductName(), "PostgreSQL");
        equal(data.getDatabaseMajorVersion(), 16);
        List<String> schemas = column(data.getSchemas(), "TABLE_SCHEM");
        equal(schemas.containsAll(List.of("public", "metrics")), true);
        // A name with an underscore, which drivers escape.
        String escaped = "job" + data.getSearchStringEscape() + "_usage";
        equal(column(data.getTables(null, "public", escaped, null), "TABLE_NAME"), List.of("job_usage"));
        List<String> tables = column(data.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_NAME");
        equal(tables.containsAll(List.of("jobs", "job_usage", "days", "budgets", "rate_cards", "run_efficiency")), true);
        List<String> views = column(data.getTables(null, "metrics", "node\\_load1", new String[] {"VIEW"}), "TABLE_NAME");
        equal(views, List.of("node_load1"));
        ResultSet columns = data.getColumns(null, "public", "days", "%");
        List<String> types = new ArrayList<>();
        while (columns.next()) {
            types.add(columns.getString("COLUMN_NAME") + " " + columns.getString("TYPE_NAME"));
        }
        equal(types, List.of("cluster text", "timezone text", "day date", "month date", "day_start timestamp", "day_end timestamp"));
        for (ResultSet empty : List.of(data.getPrimaryKeys(null, "public", "jobs"),
            data.getImportedKeys(null, "public", "jobs"), data.getExportedKeys(null, "public", "jobs"),
            data.getIndexInfo(null, "public", "jobs", false, true), data.getFunctions(null, "%", "%"),
            data.getFunctionColumns(null, "%", "%", "%"), data.getProcedures(null, "%", "%"),
            data.getBestRowIdentifier(null, "public", "jobs", DatabaseMetaData.bestRowSession, true))) {
            equal(empty.next(), false);
        }
        equal(column(data.getTypeInfo(), "TYPE_NAME").contains("timestamp"), true);
        equal(column(data.getCatalogs(), "TABLE_CAT"), List.of("takt"));
        equal(column(data.getTablePrivileges(null, "public", "jobs"), "PRIVILEGE").contains("SELECT"), true);
    }

    static String json(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            out.append(c == '"' || c == '\\' ? "\\" + c : c < ' ' ? String.format("\\u%04x", (int) c) : "" + c);
        }
        return out.append('"').toString();
    }

    /** The texts of a JSON list. */
    static List<String> texts(String json) {
        List<String> found = new ArrayList<>();
        StringBuilder text = null;
        for (int i = 0; i < json.length(); i++) {
            char c = json.charAt(i);
            if (c == '"') {
                if (text == null) {
                    text = new StringBuilder();
                } else {
                    found.add(text.toString());
                    text = null;
                }
            } else if (text != null && c == '\\') {
                char escaped = json.charAt(++i);
                if (escaped == 'u') {
                    text.append((char) Integer.parseInt(json.substring(i + 1, i + 5), 16));
                    i += 4;
                } else {
                    text.append(escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped);
                }
            } else if (text != null) {
                text.append(c);
            }
        }
        return found;
    }

    /** The last result of a statement as one line. */
    static String asked(Statement statement, String sql) throws SQLException {
        List<String> columns = new ArrayList<>();
        List<String> rows = new ArrayList<>();
        boolean isRows = statement.execute(sql);
        while (isRows || statement.getUpdateCount() != -1) {
            if (isRows) {
                ResultSet found = statement.getResultSet();
                int count = found.getMetaData().getColumnCount();
                columns.clear();
                for (int i = 1; i <= count; i++) {
                    columns.add(json(found.getMetaData().getColumnLabel(i)));
                }
                while (found.next()) {
                    String[] row = new String[count];
                    for (int i = 0; i < count; i++) {
                        row[i] = json(found.getString(i + 1));
                    }
                    rows.add(Arrays.toString(row));
                }
            }
            isRows = statement.getMoreResults();
        }
        return "{\"columns\": " + columns + ", \"rows\": " + rows + "}";
    }

    public static void main(String[] arguments) throws Exception {
        for (String mode : List.of("extended", "extendedForPrepared")) {
            try (Connection connection = connect(arguments, "preferQueryMode", mode)) {
                usual(connection);
                metadata(connection);
            } catch (SQLException | AssertionError error) {
                throw new Exception("with preferQueryMode=" + mode, error);
            }
        }
        List<String> statements = texts(Files.readString(Path.of(arguments[2])));
        try (Connection connection = connect(arguments, "preferQueryMode", "extended");
            Statement statement = connection.createStatement()) {
            for (String sql : statements) {
                try {
                    System.out.println(asked(statement, sql));
                } catch (SQLException error) {
                    throw new Exception(sql, error);
                }
            }
        }
    }
}
