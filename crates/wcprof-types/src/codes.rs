//! Values that a trace holds as a code: those of this wcprof, and those of a newer one.

/// Gives an enum whose last variant is `Other(u8)` its codes: the places in `ALL`.
macro_rules! codes {
    ($name:ident, $n:literal, [$($known:ident),+]) => {
        impl $name {
            /// Every value that has a meaning here; its place is its code.
            pub const ALL: [Self; $n] = [$(Self::$known),+];

            /// Its code in a trace.
            pub fn code(self) -> u8 {
                match self {
                    Self::Other(code) => code,
                    known => Self::ALL.iter().position(|at| *at == known).unwrap_or_default() as u8,
                }
            }

            /// The value with this code.
            pub fn from_code(code: u8) -> Self {
                let known = Self::ALL.get(usize::from(code));
                known.copied().unwrap_or(Self::Other(code))
            }
        }
    };
}

pub(crate) use codes;

#[cfg(test)]
mod tests {
    use crate::{FdKind, StackEnd, ThreadState};

    /// Check that each code is read back as it was written, and that codes which traces have keep their meaning.
    #[test]
    fn there_and_back() {
        for code in 0..=u8::MAX {
            assert_eq!(ThreadState::from_code(code).code(), code);
            assert_eq!(StackEnd::from_code(code).code(), code);
            assert_eq!(FdKind::from_code(code).code(), code);
        }
        assert_eq!(ThreadState::from_code(3), ThreadState::Blocked);
        assert_eq!(ThreadState::from_code(6), ThreadState::VmExit);
        assert_eq!(ThreadState::from_code(7), ThreadState::Other(7));
        assert_eq!(StackEnd::from_code(9), StackEnd::NotSampled);
        assert_eq!(StackEnd::from_code(10), StackEnd::Lost);
        assert_eq!(FdKind::from_code(4), FdKind::Socket);
        assert_eq!(FdKind::from_code(8), FdKind::Other(8));
    }
}
