//! Lines to standard error, in place of `eprintln!`, which panics where nothing can be written: its reader
//! has gone, or the disk is full. A recording must not end with the terminal that it was started from.

/// Writes a line to standard error, if that can be written to.
macro_rules! tell {
    ($($argument:tt)*) => {{
        use ::std::io::Write as _;
        // There is nobody to be told of it.
        let _ = ::std::writeln!(::std::io::stderr().lock(), $($argument)*);
    }};
}
