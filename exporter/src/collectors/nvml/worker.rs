//! A thread that makes calls which may not come back.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

/// NVML's calls are not known to need more.
const STACK_BYTES: usize = 256 << 10;

type Question<A> = Box<dyn FnOnce() -> A + Send>;

/// A thread that answers one question after the other. While an answer is due, it takes no other
/// question. It ends when this is dropped, or, if it does not come back, never.
pub(super) struct CallWorker<A> {
    questions: Sender<Question<A>>,
    answers: Receiver<A>,
    owes: bool,
}

impl<A: Send + 'static> CallWorker<A> {
    pub fn start(name: &str) -> io::Result<Self> {
        let (questions, to_answer) = channel::<Question<A>>();
        let (answering, answers) = channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .stack_size(STACK_BYTES);
        thread.spawn(move || {
            for question in to_answer {
                if answering.send(question()).is_err() {
                    return;
                }
            }
        })?;

        Ok(Self {
            questions,
            answers,
            owes: false,
        })
    }

    /// Asks, unless it still owes an answer to the question before: then false. An answer that came
    /// too late is dropped.
    pub fn ask(&mut self, question: impl FnOnce() -> A + Send + 'static) -> bool {
        if self.owes && self.answers.try_recv().is_err() {
            return false;
        }

        self.owes = self.questions.send(Box::new(question)).is_ok();
        self.owes
    }

    /// An answer that came too late.
    pub fn late_answer(&mut self) -> Option<A> {
        let answer = self.answers.try_recv().ok().filter(|_| self.owes);
        self.owes &= answer.is_none();
        answer
    }

    /// The answer, if it comes in time.
    pub fn answer(&mut self, until: Instant) -> Option<A> {
        let left = until.saturating_duration_since(Instant::now());
        match self.answers.recv_timeout(left) {
            Ok(answer) => {
                self.owes = false;
                Some(answer)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn one_request_at_a_time_and_none_while_it_hangs() {
        let mut worker = CallWorker::start("test").unwrap();
        let soon = || Instant::now() + Duration::from_secs(20);
        assert!(worker.ask(|| 1));
        assert_eq!(worker.answer(soon()), Some(1));

        let (free, hangs) = channel::<()>();
        assert!(worker.ask(move || hangs.recv().map_or(2, |()| 2)));
        assert_eq!(worker.answer(Instant::now()), None);
        assert!(!worker.ask(|| 3), "it owes an answer");
        assert_eq!(worker.late_answer(), None);
        drop(free);
        // The late answer is dropped, and it can be asked again; or it is taken.
        while !worker.ask(|| 4) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let late = loop {
            match worker.late_answer() {
                Some(answer) => break answer,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        assert_eq!((late, worker.late_answer()), (4, None));
        assert!(worker.ask(|| 5));
        assert_eq!(worker.answer(soon()), Some(5));
    }
}
