//! Keeps answers about a period of the records until a record changes.
//!
//! Such an answer reads all jobs of the period. People go from page to page and look at the same month.

use super::{AnswerError, Question};
use serde::Serialize;
use std::any::Any;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use takt_access::Viewer;
use takt_model::UnixTime;
use takt_store::{Database, is_abandoned};

/// Maximum size of all kept answers, in bytes of JSON.
const MOST_BYTES: usize = 8 << 20;

/// Maximum number of kept answers.
const MOST: usize = 64;

/// Time for which an answer is kept, in seconds. It ends at a multiple of this time: no period begins or ends meanwhile,
/// and running jobs count until then.
const SECONDS: i64 = 60;

/// Answers that are still valid, the newest last. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct KeptAnswers(Arc<Mutex<VecDeque<KeptAnswer>>>);

#[derive(Debug)]
struct KeptAnswer {
    asked: Asked,
    answer: Arc<dyn Any + Send + Sync>,
    /// Bytes of JSON.
    size: usize,
}

/// Everything on which an answer depends.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    /// Path of the question.
    path: &'static str,
    /// The question as JSON.
    question: String,
    /// Viewers may see different parts.
    viewer: Viewer,
    /// State of the records.
    state: RecordState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct RecordState {
    /// The data directory.
    data: PathBuf,
    /// Number of changes of its records.
    changes: u64,
    /// Number of the time of [`SECONDS`].
    time: i64,
}

impl KeptAnswers {
    /// Returns the kept answer to a question, or else the answer of `make`, and keeps it.
    ///
    /// # Errors
    /// The error of `make`. It is not kept.
    pub(super) fn answer<Q>(
        &self,
        question: &Q,
        viewer: &Viewer,
        database: &Database,
        make: impl FnOnce() -> Result<Q::Answer, AnswerError>,
    ) -> Result<Q::Answer, AnswerError>
    where
        Q: Question<Answer: Serialize + Clone + Sync>,
    {
        let asked = Asked {
            path: Q::PATH,
            question: serde_json::to_string(question).map_err(AnswerError::failed)?,
            viewer: viewer.clone(),
            // Read before the records: a change meanwhile makes the answer invalid.
            state: RecordState {
                data: database.path().to_owned(),
                changes: database.record_changes(),
                time: UnixTime::from(jiff::Timestamp::now()).0.div_euclid(SECONDS),
            },
        };

        if let Some(kept) = self.find(&asked)
            && let Some(answer) = kept.downcast_ref::<Q::Answer>()
        {
            return Ok(answer.clone());
        }

        let answer = make()?;
        // A part that could not be read may be missing.
        if is_abandoned() {
            return Ok(answer);
        }
        // The size in JSON stands for that in memory. One answer takes half of the room at most.
        let mut size = JsonSize::default();
        if serde_json::to_writer(&mut size, &answer).is_ok() && size.0 <= MOST_BYTES / 2 {
            self.keep(KeptAnswer {
                asked,
                answer: Arc::new(answer.clone()),
                size: size.0,
            });
        }
        Ok(answer)
    }

    fn find(&self, asked: &Asked) -> Option<Arc<dyn Any + Send + Sync>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|kept| kept.asked == *asked)?;
        Some(Arc::clone(&found.answer))
    }

    fn keep(&self, new: KeptAnswer) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Answers about an older state can never be asked for again.
        let state = &new.asked.state;
        kept.retain(|kept| kept.asked.state == *state && kept.asked != new.asked);
        kept.push_back(new);

        let mut size: usize = kept.iter().map(|kept| kept.size).sum();
        while kept.len() > MOST || size > MOST_BYTES {
            // The oldest first. An empty queue has size 0, whatever the sum was.
            let dropped = kept.pop_front();
            size -= dropped.map_or(size, |dropped| dropped.size);
        }
    }

    /// Number and size of the kept answers.
    #[cfg(test)]
    fn extent(&self) -> (usize, usize) {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.len(), kept.iter().map(|kept| kept.size).sum())
    }
}

/// Counts bytes.
#[derive(Debug, Default)]
struct JsonSize(usize);

impl Write for JsonSize {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        AccountingConfig, AnswerConfig, EnergyQuestion, SheetQuestion, WasteQuestion,
    };
    use super::*;
    use crate::testing::{import, store_in};
    use std::convert::Infallible;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::thread;
    use takt_access::{Privacy, Role, Way};
    use takt_jobs::{Entry, JobRun};
    use takt_store::{Corrections, DeleteRuns, Origin, Records, Shifted, Store};
    use tempfile::tempdir;

    const START: i64 = 1_790_850_000; // 2026-10-01T10:20:00Z

    fn run(job_id: &str, hours: i64) -> JobRun {
        JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit: UnixTime(START),
            start: Some(UnixTime(START)),
            end: Some(UnixTime(START + hours * 3600)),
            state: "COMPLETED".into(),
            user: "ada".into(),
            account: "physics".into(),
            cpus: Some(4),
            nodes: Some(1),
            ..JobRun::default()
        }
    }

    fn question() -> SheetQuestion {
        SheetQuestion {
            month: Some("2026-10".into()),
            timezone: Some("UTC".into()),
            ..SheetQuestion::default()
        }
    }

    fn cpu_hours(store: &Store, config: &AnswerConfig) -> f64 {
        question()
            .answer(&Viewer::server(), store.database(), config)
            .unwrap()[0]
            .figures
            .cpu_hours
    }

    /// Waits until a minute has begun a while ago and will last, so that it does not end meanwhile.
    fn in_a_minute() {
        while !(1..50).contains(&(jiff::Timestamp::now().as_second() % SECONDS)) {
            thread::sleep(std::time::Duration::from_millis(200));
        }
    }

    #[test]
    fn an_answer_is_kept_until_a_record_changes() {
        let root = tempdir().unwrap();
        let store = store_in(root.path());
        let config = AnswerConfig {
            accounting: AccountingConfig {
                timezone: Some("UTC".into()),
                ..AccountingConfig::default()
            },
            ..AnswerConfig::default()
        };
        let records = Records::of(store.database());
        // Three hours of four CPUs.
        import(store.database(), None, [run("1", 2), run("2", 1)]);
        in_a_minute();
        assert_eq!(cpu_hours(&store, &config), 12.0);
        assert_eq!(config.kept.extent().0, 1);
        // The answer comes from memory: a change that is not announced does not appear.
        let db = store.database().connect().unwrap();
        db.execute_batch("UPDATE records.jobs SET cpus = 40")
            .unwrap();
        assert_eq!(cpu_hours(&store, &config), 12.0);
        db.execute_batch("UPDATE records.jobs SET cpus = 4")
            .unwrap();

        // A correction appears at once, in all answers.
        let waste = WasteQuestion::default();
        let energy = EnergyQuestion::default();
        let server = Viewer::server();
        waste.answer(&server, store.database(), &config).unwrap();
        energy.answer(&server, store.database(), &config).unwrap();
        assert_eq!(config.kept.extent().0, 3);
        import(store.database(), None, [run("1", 5)]);
        assert_eq!(cpu_hours(&store, &config), 24.0);
        assert_eq!(config.kept.extent().0, 1, "older answers are dropped");

        let which = DeleteRuns {
            job_id: Some("2".into()),
            ..DeleteRuns::default()
        };
        assert_eq!(records.delete_runs(&which).unwrap(), 1);
        assert_eq!(cpu_hours(&store, &config), 20.0);
        // Privacy of Slurm decides what a viewer sees, so it is a change of the records.
        records
            .note_private_data("lab", "usage", UnixTime(START))
            .unwrap();
        assert_eq!(config.kept.find(&asked(&store, &server)).map(drop), None);

        // Another viewer gets another answer.
        cpu_hours(&store, &config);
        let bob = Viewer::new(Role::User, Way::Socket, Privacy::Private).with_user("bob");

        let found = question().answer(&bob, store.database(), &config).unwrap();
        assert!(found[0].members.is_empty());
        assert_eq!(config.kept.extent().0, 2);
    }

    fn asked(store: &Store, viewer: &Viewer) -> Asked {
        let now = jiff::Timestamp::now().as_second();
        Asked {
            path: SheetQuestion::PATH,
            question: serde_json::to_string(&question()).unwrap(),
            viewer: viewer.clone(),
            state: RecordState {
                data: store.database().path().to_owned(),
                changes: store.database().record_changes(),
                time: now.div_euclid(SECONDS),
            },
        }
    }

    /// An import reads its source for a while. Answers meanwhile do not wait, and none of them is
    /// kept afterwards.
    #[test]
    fn a_correction_appears_at_the_end_of_its_import() {
        let root = tempdir().unwrap();

        let store = store_in(root.path());
        let config = AnswerConfig::default();
        import(store.database(), None, [run("1", 2)]);
        let (send, receive) = mpsc::channel::<Entry>();
        thread::scope(|scope| {
            let importing = scope.spawn(|| {
                let entries = receive.into_iter().map(Ok::<_, Infallible>);
                let origin = Origin {
                    source: "sacct",
                    name: "test",
                    timezone: None,
                    complete_until: None,
                    shifted: Shifted::Refuse,
                    corrections: Corrections::Accept,
                };
                Records::of(store.database())
                    .import(&origin, entries)
                    .unwrap()
            });
            // The import has read these rows and not ended.
            for hours in 3..40 {
                send.send(Entry::Run(run("1", hours))).unwrap();

                assert_eq!(cpu_hours(&store, &config), 8.0);
            }
            drop(send);
            importing.join().unwrap();
            assert_eq!(cpu_hours(&store, &config), 39.0 * 4.0);
        });
    }

    /// Readers and corrections at the same time: after each correction, a reader sees it.
    #[test]
    fn no_answer_is_older_than_the_last_correction() {
        let root = tempdir().unwrap();
        let store = store_in(root.path());
        let config = AnswerConfig::default();
        import(store.database(), None, [run("1", 1)]);
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    cpu_hours(&store, &config);
                }
            });
            // A kept answer of the reader would have the hours of the correction before.
            for hours in 2..40_u32 {
                import(store.database(), None, [run("1", hours.into())]);
                assert_eq!(cpu_hours(&store, &config), f64::from(hours) * 4.0);
            }
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn the_size_of_kept_answers_is_limited() {
        let kept = KeptAnswers::default();
        let root = tempdir().unwrap();
        let store = store_in(root.path());
        for number in 0..200 {
            let mut asked = asked(&store, &Viewer::server());
            asked.question = number.to_string();
            // One state, or each answer would drop the others.
            asked.state.time = 0;
            // Forty of them fill the room.
            let size = MOST_BYTES / 40;
            let answer = Arc::new(());
            kept.keep(KeptAnswer {
                asked,
                answer,
                size,
            });
        }
        assert_eq!(kept.extent(), (40, MOST_BYTES / 40 * 40));
    }
}
