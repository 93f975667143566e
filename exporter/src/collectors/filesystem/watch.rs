//! Asking mounts that may not answer: a thread for each, and never a second one.

use super::{MountSpace, StatFs};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long one reading waits for all answers together.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);

/// How old the last answer of a mount may be that has not answered again.
const SLOW: Duration = Duration::from_secs(2);

const STACK_BYTES: usize = 64 << 10;

/// Answer of a mount.
#[derive(Debug, Clone)]
pub(super) enum MountAnswer {
    Space(MountSpace),
    /// It cannot be read, or does not answer; why, in node_exporter's words.
    Error(Cow<'static, str>),
}

impl From<io::Result<MountSpace>> for MountAnswer {
    fn from(result: io::Result<MountSpace>) -> Self {
        result.map_or_else(|error| Self::Error(why(&error).into()), Self::Space)
    }
}

/// The system's word for the error as Go writes it: without its number, and in small letters.
fn why(error: &io::Error) -> String {
    let text = error.to_string();
    let word = text.split(" (os error").next();
    word.unwrap_or_default().to_lowercase()
}

/// node_exporter's word for a mount that does not answer.
const NO_ANSWER: MountAnswer = MountAnswer::Error(Cow::Borrowed("mountpoint timeout"));

/// Device, mount point and type.
type Labels = [String; 3];

/// The mounts that are asked by threads.
pub(super) struct Watches {
    statfs: StatFs,
    watches: HashMap<Labels, Watch>,
    answers: Receiver<(Labels, MountAnswer)>,
    /// Each thread gets its own.
    answering: Sender<(Labels, MountAnswer)>,
}

struct Watch {
    /// Ends the thread when dropped. `None` where the system gave no thread.
    question: Option<Sender<()>>,
    /// Since when it owes an answer.
    asked: Option<Instant>,
    last: Option<(MountAnswer, Instant)>,
}

impl Watches {
    pub fn new(statfs: StatFs) -> Self {
        let (answering, answers) = channel();
        Self {
            statfs,
            watches: HashMap::new(),
            answers,
            answering,
        }
    }

    /// Asks all these mounts, but those that still owe an answer, and waits a little. Forgets all
    /// others.
    pub fn ask<'a>(&mut self, mounts: impl Iterator<Item = ([&'a str; 3], PathBuf)>) {
        let mut before = std::mem::take(&mut self.watches);

        let until = Instant::now() + PATIENCE;
        let mut owed = 0;
        for (labels, path) in mounts {
            let labels = labels.map(str::to_owned);
            let mut watch = match before.remove(&labels) {
                Some(watch) => watch,
                None => self.watch(labels.clone(), path),
            };
            if watch.asked.is_none() && watch.ask() {
                watch.asked = Some(Instant::now());
                owed += 1;
            }
            self.watches.insert(labels, watch);
        }

        // Mounts that did not answer before may answer too, but are not waited for.
        while let Ok((labels, answer)) = self.answers.try_recv() {
            owed -= usize::from(self.note(labels, answer, until));
        }

        while owed > 0 {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((labels, answer)) = self.answers.recv_timeout(left) else {
                break;
            };
            owed -= usize::from(self.note(labels, answer, until));
        }
    }

    pub fn answer(&self, labels: [&str; 3]) -> MountAnswer {
        let watch = self.watches.get(&labels.map(str::to_owned));
        match watch.and_then(|watch| Some((watch, watch.last.as_ref()?))) {
            Some((watch, (answer, at))) if watch.asked.is_none() || at.elapsed() < SLOW => {
                answer.clone()
            }
            _ => NO_ANSWER,
        }
    }

    /// Returns whether the answer is to a question of this reading.
    fn note(&mut self, labels: Labels, answer: MountAnswer, until: Instant) -> bool {
        let Some(watch) = self.watches.get_mut(&labels) else {
            return false;
        };
        watch.last = Some((answer, Instant::now()));

        let asked = watch.asked.take();
        asked.is_some_and(|asked| asked + PATIENCE >= until)
    }

    fn watch(&self, labels: Labels, path: PathBuf) -> Watch {
        let (question, questions) = channel();
        let statfs = self.statfs;
        let answers = self.answering.clone();

        let thread = std::thread::Builder::new()
            .name("statfs".to_owned())
            .stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            for () in questions {
                let answer = MountAnswer::from(statfs(&path));
                if answers.send((labels.clone(), answer)).is_err() {
                    return;
                }
            }
        });

        Watch {
            question: started.is_ok().then_some(question),
            asked: None,
            last: None,
        }
    }
}

impl Watch {
    /// Returns whether there is a thread to ask.
    fn ask(&self) -> bool {
        let question = self.question.as_ref();
        question.is_some_and(|question| question.send(()).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_equal_node_exporters() {
        assert_eq!(why(&rustix::io::Errno::ACCESS.into()), "permission denied");
        assert_eq!(
            why(&io::ErrorKind::PermissionDenied.into()),
            "permission denied"
        );
    }
}
