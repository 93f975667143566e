//! Places of one class of requests: a crowd of one class leaves the places of the others, and one
//! holder leaves some of its class.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time between two log lines about refusals.
pub(crate) const LOG_PAUSE: Duration = Duration::from_secs(60);

/// Number of holders that the log names.
const LOGGED_HOLDERS: usize = 5;

/// Who holds a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PlaceHolder {
    /// A client whose user is unknown, as [`takt_model::client_of`] has its address.
    Address(IpAddr),
    /// A user, wherever the requests come from.
    User(Arc<str>),
    /// A sender of samples, wherever the requests come from.
    Sender(Arc<str>),
    /// A user of this machine whose name is unknown, by number.
    Uid(u32),
}

impl Display for PlaceHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::User(user) => write!(f, "{user:?}"),
            Self::Sender(sender) => write!(f, "sender {sender:?}"),
            Self::Uid(uid) => write!(f, "uid {uid}"),
        }
    }
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// All places of the class are taken.
    #[error("all {total} places of the class {class} are taken; try again in some seconds")]
    Class {
        /// Name of the class.
        class: &'static str,
        /// Its places.
        total: usize,
    },
    /// The holder has as many as one may have.
    #[error(
        "you have {per_holder} open requests of the class {class}, the maximum of one user or address; try again when one is answered"
    )]
    Holder {
        /// Name of the class.
        class: &'static str,
        /// Places of the class that one holder may have.
        per_holder: usize,
    },
}

/// The places of one class.
#[derive(Debug)]
pub struct ClassPlaces {
    /// Name of the class.
    pub class: &'static str,
    /// Number of places.
    pub total: usize,
    /// Places that one holder may have.
    pub per_holder: usize,
    refused: AtomicU64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    by_holder: HashMap<PlaceHolder, usize>,
    logged_at: Option<Instant>,
}

/// A place; given back when this is dropped.
#[derive(Debug)]
pub struct TakenPlace {
    places: Arc<ClassPlaces>,
    holder: PlaceHolder,
}

impl ClassPlaces {
    /// All places of the class are free.
    pub fn new(class: &'static str, total: usize, per_holder: usize) -> Self {
        Self {
            class,
            total,
            per_holder,
            refused: AtomicU64::new(0),
            taken: Mutex::default(),
        }
    }

    /// Number of taken places.
    pub fn taken(&self) -> usize {
        self.lock().count
    }

    /// Number of refusals so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Takes a place.
    ///
    /// # Errors
    /// If the holder has as many as one may, or all are taken. Both are counted, and logged at most
    /// once a minute.
    pub fn take(self: &Arc<Self>, holder: PlaceHolder) -> Result<TakenPlace, NoPlace> {
        let mut taken = self.lock();
        let held = taken.by_holder.get(&holder).copied().unwrap_or(0);

        // The holder's own limit comes first: its message says what this holder can change, even
        // when all places are taken.
        let refusal = if held >= self.per_holder {
            let (class, per_holder) = (self.class, self.per_holder);
            Some(NoPlace::Holder { class, per_holder })
        } else if taken.count >= self.total {
            let (class, total) = (self.class, self.total);
            Some(NoPlace::Class { class, total })
        } else {
            None
        };

        if let Some(refusal) = refusal {
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.log(&mut taken);
            return Err(refusal);
        }

        taken.count += 1;
        taken.by_holder.insert(holder.clone(), held + 1);
        let places = Arc::clone(self);
        Ok(TakenPlace { places, holder })
    }

    fn log(&self, taken: &mut Taken) {
        if taken.logged_at.is_some_and(|at| at.elapsed() < LOG_PAUSE) {
            return;
        }

        taken.logged_at = Some(Instant::now());
        tracing::warn!(
            class = self.class,
            taken = taken.count,
            places = self.total,
            per_holder = self.per_holder,
            held_by = largest_holders(taken.by_holder.iter()),
            "no free place: refused a request; more within a minute are not logged"
        );
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those who hold the most, with their numbers: `10.0.0.1 256, "alice" 3`.
pub(crate) fn largest_holders<'h, H>(counts: impl Iterator<Item = (&'h H, &'h usize)>) -> String
where
    H: Display + 'h,
{
    let mut holders: Vec<_> = counts.collect();
    holders.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let named = holders.into_iter().take(LOGGED_HOLDERS);
    let named = named.map(|(holder, count)| format!("{holder} {count}"));
    named.collect::<Vec<_>>().join(", ")
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.count -= 1;
        if let Some(held) = taken.by_holder.get_mut(&self.holder) {
            *held -= 1;
            // Holders are addresses and names without a bound; their entries must not pile up.
            if *held == 0 {
                taken.by_holder.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn address(last: u8) -> PlaceHolder {
        PlaceHolder::Address(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn one_holder_cannot_have_all_places() {
        let places = Arc::new(ClassPlaces::new("test", 8, 6));
        let mut taken: Vec<_> = (0..6).map(|_| places.take(address(1)).unwrap()).collect();
        let refused = places.take(address(1)).unwrap_err();
        assert!(matches!(refused, NoPlace::Holder { per_holder: 6, .. }));

        // The two places beyond the limit of one holder are what it leaves to others.
        let user = || PlaceHolder::User("alice".into());
        let others = [places.take(user()).unwrap(), places.take(user()).unwrap()];
        let refused = places.take(user()).unwrap_err();
        assert!(matches!(refused, NoPlace::Class { total: 8, .. }));
        assert_eq!((places.taken(), places.refused()), (8, 2));
        assert_eq!(
            largest_holders(places.lock().by_holder.iter()),
            "10.0.0.1 6, \"alice\" 2"
        );

        // A place that is given back is free for the same holder, and no entry of a holder stays
        // behind.
        taken.pop();
        drop(places.take(address(1)).unwrap());
        drop((taken, others));
        assert_eq!(places.taken(), 0);
        assert!(places.lock().by_holder.is_empty());
    }

    #[test]
    fn holders_of_different_kinds_have_different_names() {
        // A user can choose a name that looks like an address, a uid or a sender; the log must not
        // confuse them.
        let all = [
            PlaceHolder::User("1000".into()),
            PlaceHolder::User("uid 1000".into()),
            PlaceHolder::Sender("1000".into()),
            PlaceHolder::Uid(1000),
            PlaceHolder::User("10.0.0.1".into()),
            address(1),
        ];
        let names: HashSet<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), all.len());
    }
}
