//! Memory of a request while it is read: asked for before it is taken, so that two bytes of a
//! message cannot become a hundred in memory.

/// Smallest amount that is asked for at once, in bytes: most requests ask once or twice.
const STEP_BYTES: usize = 256 << 10;

/// The receiver does not grant the memory that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request needs more memory than it may take")]
pub struct MemoryDenied;

/// Memory that a request may take.
pub struct MemoryGrant<'a> {
    /// Granted bytes that are not in use.
    left: usize,
    /// Asks for so many more bytes.
    ask: Option<&'a mut dyn FnMut(usize) -> bool>,
}

impl<'a> MemoryGrant<'a> {
    /// Returns a grant that grows when `ask`, called with a number of bytes, agrees.
    pub fn new(ask: &'a mut dyn FnMut(usize) -> bool) -> Self {
        Self {
            left: 0,
            ask: Some(ask),
        }
    }

    /// Returns a grant of so many bytes.
    pub fn of_bytes(bytes: usize) -> Self {
        Self {
            left: bytes,
            ask: None,
        }
    }

    /// Takes some bytes of the grant.
    ///
    /// # Errors
    /// If more is not granted.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), MemoryDenied> {
        if bytes > self.left {
            // In large steps: `ask` may block, and takes a lock that all requests share.
            let more = (bytes - self.left).max(STEP_BYTES);
            let ask = self.ask.as_mut().ok_or(MemoryDenied)?;
            if !ask(more) {
                return Err(MemoryDenied);
            }
            self.left += more;
        }
        self.left -= bytes;
        Ok(())
    }

    /// Appends an item. The list grows only by granted memory.
    #[inline]
    pub(crate) fn push<T>(&mut self, list: &mut Vec<T>, item: T) -> Result<(), MemoryDenied> {
        self.reserve(list, 1)?;
        list.push(item);
        Ok(())
    }

    /// Makes room for more items.
    #[inline]
    pub(crate) fn reserve<T>(
        &mut self,
        list: &mut Vec<T>,
        more: usize,
    ) -> Result<(), MemoryDenied> {
        // The usual case, kept small so that it is inlined; growing is not.
        if list.capacity() - list.len() >= more {
            Ok(())
        } else {
            self.grow(list, more)
        }
    }

    #[cold]
    fn grow<T>(&mut self, list: &mut Vec<T>, more: usize) -> Result<(), MemoryDenied> {
        /// A list doubles, as those of the standard library do.
        const LEAST: usize = 16;
        let wanted = list.len().saturating_add(more);
        let capacity = wanted.max(list.capacity() * 2).max(LEAST);
        let added = capacity - list.capacity();
        self.take(added.saturating_mul(size_of::<T>()))?;
        list.reserve_exact(capacity - list.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_grows_by_granted_memory_only() {
        let mut asked = Vec::new();
        let mut ask = |bytes| {
            asked.push(bytes);
            asked.len() <= 2
        };
        let mut grant = MemoryGrant::new(&mut ask);
        let mut list = Vec::new();
        let all = (0..1 << 20).try_for_each(|number: u64| grant.push(&mut list, number));
        assert_eq!(all, Err(MemoryDenied));
        // 32,768 numbers take the first step; the double takes as much again.
        assert_eq!(list.len(), 65_536);
        assert_eq!(asked[..2], [STEP_BYTES; 2]);

        let mut grant = MemoryGrant::of_bytes(100);
        assert_eq!(grant.take(60), Ok(()));
        assert_eq!(grant.take(60), Err(MemoryDenied));
        assert_eq!(grant.take(40), Ok(()));
    }
}
