//! Strips of jobs: utilization from the start to the end, or until now.

use super::share;
use crate::frame::{Cell, Column, PageError, Visit};
use std::collections::HashMap;
use takt_accounting::efficiency::Curve;
use takt_draw::heat;
use takt_model::UnixTime;
use takt_questions::{ListedRun, RunStripAnswer, RunStripsQuestion};

/// Jobs with a strip on a page.
const MOST: usize = 500;

/// The strips of listed runs, by job id and time of submission.
pub struct Strips {
    found: HashMap<(String, UnixTime), RunStripAnswer>,
    idle_below: f64,
}

impl Strips {
    /// Asks for the strips of these runs.
    ///
    /// # Errors
    /// If the store fails.
    pub fn of(visit: &Visit, listed: &[ListedRun]) -> Result<Self, PageError> {
        // Waiting jobs have no strip.
        let ids: Vec<&str> = listed
            .iter()
            .filter(|one| one.run.start.is_some())
            .map(|one| one.run.job_id.as_str())
            .take(MOST)
            .collect();

        let found = visit
            .ask(&RunStripsQuestion {
                jobs: ids.join(","),
                cluster: Some(visit.site.cluster.to_string()),
            })?
            .into_iter()
            .map(|strip| ((strip.job_id.clone(), strip.submit), strip))
            .collect();
        Ok(Self {
            found,
            idle_below: visit.site.config.accounting.efficiency.idle_below_ratio,
        })
    }

    /// Adds a column with the strips to a list of runs, and the utilization of running ones.
    pub fn add(&self, columns: &mut Vec<Column>, rows: &mut [Vec<Cell>], listed: &[ListedRun]) {
        // The strips stand before the utilization, which is their mean.
        let Some(place) = columns.iter().position(|one| one.key == "utilization") else {
            return;
        };
        columns.insert(place, Column::picture("strip", "Use over time"));
        for (row, one) in rows.iter_mut().zip(listed) {
            let key = (one.run.job_id.clone(), one.run.submit);
            let strip = self.found.get(&key);
            // A running job has no efficiency yet, so the mean so far stands in for it.
            if let Some(mean) = strip.and_then(|strip| strip.mean_so_far) {
                row[place] = share(Some(mean));
            }
            let cell = strip.map(|strip| self.cell(strip)).unwrap_or_default();
            row.insert(place, cell);
        }
    }

    fn cell(&self, strip: &RunStripAnswer) -> Cell {
        let label = format!("Utilization of the GPUs of job {}", strip.job_id);
        Cell::picture(strip_of(
            &strip.utilization,
            1.0,
            Some(self.idle_below),
            label,
        ))
    }
}

/// A curve as a strip of colours; values below `idle_below` have the colour of idle time.
pub fn strip_of(curve: &Curve, most: f64, idle_below: Option<f64>, label: String) -> String {
    let row = curve
        .0
        .iter()
        .map(|value| match value {
            None => takt_draw::Cell::Unknown,
            Some(value) if idle_below.is_some_and(|below| *value < below) => takt_draw::Cell::Idle,
            Some(value) => takt_draw::Cell::Busy(value / most),
        })
        .collect();
    heat(&[row], 14, 14, label).inline("strip")
}
