//! The color of each state: on a terminal, and in graphs, where it is the same as in the HTML page.

use wcprof_profile::model::State;

/// The ANSI color.
pub(crate) fn ansi(state: State) -> u8 {
    match state {
        State::OnCpu | State::Guest | State::VmExit => 32,
        State::Runnable => 33,
        State::Lock => 31,
        State::Disk => 35,
        State::Net => 34,
        State::Idle | State::PlaceUnknown => 90,
        _ => 36,
    }
}

/// Red, green and blue under text, in the order of [`State::ALL`].
pub(crate) const TINTS: [u32; State::ALL.len()] = [
    0xf9c9ae, 0xecdca8, 0xfbe7a4, 0xdcc4f0, 0xbcd6f5, 0xb0e0da, 0xd3dce6, 0xeceff3, 0xe0d3ce,
    0xf4bdd2, 0xdddddd, 0xe6dcd8, 0xe6eaee, 0xc9cfd6, 0xf3d3b0,
];
/// Under the names of groups.
pub(crate) const GROUP: u32 = 0xd9dde3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that graphs and the page have the same colors.
    #[test]
    fn of_page() {
        let css = include_str!("html/assets/style.css");
        for (at, rgb) in TINTS.iter().enumerate() {
            assert!(css.contains(&format!("--s{at}-t: #{rgb:06x};")), "{at}");
        }
    }
}
