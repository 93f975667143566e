//! Asks the end conditions of events' alerts: on any thread, since queries take time.

use crate::ports::{Query, QueryError};
use crate::state::RuleKey;
use std::collections::BTreeMap;
use takt_model::{Labels, Timestamp};

/// End conditions to ask.
#[derive(Debug)]
pub struct EndTask {
    /// Rules and their expressions.
    conditions: Vec<(RuleKey, String)>,
    at: Timestamp,
}

/// The answers to an [`EndTask`]; none by default.
#[derive(Debug, Default)]
pub struct EndAnswers {
    /// The instant of the queries.
    pub(super) asked_at: Option<Timestamp>,
    pub(super) by_rule: BTreeMap<RuleKey, Result<Vec<(Labels, f64)>, QueryError>>,
}

impl EndTask {
    pub(super) fn new(conditions: Vec<(RuleKey, String)>, at: Timestamp) -> Self {
        Self { conditions, at }
    }

    /// Asks the conditions.
    pub fn run(self, query: &dyn Query) -> EndAnswers {
        let answers = self.conditions.into_iter().map(|(rule, expr)| {
            let answer = query.instant(&expr, self.at);
            (rule, answer)
        });

        EndAnswers {
            asked_at: Some(self.at),
            by_rule: answers.collect(),
        }
    }
}
