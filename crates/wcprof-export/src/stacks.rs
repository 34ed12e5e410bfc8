//! Rows of a profile to the stacks that exports write: the tree's paths, root first, with the view's
//! filters, its pruning and, where it groups, the group's name as the root.
//!
//! Viewers invert themselves: the direction of the view does not matter. All texts of the target that
//! exports write come from here, with `?` for control, bidirectional and invisible characters.

use std::borrow::Cow;
use std::{io, iter};

use wcprof_profile::model::{
    Function, Profile, ProfileModule, ProfileProcess, ProfileThread, Source,
};
use wcprof_profile::{Direction, Group, GroupBy, Label, Relation, Trees, View};
use wcprof_report::group_name;
use wcprof_text::terminal_name;

/// A frame of an export.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Frame {
    /// Whose stack it is: an index of a group.
    Group(usize),
    /// A frame of the tree.
    Label(Label),
    /// What stands for other stacks.
    Stand(&'static str),
}

/// The module of a function.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Image<'p> {
    name: &'p str,
    /// Index into [`Profile::modules`].
    at: Option<usize>,
}

/// Texts of a module.
#[derive(Debug)]
pub(crate) struct ImageText<'p> {
    /// Its file name, `[kernel]` for the kernel.
    pub(crate) name: Cow<'p, str>,
    /// Its path; the name if that is all.
    pub(crate) path: Cow<'p, str>,
    /// In hexadecimal; empty when not known.
    pub(crate) build_id: String,
}

/// What is known of a thread and its process. Texts are empty where it is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadText<'p> {
    /// The thread's last name.
    pub name: Cow<'p, str>,
    /// Its number.
    pub tid: i32,
    /// Its pool.
    pub pool: Cow<'p, str>,
    /// What a user calls the process: `osd.3`, the name of a virtual machine; else its name.
    pub process: Cow<'p, str>,
    /// The process's name.
    pub comm: Cow<'p, str>,
    /// Its number.
    pub pid: i32,
    /// Its class by the rules: `ceph-osd`.
    pub class: Cow<'p, str>,
    /// Path of its control group.
    pub cgroup: Cow<'p, str>,
    /// Its Ceph cluster.
    pub fsid: Cow<'p, str>,
    /// Where it ran.
    pub host: Cow<'p, str>,
}

/// The stacks of a profile's rows.
pub(crate) struct Stacks<'p> {
    profile: &'p Profile,
    trees: Trees,
    /// By group; harmless.
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
        let name = |group: &Group| {
            let name = group_name(profile, group).unwrap_or_else(|| "all".to_owned());
            terminal_name(&name).into_owned()
        };
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
    pub(crate) fn labels(&self, row: usize) -> Option<Vec<Frame>> {
        let (group, end) = (*self.ends.get(row)?)?;
        let nodes = &self.trees.groups[group].nodes;
        let path = iter::successors(Some(&nodes[end]), |node| Some(&nodes[node.parent?]));
        let mut labels: Vec<Frame> = path.map(|node| Frame::Label(node.label)).collect();
        if !self.is_leaf_first {
            labels.reverse();
        }
        Some(labels)
    }

    /// The frames of a row, root first, after its group if the view groups; `None` when the view does
    /// not show it.
    pub(crate) fn frames(&self, row: usize) -> Option<Vec<Frame>> {
        let mut frames = self.labels(row)?;
        let (group, _) = self.ends[row]?;
        if self.has_groups {
            frames.insert(0, Frame::Group(group));
        }
        Some(frames)
    }

    /// For each frame of a stack, root first: how many frames further to the root the function is that it
    /// is inlined into, at the end; 0 for what is not inlined.
    pub(crate) fn inline_depths(&self, frames: &[Frame]) -> Vec<u32> {
        let mut caller: Option<(&Function, u32)> = None;
        let depth_of = |frame: &Frame| {
            let function = self.function(*frame);
            let depth = match (caller, function) {
                // A view may hide the caller: then another module's frame can come before this one.
                (Some((caller, depth)), Some(f)) if f.inlined && image(f) == image(caller) => {
                    depth + 1
                }
                _ => 0,
            };
            caller = function.map(|f| (f, depth));
            depth
        };
        frames.iter().map(depth_of).collect()
    }

    /// The name of a group.
    pub(crate) fn group(&self, group: usize) -> &str {
        &self.names[group]
    }

    /// A frame's text: a function's name without its place.
    pub(crate) fn text(&self, frame: Frame) -> Cow<'_, str> {
        match (frame, self.function(frame)) {
            (Frame::Group(group), _) => Cow::Borrowed(self.group(group)),
            (Frame::Stand(text), _) => Cow::Borrowed(text),
            (_, Some(function)) => terminal_name(function.shown_name()),
            (Frame::Label(label), None) => {
                let text = label.text(self.profile, self.trees.min_percent);
                terminal_name(&text).into_owned().into()
            }
        }
    }

    /// The source file of a frame and its line, which is 0 when not known.
    pub(crate) fn source(&self, frame: Frame) -> Option<(Cow<'p, str>, u32)> {
        let Source { file, line } = self.function(frame)?.source.as_ref()?;
        Some((terminal_name(file), *line))
    }

    /// The module of a frame; `None` for what is in none.
    pub(crate) fn image(&self, frame: Frame) -> Option<Image<'p>> {
        let image = image(self.function(frame)?);
        (!image.name.is_empty()).then_some(image)
    }

    /// What is known of a module.
    pub(crate) fn image_text(&self, image: Image<'p>) -> ImageText<'p> {
        let known: Option<&ProfileModule> =
            self.profile.modules.get(image.at.unwrap_or(usize::MAX));
        let build_id = known.and_then(|module| module.build_id.as_ref());
        ImageText {
            name: terminal_name(image.name),
            path: terminal_name(known.map_or(image.name, |module| &module.path)),
            build_id: build_id.map_or_else(String::new, |id| id.to_string()),
        }
    }

    /// What is known of a thread.
    pub(crate) fn thread_text(&self, thread: &'p ProfileThread) -> ThreadText<'p> {
        let pool = self.profile.pools.get(thread.pool);
        let process = self.profile.process_of(thread);
        let of_process =
            |text: fn(&ProfileProcess) -> &str| terminal_name(process.map_or("", text));
        ThreadText {
            name: terminal_name(&thread.comm),
            tid: thread.tid.0,
            pool: terminal_name(pool.map_or("", |pool| &pool.name)),
            process: terminal_name(self.profile.process_title(thread)),
            comm: terminal_name(&thread.process_comm),
            pid: thread.pid.0,
            class: of_process(|process| &process.class),
            cgroup: of_process(|process| &process.cgroup),
            fsid: of_process(|process| &process.fsid),
            host: of_process(|process| &process.host),
        }
    }

    fn function(&self, frame: Frame) -> Option<&'p Function> {
        match frame {
            Frame::Label(label) => label.function(self.profile),
            Frame::Group(_) | Frame::Stand(_) => None,
        }
    }
}

fn image(function: &Function) -> Image<'_> {
    Image {
        name: &function.module,
        at: function.image,
    }
}

/// The error of formats that cannot be empty.
pub(crate) fn nothing_shown() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "nothing to export: no time passes the filters (idle time is hidden unless shown)",
    )
}
