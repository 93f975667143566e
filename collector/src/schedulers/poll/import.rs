//! Imports the answers of a scheduler into the store.

use super::Poller;
use crate::schedulers::scheduler::SchedulerAnswer;
use crate::schedulers::status::PollError;
use std::io;
use std::slice;
use takt_model::UnixTime;
use takt_slurm::{Entry, Reject};
use takt_store::{ImportError, ImportSummary, LIVE_QUEUE, OpenRun, Origin, Records, Shifted};

impl Poller {
    /// Imports an answer, running jobs included.
    pub(super) async fn import(
        &self,
        cluster: &str,
        source: &'static str,
        answer: SchedulerAnswer,
        timezone: Option<String>,
        complete_until: Option<UnixTime>,
    ) -> Result<(ImportSummary, Vec<OpenRun>), PollError> {
        let cluster = cluster.to_owned();
        let gpus_are_counted = self.gpus_are_counted || source == LIVE_QUEUE;

        self.blocking(move |records| {
            let name = format!("{source} of {cluster}");
            let mut open = Vec::new();
            let corrections = answer.corrections();
            let entries = answer.entries(&cluster, &name)?.map(|entry| {
                let mut entry = entry?;
                if !gpus_are_counted {
                    forget_uncounted_gpus(&mut entry);
                }

                let (run, job_ids) = match &entry {
                    Entry::Run(run) => (Some(run), slice::from_ref(&run.job_id)),
                    Entry::Tasks { run, job_ids } => (Some(run), job_ids.as_slice()),
                    Entry::Step | Entry::Rejected(_) => (None, &[][..]),
                };

                if let Some(run) = run.filter(|run| run.end.is_none()) {
                    open.extend(job_ids.iter().map(|job_id| OpenRun {
                        job_id: job_id.clone(),
                        submit: run.submit,
                    }));
                }

                Ok(match entry {
                    // The line number in an answer has no meaning, and the same row comes with
                    // every answer.
                    Entry::Rejected(reject) => Entry::Rejected(Reject {
                        line: None,
                        ..reject
                    }),
                    entry => entry,
                })
            });

            let origin = Origin {
                source,
                name: &name,
                timezone: timezone.as_deref(),
                complete_until: complete_until.map(|instant| (cluster.as_str(), instant)),
                // Slurm's own answers are never in a wrong time zone.
                shifted: Shifted::Keep,
                corrections,
            };

            let summary = records
                .import(&origin, entries)
                .map_err(|error| match error {
                    ImportError::Source(error) => error,
                    ImportError::Store(error) => PollError::Store(error),
                    ImportError::Shifted { .. } => unreachable!("a poll keeps shifted runs"),
                })?;

            // The same row comes with every answer.
            if summary.rejected_first > 0 {
                let reason = summary.first_rejects.first().map(|reject| &*reject.reason);
                tracing::warn!(
                    source = name,
                    records = summary.rejected_first,
                    reason,
                    "set aside records of jobs; the SQL table rejects has them"
                );
            }

            Ok((summary, open))
        })
        .await
    }

    /// Runs a store operation on a blocking thread.
    pub(super) async fn blocking<T>(
        &self,
        ask: impl FnOnce(Records<'_>) -> Result<T, PollError> + Send + 'static,
    ) -> Result<T, PollError>
    where
        T: Send + 'static,
    {
        let database = self.database.clone();
        match takt_store::spawn_blocking(move || ask(Records::of(&database))).await {
            Ok(answer) => answer,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(PollError::Run {
                    program: "the store",
                    source: io::Error::other(error),
                }),
            },
        }
    }
}

/// Replaces 0 GPUs by an unknown number: Slurm records no GPUs with jobs, although the nodes have
/// some.
fn forget_uncounted_gpus(entry: &mut Entry) {
    if let Entry::Run(run) | Entry::Tasks { run, .. } = entry {
        run.gpus = run.gpus.filter(|gpus| *gpus > 0);
    }
}
