//! A block of Markdown for a tracker: what the first screen says, as tables, and the call trees folded away.
//!
//! Names come from the target. In tables and prose they are code spans, where no tracker finds a link, a mention
//! (`@name`) or an issue (`#1`); a backtick becomes `'`.

use std::io::{self, Write};

use wcprof_profile::model::Profile;
use wcprof_profile::{GroupBy, GroupKey, View};
use wcprof_text::{and_more, one_line};

use crate::figures::{
    COLUMNS, amount, amount_of, at_a_time, at_a_time_text, busiest_pools, callers, kinds_of_work,
    wait_sites,
};
use crate::headline::Headline;
use crate::overview::Answers;
use crate::text::{TextOptions, TextTrees, text};

/// Rows of each table.
const MAX_ROWS: usize = 6;
/// Pools with call trees.
const MAX_TREES: usize = 2;
/// Nodes of each of a pool's two trees.
const MAX_NODES: usize = 9;
/// Columns of the call trees.
const WIDTH: usize = 140;

/// Writes the block. It has less than 100 lines.
pub fn markdown(profile: &Profile, answers: &Answers, out: &mut impl Write) -> io::Result<()> {
    head(profile, out)?;
    pool_table(profile, out)?;
    to_do(answers, out)?;
    cpu_table(profile, answers, out)?;
    wait_table(profile, out)?;
    call_trees(profile, out)
}

fn head(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let headline = Headline::new(profile);
    let shown = headline.processes.iter().take(3).map(|name| code(name));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = and_more(headline.processes.len().saturating_sub(3));
    writeln!(out, "## wcprof: {shown}{more}\n")?;
    for line in headline.recorded().lines() {
        writeln!(out, "{}  ", prose(line))?;
    }
    writeln!(out, "{}", prose(&headline.quality()))?;
    for warning in headline.warnings() {
        writeln!(out, "\n> {}", prose(&warning))?;
    }
    Ok(())
}

fn pool_table(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let columns = COLUMNS.map(|(name, _)| name).join(" | ");
    writeln!(out, "\n| threads, on average | threads | {columns} |")?;
    writeln!(out, "|---|--:|{}", "--:|".repeat(COLUMNS.len()))?;
    let (pools, n_others, others_at_a_time) = busiest_pools(profile, MAX_ROWS);
    for pool in pools {
        let times = COLUMNS.map(|(_, of)| at_a_time_text(profile, pool.total(of)));
        let (name, times) = (cell(pool.name), times.join(" | "));
        writeln!(out, "| {name} | {} | {times} |", pool.n_threads)?;
    }
    if n_others > 0 {
        writeln!(out, "\n{n_others} others: {others_at_a_time:.2} in all")?;
    }
    Ok(())
}

fn to_do(answers: &Answers, out: &mut impl Write) -> io::Result<()> {
    if answers.to_do.items.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n### What to do\n")?;
    if let Some(cpu_wait) = answers.cpu_wait_text("->") {
        writeln!(out, "{}\n", prose(&cpu_wait))?;
    }
    let headings = answers.to_do_headings();
    let items = answers.to_do.items.iter().zip(headings);
    for ((item, heading), number) in items.take(MAX_ROWS).zip(1..) {
        if let Some(heading) = heading {
            let before = if number == 1 { "" } else { "\n" };
            writeln!(out, "{before}{heading}:\n")?;
        }
        let gain = item.gain.text();
        let (why, action) = (prose(&item.why), prose(&item.action));
        writeln!(out, "{number}. **{gain}** {why} -> {action}")?;
    }
    let n_more = answers.to_do.items.len().saturating_sub(MAX_ROWS);
    if n_more > 0 {
        writeln!(out, "\n{n_more} more: `wcprof doctor TRACE`")?;
    }
    Ok(())
}

fn cpu_table(profile: &Profile, answers: &Answers, out: &mut impl Write) -> io::Result<()> {
    let kinds = kinds_of_work(&answers.categories, MAX_ROWS);
    if kinds.is_empty() {
        return Ok(());
    }
    let on_cpu = answers.categories.iter().map(|c| c.weight);
    let cores = at_a_time(profile, on_cpu.fold(0, u64::saturating_add));
    writeln!(out, "\n### Where CPU goes\n")?;
    writeln!(
        out,
        "| of {cores:.2} cores | work | functions |\n|--:|---|---|"
    )?;
    for kind in kinds {
        let (share, name) = (kind.percent, prose(kind.name));
        let functions = cell(&callers(profile, kind.category));
        writeln!(out, "| {share:.1} % | {name} | {functions} |")?;
    }
    Ok(())
}

fn wait_table(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let sites = wait_sites(profile);
    if sites.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n### Where threads wait\n")?;
    let unit = amount_of(profile);
    writeln!(
        out,
        "| {unit} | state | place | holder |\n|--:|---|---|---|"
    )?;
    for site in sites.iter().take(MAX_ROWS) {
        let (time, state) = (amount(profile, site.weight), site.state_text());
        let holder = site.holder.as_deref().map(cell).unwrap_or_default();
        let place = cell(&site.place);
        writeln!(out, "| {time} | {state} | {place} | {holder} |")?;
    }
    Ok(())
}

/// The trees of the busiest pools, in a fence that nothing in them ends.
fn call_trees(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let view = View {
        by: GroupBy::Pool,
        min_percent: 0.5,
        ..View::default()
    };
    let (pools, ..) = busiest_pools(profile, MAX_TREES);
    let is_shown = |name: &str| pools.iter().any(|pool| pool.name == name);
    let mut trees = TextTrees::new(profile, &view);
    trees.retain(|group| matches!(&group.key, GroupKey::Pool(name) if is_shown(name)));
    let options = TextOptions {
        width: Some(WIDTH),
        max_nodes: Some(MAX_NODES),
        only_shown: true,
        ..TextOptions::default()
    };
    let mut tree = Vec::new();
    text(profile, &trees, &options, &mut tree)?;
    let tree = String::from_utf8_lossy(&tree);
    let runs = tree.split(|c| c != '`').map(str::len);
    let fence = "`".repeat(runs.max().unwrap_or(0).max(2) + 1);
    writeln!(
        out,
        "\n<details><summary>Call trees of the busiest pools</summary>\n"
    )?;
    writeln!(
        out,
        "{fence}text\n{}\n{fence}\n\n</details>",
        tree.trim_end()
    )
}

/// A name as a code span.
fn code(name: &str) -> String {
    format!("`{}`", one_line(name).replace('`', "'"))
}

/// A name as a cell of a table; nothing for an empty one.
fn cell(name: &str) -> String {
    match name {
        "" => String::new(),
        name => code(name).replace('|', "\\|"),
    }
}

/// Text with names in it, in one line or cell: a word with any character that is no plain punctuation becomes a
/// code span.
fn prose(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || ".,:;()%+-/'\"±=?".contains(c);
    let words = one_line(text);
    let words = words.split_whitespace().map(|word| {
        let bare = word.trim_end_matches(['.', ',', ':', ';']);
        let bare = bare.strip_suffix("'s").unwrap_or(bare);
        match bare.chars().all(is_plain) && !bare.contains("://") && !bare.contains("www.") {
            true => word.to_owned(),
            false => cell(bare) + &word[bare.len()..],
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that nothing in a name is Markdown, a link, a mention or an issue.
    #[test]
    fn escaped() {
        assert_eq!(code("a`b\n@c"), "`a'b @c`");
        assert_eq!(cell("operator||"), "`operator\\|\\|`");
        assert_eq!(
            prose("set osd_op_x, as @joe (#12) said: 3.5 % (1 to 2)"),
            "set `osd_op_x`, as `@joe` `(#12)` said: 3.5 % (1 to 2)"
        );
        assert_eq!(
            prose("see https://x.y/z <b>|"),
            "see `https://x.y/z` `<b>\\|`"
        );
        assert_eq!(prose("of (www.x.y) osd"), "of `(www.x.y)` osd");
    }
}
