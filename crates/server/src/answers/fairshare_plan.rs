//! A planned job, for which fair share is predicted.

use super::near::did_you_mean;
use super::{AnswerError, FairshareQuestion};
use takt_accounting::fairshare::PlannedJob;
use takt_slurm::billing::{Tres, is_tres};

/// Longest job that can be planned, in hours: ten years.
const MAX_HOURS: f64 = 87_600.0;

/// A planned job.
pub(super) struct Plan<'q> {
    tres: Tres,
    hours: f64,
    question: &'q FairshareQuestion,
}

impl<'q> Plan<'q> {
    /// The planned job of the question, if it has one. Fails if its TRES or its length is invalid.
    pub fn of(question: &'q FairshareQuestion) -> Result<Option<Self>, AnswerError> {
        let Some(text) = &question.plan else {
            return Ok(None);
        };
        let tres = Tres::parse(text).map_err(AnswerError::usage)?;
        if let Some((name, _)) = tres.iter().find(|(name, _)| !is_tres(name)) {
            let near = did_you_mean(name, ["cpu", "gres/gpu", "mem", "node"]);
            let expected = "expected cpu=N, gres/gpu=N, mem=NG and the like";
            return Err(AnswerError::Usage(format!(
                "Slurm counts no '{name}' ({expected}){near}"
            )));
        }
        // The parser leaves out a TRES with an invalid or zero amount.
        if tres.iter().count() < text.split(',').count() {
            return Err(AnswerError::Usage(format!(
                "'{text}' is no job: each amount is a number above 0"
            )));
        }
        let hours = question.plan_hours.unwrap_or(1.0);
        if !(0.0..=MAX_HOURS).contains(&hours) {
            return Err(AnswerError::Usage(format!(
                "a job of {hours} hours cannot be planned"
            )));
        }
        Ok(Some(Self {
            tres,
            hours,
            question,
        }))
    }

    /// The job, for the prediction.
    pub fn job(&self) -> PlannedJob<'_> {
        PlannedJob {
            partition: self.question.plan_partition.as_deref().unwrap_or_default(),
            qos: self.question.plan_qos.as_deref(),
            tres: &self.tres,
            hours: self.hours,
        }
    }
}
