//! The header of a table of Go's functions: which layout it has, and where its parts are.

/// Most functions of a program; kubelet has some 100 000.
const MAX_FUNCTIONS: usize = 4 << 20;
/// Bytes of a header, of the longest layout.
pub(super) const HEADER: usize = 8 + 8 * 8;

/// The layouts, by the first Go version that writes them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// Go 1.16 and 1.17: functions have addresses.
    V16,
    /// Go 1.18 and 1.19: functions have offsets from the start of Go's code.
    V18,
    /// Go 1.20 and later: a function has its first line, too.
    V20,
}

impl Layout {
    /// That of a table whose header begins with these bytes: magic number, two zeros, the size of the smallest
    /// instruction, that of a pointer.
    pub(super) fn of(header: &[u8]) -> Option<Self> {
        match header.first_chunk::<8>()? {
            [0xfa, 0xff, 0xff, 0xff, 0, 0, 1, 8] => Some(Self::V16),
            [0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8] => Some(Self::V18),
            [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8] => Some(Self::V20),
            _ => None,
        }
    }

    /// Bytes of an entry of the list of functions: its start and where its description is.
    pub(super) fn entry_size(self) -> usize {
        match self {
            Self::V16 => 16,
            Self::V18 | Self::V20 => 8,
        }
    }

    /// Words of the header behind its first: the offsets of names, of tables by address, and of the list of functions.
    fn offsets(self) -> [usize; 3] {
        match self {
            Self::V16 => [2, 5, 6],
            Self::V18 | Self::V20 => [3, 6, 7],
        }
    }

    /// Offsets in a function's description (`runtime._func`): name, frame sizes, flags.
    pub(super) fn fields(self) -> [usize; 3] {
        match self {
            Self::V16 => [8, 20, 41],
            Self::V18 => [4, 16, 37],
            Self::V20 => [4, 16, 41],
        }
    }
}

/// Where the parts of a table are, from its start.
#[derive(Copy, Clone, Debug)]
pub(super) struct Header {
    pub(super) layout: Layout,
    pub(super) n_functions: usize,
    pub(super) names: usize,
    pub(super) by_address: usize,
    pub(super) functions: usize,
}

impl Header {
    /// Reads the header, and checks that its parts follow each other within `size` bytes, as all linkers write them.
    pub(super) fn parse(bytes: &[u8], size: u64) -> Option<Self> {
        let layout = Layout::of(bytes)?;
        let word = |i: usize| usize::try_from(u64_at(bytes, 8 + 8 * i)?).ok();
        let n_functions = word(0).filter(|n| *n > 0 && *n <= MAX_FUNCTIONS)?;
        let [names, by_address, functions] = layout.offsets();
        let header = Self {
            layout,
            n_functions,
            names: word(names)?,
            by_address: word(by_address)?,
            functions: word(functions)?,
        };
        // The address of the end follows the last entry.
        let list = n_functions.checked_mul(layout.entry_size())?;
        let end = header.functions.checked_add(list)?.checked_add(4)?;
        let in_order = HEADER - 8 <= header.names
            && header.names <= header.by_address
            && header.by_address <= header.functions;
        (in_order && end as u64 <= size).then_some(header)
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
