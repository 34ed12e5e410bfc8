//! Stacks to the tables of a pprof file: locations, functions, mappings, strings.

use indexmap::IndexSet;
use wcprof_profile::model::Profile;
use wcprof_trace::FastState;

use super::proto;
use crate::stacks::{Frame, Image, Stacks};
use crate::strings::Strings;

/// pprof's name of the kernel.
pub(crate) const KERNEL: &str = "[kernel.kallsyms]";

/// The tables; an entry's place is its id less 1.
pub(crate) struct Tables<'s> {
    stacks: &'s Stacks<'s>,
    strings: Strings,
    /// Each root first: what is inlined follows what it is inlined into.
    locations: IndexSet<Vec<Frame>, FastState>,
    /// Name and source file.
    functions: IndexSet<(i64, i64), FastState>,
}

impl<'s> Tables<'s> {
    pub(crate) fn new(stacks: &'s Stacks<'s>) -> Self {
        let mut strings = Strings::default();
        // As the format wants.
        strings.number("");
        Self {
            stacks,
            strings,
            locations: IndexSet::default(),
            functions: IndexSet::default(),
        }
    }

    pub(crate) fn text(&mut self, text: &str) -> i64 {
        self.strings.number(text) as i64
    }

    pub(crate) fn value_type(&mut self, kind: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            r#type: self.text(kind),
            unit: self.text(unit),
        }
    }

    /// A label with a text.
    pub(crate) fn label(&mut self, key: &str, text: &str) -> proto::Label {
        proto::Label {
            key: self.text(key),
            str: self.text(text),
            num: 0,
        }
    }

    /// A stack, root first, to the ids of its locations, leaf first.
    pub(crate) fn location_ids(&mut self, frames: &[Frame]) -> Vec<u64> {
        let depths = self.stacks.inline_depths(frames);
        let mut ids: Vec<u64> = frames
            .iter()
            .zip(depths)
            .collect::<Vec<_>>()
            .chunk_by(|_, (_, depth)| *depth > 0)
            .map(|location| location.iter().map(|(frame, _)| **frame).collect())
            .map(|location| id(self.locations.insert_full(location).0))
            .collect();
        ids.reverse();
        ids
    }

    /// A message with the tables, when it was recorded, and how often there was a look.
    pub(crate) fn into_message(
        mut self,
        profile: &Profile,
        period_type: proto::ValueType,
    ) -> proto::Profile {
        let (mapping, location) = self.mappings_and_locations();
        let period = 1_000_000_000_u64.checked_div(profile.header.rate_hz.into());
        proto::Profile {
            time_nanos: number(profile.began_unix_ns()),
            duration_nanos: number(profile.duration_ns()),
            period_type: Some(period_type),
            period: number(period.unwrap_or(0)),
            mapping,
            location,
            function: self.functions(),
            string_table: self.strings.into_list(),
            ..proto::Profile::default()
        }
    }

    fn mappings_and_locations(&mut self) -> (Vec<proto::Mapping>, Vec<proto::Location>) {
        let locations = std::mem::take(&mut self.locations);
        let mut images: IndexSet<Image<'_>> = IndexSet::new();
        images.extend(locations.iter().filter_map(|l| self.stacks.image(l[0])));
        images.sort_by_cached_key(|image| is_library(&self.stacks.image_text(*image).name));
        let mut mappings: Vec<proto::Mapping> = (1..)
            .zip(&images)
            .map(|(id, image)| self.mapping(id, *image))
            .collect();
        let mut made = Vec::with_capacity(locations.len());
        for (at, frames) in locations.iter().enumerate() {
            let image = self.stacks.image(frames[0]);
            let mapping = image.and_then(|image| images.get_index_of(&image));
            let line: Vec<proto::Line> = frames.iter().rev().map(|f| self.line(*f)).collect();
            if let Some(mapping) = mapping.map(|at| &mut mappings[at]) {
                let has_file = frames.iter().any(|f| self.stacks.source(*f).is_some());
                mapping.has_filenames |= has_file;
                mapping.has_line_numbers |= line.iter().any(|line| line.line > 0);
                mapping.has_inline_frames |= line.len() > 1;
            }
            made.push(proto::Location {
                id: id(at),
                mapping_id: mapping.map_or(0, id),
                line,
            });
        }
        (mappings, made)
    }

    fn mapping(&mut self, id: u64, image: Image<'_>) -> proto::Mapping {
        let text = self.stacks.image_text(image);
        let path = match &*text.name {
            "[kernel]" => KERNEL,
            _ => &text.path,
        };
        proto::Mapping {
            id,
            filename: self.text(path),
            build_id: self.text(&text.build_id),
            has_functions: true,
            ..proto::Mapping::default()
        }
    }

    fn line(&mut self, frame: Frame) -> proto::Line {
        let name = self.stacks.text(frame);
        let name = self.text(&name);
        let (file, line) = self.stacks.source(frame).unwrap_or_default();
        let file = self.text(&file);
        proto::Line {
            function_id: id(self.functions.insert_full((name, file)).0),
            line: line.into(),
        }
    }

    fn functions(&self) -> Vec<proto::Function> {
        let function = |(at, &(name, filename))| proto::Function {
            id: id(at),
            name,
            system_name: name,
            filename,
        };
        self.functions.iter().enumerate().map(function).collect()
    }
}

/// Viewers call the first mapping that is none the program.
fn is_library(name: &str) -> bool {
    name.contains(".so") || name.starts_with('[')
}

fn id(at: usize) -> u64 {
    at as u64 + 1
}

pub(crate) fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
