//! The Firefox Profiler's processed profile format, version 61, as far as it is used: tables of
//! columns, which refer to each other by index
//! (<https://github.com/firefox-devtools/profiler/blob/main/docs-developer/CHANGELOG-formats.md>).
//! The viewer brings old versions up to date when it loads them.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Serialize, Serializer};

/// `preprocessedProfileVersion`.
pub(super) const VERSION: u32 = 61;
/// Version of the format that browsers write; the viewer wants one and does not use it here.
const GECKO_VERSION: u32 = 24;

#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    pub(super) meta: Meta<'a>,
    pub(super) libs: Vec<Lib<'a>>,
    pub(super) shared: Shared,
    pub(super) threads: Vec<Thread<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta<'a> {
    /// Time between samples, ms.
    pub(super) interval: f64,
    /// Time 0, ms since 1970.
    pub(super) start_time: f64,
    pub(super) process_type: u32,
    pub(super) product: &'a str,
    pub(super) imported_from: &'static str,
    pub(super) oscpu: &'static str,
    #[serde(rename = "logicalCPUs", skip_serializing_if = "Option::is_none")]
    pub(super) logical_cpus: Option<u32>,
    pub(super) stackwalk: u32,
    pub(super) version: u32,
    pub(super) preprocessed_profile_version: u32,
    pub(super) symbolicated: bool,
    pub(super) categories: Vec<Category>,
    pub(super) marker_schema: Vec<MarkerSchema>,
    pub(super) sample_units: SampleUnits,
    pub(super) extra: Vec<Section<'a>>,
    pub(super) initial_visible_threads: Vec<usize>,
    pub(super) initial_selected_threads: Vec<usize>,
    /// The order of threads is the file's.
    pub(super) keep_profile_thread_order: bool,
    pub(super) uses_only_one_stack_type: bool,
    pub(super) source_code_is_not_on_searchfox: bool,
}

impl Default for Meta<'_> {
    fn default() -> Self {
        Self {
            interval: 0.0,
            start_time: 0.0,
            process_type: 0,
            product: "",
            imported_from: "wcprof",
            oscpu: "Linux",
            logical_cpus: None,
            stackwalk: 1,
            version: GECKO_VERSION,
            preprocessed_profile_version: VERSION,
            symbolicated: true,
            categories: Vec::new(),
            marker_schema: Vec::new(),
            sample_units: SampleUnits {
                time: "ms",
                event_delay: "ms",
                thread_cpu_delta: "ns",
            },
            extra: Vec::new(),
            initial_visible_threads: Vec::new(),
            initial_selected_threads: Vec::new(),
            keep_profile_thread_order: true,
            uses_only_one_stack_type: true,
            source_code_is_not_on_searchfox: true,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SampleUnits {
    time: &'static str,
    event_delay: &'static str,
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct Category {
    pub(super) name: &'static str,
    pub(super) color: &'static str,
    pub(super) subcategories: [&'static str; 1],
}

/// A part of the panel that tells about the profile.
#[derive(Debug, Serialize)]
pub(super) struct Section<'a> {
    pub(super) label: &'static str,
    pub(super) entries: Vec<Entry<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Entry<'a> {
    pub(super) label: &'static str,
    pub(super) format: &'static str,
    pub(super) value: Cow<'a, str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MarkerSchema {
    pub(super) name: &'static str,
    pub(super) chart_label: &'static str,
    pub(super) table_label: &'static str,
    pub(super) display: &'static [&'static str],
    pub(super) fields: Vec<MarkerField>,
    pub(super) description: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct MarkerField {
    pub(super) key: &'static str,
    pub(super) label: &'static str,
    pub(super) format: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lib<'a> {
    pub(super) arch: &'static str,
    pub(super) name: &'a str,
    pub(super) path: &'a str,
    pub(super) debug_name: &'a str,
    pub(super) debug_path: &'a str,
    pub(super) breakpad_id: &'static str,
    pub(super) code_id: Option<&'static str>,
}

/// What all threads share.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shared {
    pub(super) string_array: Strings,
    pub(super) stack_table: StackTable,
    pub(super) frame_table: FrameTable,
    pub(super) func_table: FuncTable,
    pub(super) resource_table: ResourceTable,
    native_symbols: NativeSymbols,
    sources: Sources,
}

/// Strings, each once.
#[derive(Debug, Default)]
pub(super) struct Strings {
    list: Vec<String>,
    ids: HashMap<String, usize>,
}

impl Strings {
    pub(super) fn id(&mut self, text: &str) -> usize {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        self.ids.insert(text.to_owned(), self.list.len());
        self.list.push(text.to_owned());
        self.list.len() - 1
    }
}

impl Serialize for Strings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.list.serialize(serializer)
    }
}

/// Call stacks as a tree.
#[derive(Debug, Default, Serialize)]
pub(super) struct StackTable {
    frame: Vec<usize>,
    /// The caller's stack.
    prefix: Vec<Option<usize>>,
    length: usize,
}

impl StackTable {
    pub(super) fn push(&mut self, prefix: Option<usize>, frame: usize) -> usize {
        self.frame.push(frame);
        self.prefix.push(prefix);
        self.length += 1;
        self.length - 1
    }
}

/// A function in a category.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FrameTable {
    address: Vec<i64>,
    inline_depth: Vec<u32>,
    category: Vec<usize>,
    subcategory: Vec<usize>,
    func: Vec<usize>,
    native_symbol: Vec<Option<usize>>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<Option<u64>>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
    length: usize,
}

impl FrameTable {
    pub(super) fn push(&mut self, func: usize, category: usize) -> usize {
        // Addresses are not in an export: names are final.
        self.address.push(-1);
        self.inline_depth.push(0);
        self.category.push(category);
        self.subcategory.push(0);
        self.func.push(func);
        self.native_symbol.push(None);
        self.inner_window_id.push(None);
        self.line.push(None);
        self.column.push(None);
        self.length += 1;
        self.length - 1
    }
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FuncTable {
    name: Vec<usize>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    /// -1 for none.
    resource: Vec<i64>,
    source: Vec<Option<usize>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
    length: usize,
}

impl FuncTable {
    pub(super) fn push(&mut self, name: usize, resource: Option<usize>) -> usize {
        self.name.push(name);
        self.is_js.push(false);
        self.relevant_for_js.push(false);
        let resource = resource.and_then(|r| i64::try_from(r).ok());
        self.resource.push(resource.unwrap_or(-1));
        self.source.push(None);
        self.line_number.push(None);
        self.column_number.push(None);
        self.length += 1;
        self.length - 1
    }
}

/// Modules, as what functions are from.
#[derive(Debug, Default, Serialize)]
pub(super) struct ResourceTable {
    lib: Vec<usize>,
    name: Vec<usize>,
    host: Vec<Option<usize>>,
    #[serde(rename = "type")]
    kind: Vec<u32>,
    length: usize,
}

impl ResourceTable {
    pub(super) fn push(&mut self, lib: usize, name: usize) -> usize {
        const LIBRARY: u32 = 1;
        self.lib.push(lib);
        self.name.push(name);
        self.host.push(None);
        self.kind.push(LIBRARY);
        self.length += 1;
        self.length - 1
    }
}

/// Empty: names are final.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NativeSymbols {
    lib_index: [u32; 0],
    address: [u32; 0],
    name: [u32; 0],
    function_size: [u32; 0],
    length: usize,
}

/// Empty: these are sources of scripts.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sources {
    id: [u32; 0],
    filename: [u32; 0],
    start_line: [u32; 0],
    start_column: [u32; 0],
    #[serde(rename = "sourceMapURL")]
    source_map_url: [u32; 0],
    length: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thread<'a> {
    pub(super) process_type: &'static str,
    pub(super) process_startup_time: f64,
    pub(super) process_shutdown_time: Option<f64>,
    pub(super) register_time: f64,
    pub(super) unregister_time: Option<f64>,
    pub(super) paused_ranges: [u32; 0],
    pub(super) show_markers_in_timeline: bool,
    pub(super) name: &'a str,
    pub(super) is_main_thread: bool,
    pub(super) process_name: &'a str,
    pub(super) pid: String,
    pub(super) tid: i32,
    pub(super) samples: Samples,
    pub(super) markers: Markers,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Samples {
    stack: Vec<Option<usize>>,
    /// Begin, ms.
    time: Vec<f64>,
    /// ms.
    weight: Vec<f64>,
    weight_type: &'static str,
    /// CPU time since the sample before, ns.
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: Vec<u64>,
    length: usize,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            stack: Vec::new(),
            time: Vec::new(),
            weight: Vec::new(),
            weight_type: "tracing-ms",
            thread_cpu_delta: Vec::new(),
            length: 0,
        }
    }
}

impl Samples {
    /// Times and weights in ns.
    pub(super) fn push(&mut self, stack: Option<usize>, time: u64, weight: u64, cpu: u64) {
        self.stack.push(stack);
        self.time.push(ms(time));
        self.weight.push(ms(weight));
        self.thread_cpu_delta.push(cpu);
        self.length += 1;
    }
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Markers {
    data: Vec<MarkerData>,
    name: Vec<usize>,
    start_time: Vec<f64>,
    end_time: Vec<f64>,
    phase: Vec<u32>,
    category: Vec<usize>,
    length: usize,
}

#[derive(Debug, Serialize)]
struct MarkerData {
    #[serde(rename = "type")]
    kind: &'static str,
    function: usize,
}

/// The name of [`MarkerSchema`] that markers refer to.
pub(super) const MARKER: &str = "wcprof state";

impl Markers {
    /// An interval, ns. Name and function are strings.
    pub(super) fn push(
        &mut self,
        times: (u64, u64),
        name: usize,
        category: usize,
        function: usize,
    ) {
        const INTERVAL: u32 = 1;
        self.data.push(MarkerData {
            kind: MARKER,
            function,
        });
        self.name.push(name);
        self.start_time.push(ms(times.0));
        self.end_time.push(ms(times.1));
        self.phase.push(INTERVAL);
        self.category.push(category);
        self.length += 1;
    }
}

pub(super) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
