//! The memory that a thread waits on in `futex`: words which, for some kinds of lock, name the
//! thread that holds it.
//!
//! Which kind it is the stack of the waiting thread tells, and that is known only later; so all
//! words that can name a thread are kept. The layouts are glibc's for x86-64, the same from 2.4
//! (mutexes) and 2.26 (rwlocks) to 2.42: `sysdeps/x86/nptl/bits/struct_mutex.h` (`__lock` at 0,
//! `__count` 4, `__owner` 8, `__nusers` 12, `__kind` 16) and `struct_rwlock.h` (`__readers` at 0,
//! `__wrphase_futex` 8, `__writers_futex` 12, `__cur_writer` 24).

/// 32-bit words kept, from the word that is waited on upward.
pub const N_WORDS: usize = 7;

/// Bytes of [`FutexWords`] in memory.
pub const WORD_BYTES: usize = N_WORDS * 4;

/// Where a thread that is tid 1 in its namespace could be meant by a word that counts to 1, the
/// kind of lock decides; the words that it may look at are these.
pub const OWNER_WORDS: [usize; 5] = [0, 2, 3, 4, 6];

/// `FUTEX_TID_MASK` (`include/uapi/linux/futex.h`).
const TID_MASK: u32 = 0x3fff_ffff;
/// `FUTEX_OWNER_DIED`.
const OWNER_DIED: u32 = 0x4000_0000;

/// `FUTEX_CMD_MASK`: without the private and the clock flag.
const COMMAND_MASK: u32 = !(128 | 256);
/// `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET`, `FUTEX_LOCK_PI2`.
const WAITS: [u32; 4] = [0, 6, 9, 13];
/// `FUTEX_LOCK_PI`, `FUTEX_LOCK_PI2`.
const PI_LOCKS: [u32; 2] = [6, 13];

/// Whether a futex operation waits at its first argument.
pub fn is_wait(op: u32) -> bool {
    WAITS.contains(&(op & COMMAND_MASK))
}

/// Whether a futex operation takes a lock whose word names its owner.
pub fn is_pi_lock(op: u32) -> bool {
    PI_LOCKS.contains(&(op & COMMAND_MASK))
}

/// Whether a futex operation that expects `value` may wait for a lock: a wait for the value 0 is glibc's condition variable or
/// semaphore, not a mutex (which waits while its word is 2) or a rwlock (a flag is set).
pub fn can_be_lock(op: u32, value: u32) -> bool {
    is_wait(op) && (is_pi_lock(op) || value != 0)
}

/// Words from the one that is waited on upward.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FutexWords(pub [u32; N_WORDS]);

impl FutexWords {
    /// From memory, in the byte order of x86-64; what is missing at the end is 0. `None` without
    /// the first word.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < 4 {
            return None;
        }
        let mut words = [0; N_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        Some(Self(words))
    }

    /// The tid, of the target's own pid namespace, that word `at` names if it is an owner; 0 for
    /// none. The first word can have flags beside the tid.
    pub fn tid(&self, at: usize) -> i32 {
        let word = self.0.get(at).copied().unwrap_or(0);
        match at {
            0 => (word & TID_MASK).cast_signed(),
            _ => i32::try_from(word).unwrap_or(0),
        }
    }

    /// The words without those that change while a thread holds a lock (how often it took it,
    /// how long others spun).
    pub fn lasting(&self) -> [u32; 5] {
        OWNER_WORDS.map(|at| self.0.get(at).copied().unwrap_or(0))
    }

    /// Of a robust or priority-inheriting mutex: its owner died.
    pub fn owner_died(&self) -> bool {
        self.0[0] & OWNER_DIED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check words out of bytes, with some or all missing.
    #[test]
    fn words() {
        let mut bytes = Vec::new();
        for word in [2_u32, 1, 4321, 1, 0x21, 0, 7] {
            bytes.extend(word.to_le_bytes());
        }
        let words = FutexWords::from_bytes(&bytes).unwrap();
        assert_eq!(words.0, [2, 1, 4321, 1, 0x21, 0, 7]);
        assert_eq!((words.tid(2), words.tid(9)), (4321, 0));
        let cut = FutexWords::from_bytes(&bytes[..13]).unwrap();
        assert_eq!(cut.0, [2, 1, 4321, 0, 0, 0, 0]);
        assert_eq!(FutexWords::from_bytes(&bytes[..3]), None);
    }

    /// Check that the flags of a priority-inheriting lock are not taken for a part of the tid,
    /// and that no word is a negative tid.
    #[test]
    fn flags() {
        let words = FutexWords([0xc000_0539, 0, u32::MAX, 0, 0, 0, 0]);
        assert_eq!((words.tid(0), words.tid(2)), (1337, 0));
        assert!(words.owner_died());
    }

    /// Check operations with the private and the clock flag.
    #[test]
    fn operations() {
        assert!(is_wait(128) && is_wait(393) && is_wait(141) && !is_wait(129));
        assert!(is_pi_lock(134) && !is_pi_lock(128));
    }
}
