//! Work on several threads. Series do not depend on each other.

use std::mem;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::thread::{available_parallelism, scope};

/// Fewest samples and points worth a thread: some hundred microseconds of work.
const WORTH_A_THREAD: usize = 100_000;

/// Cuts `items` into parts of about the same length, processes them in parallel, and returns the results in order.
/// `work` is the number of samples and points to process.
pub(crate) fn in_parts<T, R, E>(
    mut items: Vec<T>,
    work: usize,
    body: impl Fn(Vec<T>) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E>
where
    T: Send,
    R: Send,
    E: Send,
{
    let threads = processors().min(work / WORTH_A_THREAD + 1);
    let each = items.len().div_ceil(threads).max(1);

    let mut parts = Vec::new();
    while items.len() > each {
        let rest = items.split_off(each);
        parts.push(mem::replace(&mut items, rest));
    }

    // Most queries are small: a thread would cost more than their work.
    if parts.is_empty() {
        return body(items).map(|result| vec![result]);
    }
    scope(|scope| {
        let body = &body;
        let running: Vec<_> = parts
            .into_iter()
            .map(|part| scope.spawn(move || body(part)))
            .collect();

        // The caller's thread takes the last part instead of waiting idly.
        let last = body(items);
        let mut results = running
            .into_iter()
            // A panic of a part has to look like one of the caller.
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect::<Result<Vec<_>, E>>()?;
        results.push(last?);
        Ok(results)
    })
}

/// The processors that this process may use. The system is asked once: it reads a dozen files of the
/// cgroup for each answer, longer than most selections take.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| available_parallelism().map_or(1, NonZero::get))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order() {
        // Nothing, fewer items than threads, one thread, and all threads.
        for (count, work) in [(0, 0), (1, usize::MAX), (7, 0), (1000, usize::MAX)] {
            let parts = in_parts((0..count).collect(), work, Ok::<Vec<i32>, ()>).unwrap();
            assert_eq!(parts.concat(), (0..count).collect::<Vec<_>>());
        }
        assert_eq!(
            in_parts(vec![1, 2, 3], usize::MAX, |_| Err::<(), _>("no")),
            Err("no")
        );
    }
}
