//! Additions to the texts of alerts: names of GPUs, jobs, the last hour.

use super::Engine;
use crate::fingerprint::Fingerprint;
use crate::group::GroupRun;
use crate::message::{Message, Status};
use crate::ports::{ComparedValues, Query};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use takt_model::Timestamp;

/// How many alerts of one flush get additions to their rules' text.
const CONTEXT_MAX: usize = 5;

/// How many GPUs one flush looks up.
const GPUS_MAX: usize = 20;

/// Time of the queries of one flush, which messages and events wait for.
const QUERIES_MAX: Duration = Duration::from_millis(500);

impl Engine {
    /// Looks up the GPUs of new alerts and puts their indexes into the texts.
    pub(super) fn name_gpus(&mut self, query: &dyn Query, now: Timestamp) {
        let begun = Instant::now();
        for fingerprint in self.gpus.take_unknown(GPUS_MAX) {
            // The rest waits for the next flush: messages and events wait for this thread.
            if begun.elapsed() > QUERIES_MAX {
                self.gpus.note_unknown(fingerprint);
                continue;
            }

            // It may have ended and been forgotten since it was noted.
            let Some(alert) = self.router.alerts().get(fingerprint) else {
                continue;
            };

            let labels = alert.labels.clone();
            let words = alert.annotations.clone();

            self.gpus.found(fingerprint, query.gpu_index(&labels, now));
            let words: Vec<_> = words.into_iter().collect();
            let words = self.gpus.name(fingerprint, &labels, &words);
            self.router.reword(fingerprint, &words, now);
        }
    }

    /// Adds annotations such as jobs and the last hour to the first few alerts; many alerts are
    /// summarised anyway.
    pub(super) fn add_context(&self, messages: &mut [Message], query: &dyn Query, now: Timestamp) {
        let begun = Instant::now();

        // Several channels get the same alert in one flush, and its queries are asked once.
        let mut known: BTreeMap<Fingerprint, Vec<(String, String)>> = BTreeMap::new();

        for message in messages
            .iter_mut()
            .filter(|message| message.status == Status::Firing)
        {
            for alert in message
                .alerts
                .iter_mut()
                .filter(|alert| alert.status == Status::Firing)
                .take(CONTEXT_MAX)
            {
                // An alert that was asked about already costs nothing more, so it
                // keeps its context in every message.
                let is_full = known.len() == CONTEXT_MAX || begun.elapsed() > QUERIES_MAX;
                if is_full && !known.contains_key(&alert.fingerprint) {
                    continue;
                }

                let words = known.entry(alert.fingerprint).or_insert_with(|| {
                    query.context(
                        self.compared_by(alert.fingerprint),
                        &alert.labels,
                        alert.starts_at,
                        now,
                    )
                });

                // An annotation of the rule itself comes before the one of the same name from here.
                for (name, text) in words {
                    alert
                        .annotations
                        .entry(name.clone())
                        .or_insert_with(|| text.clone());
                }
            }
        }
    }

    /// The values that the rule which raised an alert compares.
    fn compared_by(&self, fingerprint: Fingerprint) -> Option<ComparedValues<'_>> {
        let rule = self
            .groups
            .iter()
            .flat_map(GroupRun::views)
            .find(|view| view.instances.get(fingerprint).is_some())?
            .rule;

        Some(ComparedValues {
            expr: rule.expr(),
            are_percentages: rule.shows_percentages(),
        })
    }
}
