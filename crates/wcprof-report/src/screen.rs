//! What `attach` prints at its end: headline, hotspots, and the busiest pools' inverted trees, cut
//! to what fits a screen.

use std::io::{self, Write};

use wcprof_profile::model::Profile;
use wcprof_profile::{Direction, GroupBy, Trees, View};

use crate::headline::Headline;
use crate::text::{TextOptions, write_group};

/// Fewest rows that the trees get, however small the screen is.
const MIN_TREE_ROWS: usize = 10;
/// Fewest rows worth a pool's tree.
const MIN_POOL_ROWS: usize = 7;

/// Writes the screen: the headline, the hotspots (already as text; may be empty) and the trees, which get
/// what remains of `rows`. The options' limit of nodes does not matter.
pub fn screen(
    profile: &Profile,
    hotspots: &str,
    rows: usize,
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let headline = Headline::new(profile).text();
    out.write_all(headline.as_bytes())?;
    let mut used = headline.lines().count();
    if !hotspots.is_empty() {
        writeln!(out, "\n{}", hotspots.trim_end())?;
        used += 1 + hotspots.trim_end().lines().count();
    }
    let view = View {
        by: GroupBy::Pool,
        direction: Direction::LeafFirst,
        min_percent: 1.0,
        ..View::default()
    };
    let trees = Trees::new(profile, &view);
    let busy: Vec<_> = trees.groups.iter().filter(|g| g.weight > 0).collect();
    if busy.is_empty() {
        return writeln!(out, "\nevery thread was idle all the time");
    }
    let rows = rows.saturating_sub(used + 1).max(MIN_TREE_ROWS);
    let n_pools = busy.len().min((rows / MIN_POOL_ROWS).max(1));
    let options = TextOptions {
        // A blank line and the header come out of the pool's rows.
        max_nodes: Some((rows / n_pools).saturating_sub(2)),
        ..*options
    };
    for group in busy.into_iter().take(n_pools) {
        writeln!(out)?;
        write_group(profile, &trees, group, &options, out)?;
    }
    Ok(())
}
