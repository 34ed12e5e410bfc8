//! What `attach` prints at its end: headline, hotspots, and the busiest pools' inverted trees, cut
//! to what fits a screen.

use std::io::{self, Write};

use wcprof_profile::model::Profile;
use wcprof_profile::{Direction, GroupBy, ThreadFilter, Trees, View};

use crate::headline::Headline;
use crate::text::{TextOptions, write_group};

/// The screen, and what others have to say on it.
#[derive(Clone, Debug)]
pub struct Screen<'a> {
    /// Rows; the headline and the hotspots are printed whole, the trees get what remains.
    pub rows: usize,
    /// Columns; `None` does not cut lines.
    pub width: Option<usize>,
    /// Use ANSI colors.
    pub color: bool,
    /// The hotspots, already as text; may be empty.
    pub hotspots: &'a str,
    /// Which threads the trees show.
    pub threads: ThreadFilter,
}

/// Fewest rows that the trees get, however small the screen is.
const MIN_TREE_ROWS: usize = 10;
/// Fewest rows worth a pool's tree.
const MIN_POOL_ROWS: usize = 7;

/// Writes the screen.
pub fn screen(profile: &Profile, screen: &Screen<'_>, out: &mut impl Write) -> io::Result<()> {
    let headline = Headline::new(profile).text();
    out.write_all(headline.as_bytes())?;
    let mut used = headline.lines().count();
    if !screen.hotspots.is_empty() {
        writeln!(out, "\n{}", screen.hotspots.trim_end())?;
        used += 1 + screen.hotspots.trim_end().lines().count();
    }
    let trees = Trees::new(
        profile,
        &View {
            by: GroupBy::Pool,
            direction: Direction::LeafFirst,
            min_percent: 1.0,
            threads: screen.threads.clone(),
            ..View::default()
        },
    );
    let busy: Vec<_> = trees.groups.iter().filter(|g| g.weight > 0).collect();
    if busy.is_empty() {
        return writeln!(out, "\nevery thread was idle all the time");
    }
    let rows = screen.rows.saturating_sub(used + 1).max(MIN_TREE_ROWS);
    let n_pools = busy.len().min((rows / MIN_POOL_ROWS).max(1));
    for group in busy.into_iter().take(n_pools) {
        writeln!(out)?;
        let options = TextOptions {
            width: screen.width,
            color: screen.color,
            // A blank line and the header come out of the pool's rows.
            max_nodes: Some((rows / n_pools).saturating_sub(2)),
            only_shown: false,
        };
        write_group(profile, &trees, group, &options, out)?;
    }
    Ok(())
}
