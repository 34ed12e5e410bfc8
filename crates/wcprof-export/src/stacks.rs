//! Rows of a profile to the stacks that exports write: the tree's paths, root first, with the view's
//! filters, its pruning and, where it groups, the group's name as the root.
//!
//! Viewers invert themselves: the direction of the view does not matter.

use std::borrow::Cow;
use std::{io, iter};

use indexmap::IndexSet;
use wcprof_profile::model::Profile;
use wcprof_profile::{Direction, Group, GroupBy, Label, Relation, Trees, View};
use wcprof_report::group_name;

/// A frame of an export.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Frame {
    /// Whose stack it is: an index of a group.
    Group(usize),
    /// A frame of the tree.
    Label(Label),
}

/// The stacks of a profile's rows.
pub(crate) struct Stacks<'p> {
    profile: &'p Profile,
    trees: Trees,
    /// By group.
    names: Vec<String>,
    /// By row: its group, and the node that its path ends at; `None` for rows that are not shown.
    ends: Vec<Option<(usize, usize)>>,
    has_groups: bool,
    /// Trees begin with the frame that is innermost.
    is_leaf_first: bool,
}

impl<'p> Stacks<'p> {
    pub(crate) fn new(profile: &'p Profile, view: &View) -> Self {
        let view = View {
            direction: Direction::RootFirst,
            ..view.clone()
        };
        let trees = Trees::new(profile, &view);
        let mut ends = vec![None; profile.rows.len()];
        for (at, group) in trees.groups.iter().enumerate() {
            for &(row, node) in &group.rows {
                ends[row] = Some((at, node));
            }
        }
        let name = |group: &Group| group_name(profile, group).unwrap_or_else(|| "all".to_owned());
        Self {
            profile,
            names: trees.groups.iter().map(name).collect(),
            trees,
            ends,
            has_groups: view.by != GroupBy::All,
            is_leaf_first: view.around.map(|a| a.relation) == Some(Relation::CallersOf),
        }
    }

    /// The groups, heaviest first.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.trees.groups
    }

    /// Whether the view shows a row.
    pub(crate) fn shows(&self, row: usize) -> bool {
        self.ends[row].is_some()
    }

    /// The frames of a row, root first, without its group; `None` when the view does not show it.
    pub(crate) fn labels(&self, row: usize) -> Option<Vec<Label>> {
        let (group, end) = self.ends[row]?;
        let nodes = &self.trees.groups[group].nodes;
        let path = iter::successors(Some(&nodes[end]), |node| Some(&nodes[node.parent?]));
        let mut labels: Vec<Label> = path.map(|node| node.label).collect();
        if !self.is_leaf_first {
            labels.reverse();
        }
        Some(labels)
    }

    /// The frames of a row, root first, after its group if the view groups; `None` when the view does
    /// not show it.
    pub(crate) fn frames(&self, row: usize) -> Option<Vec<Frame>> {
        let (group, _) = self.ends[row]?;
        let group = self.has_groups.then_some(Frame::Group(group));
        let labels = self.labels(row)?.into_iter().map(Frame::Label);
        Some(group.into_iter().chain(labels).collect())
    }

    /// The name of a group.
    pub(crate) fn group(&self, group: usize) -> &str {
        &self.names[group]
    }

    /// A frame's text, from the target: escape it for its destination.
    pub(crate) fn text(&self, frame: Frame) -> Cow<'_, str> {
        match frame {
            Frame::Group(group) => Cow::Borrowed(self.group(group)),
            Frame::Label(label) => label.text(self.profile, self.trees.min_percent),
        }
    }

    /// The module of a frame's function; empty for what is none.
    pub(crate) fn module(&self, frame: Frame) -> &'p str {
        match frame {
            Frame::Label(Label::Function(f)) => &self.profile.functions[f.0 as usize].module,
            _ => "",
        }
    }
}

/// The number of a string in a table of strings, which takes it in if it is new.
pub(crate) fn number(strings: &mut IndexSet<String>, text: &str) -> usize {
    let known = strings.get_index_of(text);
    known.unwrap_or_else(|| strings.insert_full(text.to_owned()).0)
}

/// The error of formats that cannot be empty.
pub(crate) fn nothing_shown() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "nothing to export: no time passes the filters (idle time is hidden unless shown)",
    )
}
