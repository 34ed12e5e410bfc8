//! Readers of the exported formats, strict about what their viewers rely on.

/// The message of pprof.
pub mod pprof {
    use std::collections::BTreeMap;
    use std::io::Read;

    #[derive(Debug, Default)]
    pub struct Profile {
        pub types: Vec<(String, String)>,
        pub default_type: String,
        pub samples: Vec<Sample>,
        pub time_ns: u64,
    }

    #[derive(Debug, Default)]
    pub struct Sample {
        pub functions: Vec<String>,
        pub files: Vec<String>,
        pub values: Vec<u64>,
        pub labels: BTreeMap<String, String>,
        pub numbers: BTreeMap<String, u64>,
    }

    impl Profile {
        /// Time by stack, root first, ns.
        pub fn folded(&self) -> BTreeMap<String, u64> {
            let mut stacks = BTreeMap::new();
            for sample in &self.samples {
                let names: Vec<&str> = sample.functions.iter().rev().map(String::as_str).collect();
                *stacks.entry(names.join(";")).or_default() += sample.values[1];
            }
            stacks
        }
    }

    /// A field: its number, and a varint or bytes.
    enum Value<'a> {
        Number(u64),
        Bytes(&'a [u8]),
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut n, mut shift) = (0, 0);
        loop {
            let (&byte, rest) = bytes.split_first().expect("a whole varint");
            *bytes = rest;
            n |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return n;
            }
        }
    }

    fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let value = match tag & 7 {
                0 => Value::Number(varint(&mut bytes)),
                2 => {
                    let len = varint(&mut bytes) as usize;
                    let (inner, rest) = bytes.split_at(len);
                    bytes = rest;
                    Value::Bytes(inner)
                }
                other => panic!("wire type {other}"),
            };
            fields.push((tag >> 3, value));
        }
        fields
    }

    fn number(message: &[u8], field: u64) -> u64 {
        let found = fields(message).into_iter().find(|(n, _)| *n == field);
        match found {
            Some((_, Value::Number(n))) => n,
            Some(_) => panic!("field {field} is no number"),
            None => 0,
        }
    }

    fn list(message: &[u8], field: u64) -> Vec<&[u8]> {
        fields(message)
            .into_iter()
            .filter(|(n, _)| *n == field)
            .map(|(_, value)| match value {
                Value::Bytes(bytes) => bytes,
                Value::Number(_) => panic!("field {field} is a number"),
            })
            .collect()
    }

    fn packed(message: &[u8], field: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        for mut bytes in list(message, field) {
            while !bytes.is_empty() {
                numbers.push(varint(&mut bytes));
            }
        }
        numbers
    }

    /// Reads a gzipped message.
    pub fn read(gzip: &[u8]) -> Profile {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(gzip)
            .read_to_end(&mut bytes)
            .expect("gzip");
        let strings: Vec<String> = list(&bytes, 6)
            .into_iter()
            .map(|s| String::from_utf8(s.to_vec()).expect("UTF-8"))
            .collect();
        assert_eq!(strings[0], "", "the first string is empty");
        let text = |id: u64| strings[id as usize].clone();
        let functions: BTreeMap<u64, (String, String)> = list(&bytes, 5)
            .into_iter()
            .map(|f| (number(f, 1), (text(number(f, 2)), text(number(f, 4)))))
            .collect();
        let locations: BTreeMap<u64, u64> = list(&bytes, 4)
            .into_iter()
            .map(|l| (number(l, 1), number(list(l, 4)[0], 1)))
            .collect();
        assert!(!locations.contains_key(&0), "ids are not 0");
        let samples = list(&bytes, 2).into_iter().map(|sample| {
            let at = packed(sample, 1);
            let of = |id: &u64| functions[&locations[id]].clone();
            let (mut labels, mut numbers) = (BTreeMap::new(), BTreeMap::new());
            for label in list(sample, 3) {
                let key = text(number(label, 1));
                match number(label, 2) {
                    0 => drop(numbers.insert(key, number(label, 3))),
                    value => drop(labels.insert(key, text(value))),
                }
            }
            Sample {
                functions: at.iter().map(|id| of(id).0).collect(),
                files: at.iter().map(|id| of(id).1).collect(),
                values: packed(sample, 2),
                labels,
                numbers,
            }
        });
        Profile {
            samples: samples.collect(),
            types: list(&bytes, 1)
                .into_iter()
                .map(|t| (text(number(t, 1)), text(number(t, 2))))
                .collect(),
            default_type: text(number(&bytes, 14)),
            time_ns: number(&bytes, 9),
        }
    }
}

/// speedscope's file format.
pub mod speedscope {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    pub struct File {
        #[serde(rename = "$schema")]
        pub schema: String,
        pub shared: Shared,
        pub profiles: Vec<Profile>,
    }

    #[derive(Debug, Deserialize)]
    pub struct Shared {
        pub frames: Vec<Frame>,
    }

    #[derive(Debug, Deserialize)]
    pub struct Frame {
        pub name: String,
        pub file: Option<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Profile {
        #[serde(rename = "type")]
        pub kind: String,
        pub name: String,
        pub unit: String,
        pub start_value: u64,
        pub end_value: u64,
        pub samples: Vec<Vec<usize>>,
        pub weights: Vec<u64>,
    }

    impl File {
        pub fn stack(&self, profile: usize, sample: usize) -> Vec<&str> {
            let frames = self.profiles[profile].samples[sample].iter();
            frames
                .map(|&f| self.shared.frames[f].name.as_str())
                .collect()
        }

        /// Time by stack, root first, after the profile's name if it is a group's, ns.
        pub fn folded(&self, with_group: bool) -> BTreeMap<String, u64> {
            let mut stacks = BTreeMap::new();
            for (at, profile) in self.profiles.iter().enumerate() {
                for (sample, &weight) in profile.weights.iter().enumerate() {
                    let mut names = self.stack(at, sample);
                    if names.is_empty() {
                        continue;
                    }
                    if with_group {
                        names.insert(0, &profile.name);
                    }
                    *stacks.entry(names.join(";")).or_default() += weight;
                }
            }
            stacks
        }
    }

    /// Reads a file.
    pub fn read(json: &[u8]) -> File {
        let file: File = serde_json::from_slice(json).expect("a file");
        assert_eq!(
            file.schema,
            "https://www.speedscope.app/file-format-schema.json"
        );
        for profile in &file.profiles {
            assert_eq!(
                (profile.kind.as_str(), profile.unit.as_str()),
                ("sampled", "nanoseconds")
            );
            assert_eq!(profile.samples.len(), profile.weights.len());
            let sum: u64 = profile.weights.iter().sum();
            assert_eq!(profile.end_value - profile.start_value, sum);
        }
        file
    }
}

/// The processed profile of the Firefox Profiler.
pub mod firefox {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    pub struct Document {
        pub meta: Meta,
        libs: Vec<Lib>,
        shared: Shared,
        pub threads: Vec<Thread>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Meta {
        pub preprocessed_profile_version: u32,
        pub start_time: f64,
        categories: Vec<Category>,
    }

    #[derive(Debug, Deserialize)]
    struct Category {
        name: String,
        color: String,
        subcategories: Vec<String>,
    }

    #[derive(Debug, Deserialize)]
    struct Lib {
        name: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Shared {
        string_array: Vec<String>,
        stack_table: StackTable,
        frame_table: FrameTable,
        func_table: FuncTable,
        resource_table: ResourceTable,
    }

    #[derive(Debug, Deserialize)]
    struct StackTable {
        frame: Vec<usize>,
        prefix: Vec<Option<usize>>,
        length: usize,
    }

    #[derive(Debug, Deserialize)]
    struct FrameTable {
        func: Vec<usize>,
        category: Vec<usize>,
        length: usize,
    }

    #[derive(Debug, Deserialize)]
    struct FuncTable {
        name: Vec<usize>,
        resource: Vec<i64>,
        length: usize,
    }

    #[derive(Debug, Deserialize)]
    struct ResourceTable {
        lib: Vec<usize>,
        length: usize,
    }

    #[derive(Debug, Deserialize)]
    pub struct Thread {
        pub name: String,
        pub pid: String,
        pub samples: Samples,
        markers: Markers,
    }

    #[derive(Debug, Deserialize)]
    pub struct Samples {
        pub stack: Vec<Option<usize>>,
        pub time: Vec<f64>,
        pub weight: Vec<f64>,
        #[serde(rename = "weightType")]
        weight_type: String,
        #[serde(rename = "threadCPUDelta")]
        pub cpu: Vec<u64>,
        length: usize,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Markers {
        data: Vec<Data>,
        name: Vec<usize>,
        start_time: Vec<f64>,
        end_time: Vec<f64>,
        length: usize,
    }

    #[derive(Debug, Deserialize)]
    struct Data {
        function: usize,
    }

    impl Document {
        fn frames(&self, stack: Option<usize>) -> Vec<usize> {
            let mut frames = Vec::new();
            let mut next = stack;
            while let Some(at) = next {
                frames.push(self.shared.stack_table.frame[at]);
                next = self.shared.stack_table.prefix[at];
            }
            frames.reverse();
            frames
        }

        pub fn stack(&self, stack: Option<usize>) -> Vec<&str> {
            let name = |f: usize| {
                let name = self.shared.func_table.name[self.shared.frame_table.func[f]];
                self.shared.string_array[name].as_str()
            };
            self.frames(stack).into_iter().map(name).collect()
        }

        /// Name and color of the category of a stack.
        pub fn category(&self, stack: Option<usize>) -> (&str, &str) {
            let leaf = self.frames(stack).pop().expect("a frame");
            let category = &self.meta.categories[self.shared.frame_table.category[leaf]];
            (&category.name, &category.color)
        }

        /// The module of a stack's innermost function.
        pub fn module(&self, stack: Option<usize>) -> &str {
            let leaf = self.frames(stack).pop().expect("a frame");
            let resource = self.shared.func_table.resource[self.shared.frame_table.func[leaf]];
            let lib = self.shared.resource_table.lib[resource as usize];
            &self.libs[lib].name
        }

        /// Name, begin and end (ms), function.
        pub fn markers<'a>(
            &'a self,
            thread: &'a Thread,
        ) -> impl Iterator<Item = (&'a str, f64, f64, &'a str)> {
            let text = |id: usize| self.shared.string_array[id].as_str();
            let m = &thread.markers;
            (0..m.length).map(move |i| {
                let name = text(m.name[i]);
                (
                    name,
                    m.start_time[i],
                    m.end_time[i],
                    text(m.data[i].function),
                )
            })
        }

        /// Time by stack, root first, ns.
        pub fn folded(&self) -> BTreeMap<String, f64> {
            let mut stacks = BTreeMap::new();
            for samples in self.threads.iter().map(|t| &t.samples) {
                for (stack, ms) in samples.stack.iter().zip(&samples.weight) {
                    if stack.is_some() {
                        *stacks.entry(self.stack(*stack).join(";")).or_default() += ms * 1e6;
                    }
                }
            }
            stacks
        }
    }

    /// Reads a document: columns of a table are of one length, and indices refer to what is there.
    pub fn read(json: &[u8]) -> Document {
        let document: Document = serde_json::from_slice(json).expect("a document");
        let shared = &document.shared;
        let stacks = &shared.stack_table;
        assert_eq!(
            (stacks.frame.len(), stacks.prefix.len()),
            (stacks.length, stacks.length)
        );
        // A stack comes after its caller's.
        assert!(
            stacks
                .prefix
                .iter()
                .enumerate()
                .all(|(at, p)| p.is_none_or(|p| p < at))
        );
        assert!(stacks.frame.iter().all(|&f| f < shared.frame_table.length));
        assert!(
            shared
                .frame_table
                .func
                .iter()
                .all(|&f| f < shared.func_table.length)
        );
        let n_resources = shared.resource_table.length as i64;
        assert!(
            shared
                .func_table
                .resource
                .iter()
                .all(|&r| (-1..n_resources).contains(&r))
        );
        // Viewers need a grey category to fall back to, and a subcategory in each.
        let categories = &document.meta.categories;
        assert!(categories.iter().any(|c| c.color == "grey"));
        assert!(categories.iter().all(|c| !c.subcategories.is_empty()));
        for thread in &document.threads {
            let samples = &thread.samples;
            assert_eq!(samples.weight_type, "tracing-ms");
            for len in [
                samples.stack.len(),
                samples.time.len(),
                samples.weight.len(),
                samples.cpu.len(),
            ] {
                assert_eq!(len, samples.length);
            }
            assert!(samples.time.is_sorted());
            assert!(samples.stack.iter().flatten().all(|&s| s < stacks.length));
            assert_eq!(thread.markers.data.len(), thread.markers.length);
        }
        document
    }
}

/// Comma-separated values (RFC 4180).
pub mod csv {
    use std::collections::BTreeMap;

    /// Reads lines, each as its values by column.
    pub fn read(text: &str) -> Vec<BTreeMap<String, String>> {
        let mut records = records(text).into_iter();
        let columns = records.next().expect("names of columns");
        records
            .map(|record| {
                assert_eq!(record.len(), columns.len(), "{record:?}");
                columns.iter().cloned().zip(record).collect()
            })
            .collect()
    }

    fn records(text: &str) -> Vec<Vec<String>> {
        let (mut records, mut record, mut cell) = (Vec::new(), Vec::new(), String::new());
        let (mut chars, mut is_quoted) = (text.chars().peekable(), false);
        while let Some(c) = chars.next() {
            match c {
                '"' if is_quoted && chars.peek() == Some(&'"') => cell.extend(chars.next()),
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => record.push(std::mem::take(&mut cell)),
                '\r' if !is_quoted => {
                    assert_eq!(chars.next(), Some('\n'));
                    record.push(std::mem::take(&mut cell));
                    records.push(std::mem::take(&mut record));
                }
                _ => cell.push(c),
            }
        }
        assert!(record.is_empty() && cell.is_empty(), "the last line ends");
        records
    }
}
