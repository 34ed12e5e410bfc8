//! Lines of text files that others wrote, however long they are.

use std::io::{self, BufRead, Read};

/// Bytes of one line; longer ones are passed over.
const MAX_LINE: usize = 4096;

/// Reads a line without its end, at most [`MAX_LINE`] bytes of it; false at the end.
pub(crate) fn read_line(list: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let n = list
        .by_ref()
        .take(MAX_LINE as u64)
        .read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if n == MAX_LINE {
        list.skip_until(b'\n')?;
        line.clear();
    }
    Ok(n > 0)
}
