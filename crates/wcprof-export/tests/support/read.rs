//! Reads the exported formats by their own types: pprof's messages, and JSON and CSV as such.

use std::collections::BTreeMap;

use prost::Message;
use serde_json::Value;

use crate::proto;

/// Nanoseconds by stack, root first, as a folded line.
pub type Folded = BTreeMap<String, u64>;

/// A pprof profile.
#[derive(Debug)]
pub struct Pprof(pub proto::Profile);

impl Pprof {
    /// Reads a gzipped message, and checks what viewers refuse.
    pub fn read(gzip: &[u8]) -> Self {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(gzip), &mut bytes).unwrap();
        Self::decode(&bytes)
    }

    pub fn decode(message: &[u8]) -> Self {
        let profile = proto::Profile::decode(message).unwrap();
        assert_eq!(profile.string_table[0], "");
        assert!((1..).zip(&profile.mapping).all(|(id, m)| m.id == id));
        assert!((1..).zip(&profile.location).all(|(id, l)| l.id == id));
        assert!((1..).zip(&profile.function).all(|(id, f)| f.id == id));
        Self(profile)
    }

    pub fn text(&self, at: i64) -> &str {
        &self.0.string_table[at as usize]
    }

    /// Of a location, innermost first: `name file:line`.
    pub fn lines(&self, location: &proto::Location) -> Vec<String> {
        let line = |line: &proto::Line| {
            let function = &self.0.function[line.function_id as usize - 1];
            let (name, file) = (self.text(function.name), self.text(function.filename));
            format!("{name} {file}:{}", line.line)
        };
        location.line.iter().map(line).collect()
    }

    /// The locations of a sample, leaf first.
    pub fn locations(&self, sample: &proto::Sample) -> Vec<&proto::Location> {
        let locations = sample.location_id.iter();
        locations
            .map(|id| &self.0.location[*id as usize - 1])
            .collect()
    }

    /// The name and the build-id of a location's module; empty for none.
    pub fn mapping(&self, location: &proto::Location) -> (&str, &str) {
        match (location.mapping_id as usize).checked_sub(1) {
            None => ("", ""),
            Some(at) => {
                let mapping = &self.0.mapping[at];
                (self.text(mapping.filename), self.text(mapping.build_id))
            }
        }
    }

    /// A sample's label as text.
    pub fn label(&self, sample: &proto::Sample, key: &str) -> String {
        let label = sample
            .label
            .iter()
            .find(|l| self.text(l.key) == key)
            .unwrap();
        match label.str {
            0 => label.num.to_string(),
            text => self.text(text).to_owned(),
        }
    }

    pub fn folded(&self) -> Folded {
        let mut stacks = Folded::new();
        for sample in &self.0.sample {
            let locations = self.locations(sample);
            let lines = locations.iter().flat_map(|location| &location.line);
            let names = lines.map(|line| {
                let function = &self.0.function[line.function_id as usize - 1];
                self.text(function.name)
            });
            let mut names: Vec<&str> = names.collect();
            names.reverse();
            *stacks.entry(names.join(";")).or_default() += sample.value[1] as u64;
        }
        stacks
    }
}

/// The entry of a column.
fn at(column: &Value, n: &Value) -> Value {
    column[n.as_u64().unwrap() as usize].clone()
}

/// Of a Firefox profile's stack, root first: an entry of `columns` (`frameTable/line`) for each frame.
pub fn firefox_frames(document: &Value, stack: &Value, column: &str) -> Vec<Value> {
    let shared = &document["shared"];
    let mut frames = Vec::new();
    let mut next = stack.clone();
    while !next.is_null() {
        let frame = at(&shared["stackTable"]["frame"], &next);
        let of_frame = |name: &str| at(&shared["frameTable"][name], &frame);
        let of_function = |name: &str| at(&shared["funcTable"][name], &of_frame("func"));
        let text = |n: &Value| at(&shared["stringArray"], n);
        frames.push(match column {
            "name" => text(&of_function("name")),
            "file" => match of_function("source") {
                Value::Null => Value::Null,
                source => text(&at(&shared["sources"]["filename"], &source)),
            },
            "lib" => at(
                &document["libs"],
                &at(&shared["resourceTable"]["lib"], &of_function("resource")),
            ),
            "category" => at(&document["meta"]["categories"], &of_frame("category")),
            column => of_frame(column),
        });
        next = at(&shared["stackTable"]["prefix"], &next);
    }
    frames.reverse();
    frames
}

pub fn firefox_folded(document: &Value) -> BTreeMap<String, f64> {
    let mut stacks = BTreeMap::new();
    for thread in document["threads"].as_array().unwrap() {
        let samples = &thread["samples"];
        let weights = samples["weight"].as_array().unwrap();
        for (stack, weight) in samples["stack"].as_array().unwrap().iter().zip(weights) {
            if !stack.is_null() {
                let names = firefox_frames(document, stack, "name");
                let sum: &mut f64 = stacks.entry(joined(&names)).or_default();
                *sum += weight.as_f64().unwrap() * 1e6;
            }
        }
    }
    stacks
}

/// With each profile's name as the root if asked.
pub fn speedscope_folded(file: &Value, with_group: bool) -> Folded {
    let mut stacks = Folded::new();
    for profile in file["profiles"].as_array().unwrap() {
        let (samples, weights) = (profile["samples"].as_array(), profile["weights"].as_array());
        let (samples, weights) = (samples.unwrap(), weights.unwrap());
        assert_eq!(samples.len(), weights.len());
        for (sample, weight) in samples.iter().zip(weights) {
            let frames = sample.as_array().unwrap().iter();
            let mut names: Vec<Value> = frames
                .map(|frame| at(&file["shared"]["frames"], frame)["name"].clone())
                .collect();
            if names.is_empty() {
                continue;
            }
            if with_group {
                names.insert(0, profile["name"].clone());
            }
            *stacks.entry(joined(&names)).or_default() += weight.as_u64().unwrap();
        }
    }
    stacks
}

fn joined(names: &[Value]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.as_str().unwrap()).collect();
    names.join(";")
}

/// Lines of CSV, each as its values by column.
pub fn csv(text: &[u8]) -> Vec<BTreeMap<String, String>> {
    let reader = csv::Reader::from_reader(text);
    reader.into_deserialize().map(|row| row.unwrap()).collect()
}

/// All texts in a JSON document.
pub fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().flat_map(texts).collect(),
        Value::Object(map) => map.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}
