//! Channels whose messages do not arrive.

use super::Records;
use crate::StoreError;
use takt_model::Timestamp;

/// A channel whose last message was not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingChannel {
    /// Name: receiver/kind/number.
    pub channel: String,
    /// Error of the last attempt.
    pub error: String,
}

impl Records<'_> {
    /// Returns the channels whose last attempted message since `since` was not delivered.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn failing_channels(&self, since: Timestamp) -> Result<Vec<FailingChannel>, StoreError> {
        self.list(
            "look for undelivered messages",
            "SELECT channel, error FROM (
                 SELECT channel, error, state FROM records.notifications
                 WHERE attempts > 0 AND state <> 'superseded' AND epoch_ms(updated_at) >= ?
                 QUALIFY row_number() OVER (PARTITION BY channel ORDER BY updated_at DESC, id DESC) = 1
             ) WHERE state <> 'sent' AND error IS NOT NULL ORDER BY channel",
            vec![since.0.into()],
            |row| {
                Ok(FailingChannel {
                    channel: row.get(0)?,
                    error: row.get(1)?,
                })
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlertChanges, AlertRecords, DataDir, Database, NotificationRecord, Settings};
    use tempfile::tempdir;

    #[test]
    fn the_last_attempt_of_a_channel_counts() {
        let root = tempdir().unwrap();
        let dir = DataDir::claim(root.path()).unwrap();
        let database = Database::open(&dir, &Settings::default()).unwrap();
        let message = |channel: &str, state: &str, error: Option<&str>, at: Timestamp| {
            let texts = [channel, "{}", "first_firing", "firing", state, "body"];
            NotificationRecord {
                texts: texts.map(str::to_owned),
                optional: [None, error.map(str::to_owned), None],
                counts: [1, 1],
                instants: [Timestamp(1_000), at],
                is_open: state == "queued",
            }
        };
        let refused = Some("channel_not_found");
        let sent = [
            message("ops/slack/0", "gave_up", refused, Timestamp(2_000)),
            message("ops/slack/0", "sent", None, Timestamp(3_000)),
            message("ops/email/0", "sent", None, Timestamp(2_000)),
            message(
                "ops/email/0",
                "queued",
                Some("connection refused"),
                Timestamp(3_000),
            ),
            message("lab/slack/0", "gave_up", refused, Timestamp(500)),
        ];
        let changes = AlertChanges {
            notifications: (1..).zip(sent).collect(),
            ..AlertChanges::default()
        };
        let alerts = AlertRecords::open(&database, Timestamp(10_000)).unwrap();
        alerts.commit(&changes).unwrap();
        let failing = Records::of(&database)
            .failing_channels(Timestamp(1_000))
            .unwrap();
        let failing: Vec<(&str, &str)> = failing
            .iter()
            .map(|one| (one.channel.as_str(), one.error.as_str()))
            .collect();
        assert_eq!(failing, [("ops/email/0", "connection refused")]);
    }
}
