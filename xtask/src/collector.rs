//! `cargo xtask collector`: a saved trace to a real OpenTelemetry Collector, and what that writes to a file to what wcprof
//! says of the trace.
//!
//! The collector is built from `fixtures/collector`, with the Go that its `go.mod` names: one that is installed, or that
//! Go fetches. Without Go or its modules it is skipped.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde_json::Value;

use crate::process::{
    Background, build_release, capture_json, cargo_example, command, execute, free_address,
    is_installed, list, log_tail, log_to, quoted, result_folder, root, tail, text, wait_until,
};
use crate::viewers::own::{OwnTimes, short};

/// What is sent.
const TRACE: &str = "fixtures/traces/ceph-osd-secure-randread.wct";
/// Where the collector's source is.
const SOURCE: &str = "fixtures/collector";

/// Runs the command.
///
/// # Errors
/// When the collector refuses the profile, or writes another one.
pub fn run() -> Result<()> {
    let folder = result_folder("collector")?;
    let program = folder.join("collector");
    if let Err(reason) = build(&program)? {
        println!("SKIPPED collector: {reason}");
        return Ok(());
    }
    let (trace, wcprof) = (root().join(TRACE), build_release()?);
    let report = format!(
        "{wcprof} report {} --json --by all --invert --min-percent 0",
        quoted(&trace)
    );
    let own = OwnTimes::of_report(&capture_json(command(&report))?)?.by_short_name();

    let address = free_address()?;
    let (file, log) = (folder.join("profiles.json"), folder.join("collector.log"));
    if file.exists() {
        fs::remove_file(&file)?;
    }
    let config = folder.join("config.yaml");
    fs::write(&config, configuration(&address, &file))?;
    let mut collector = Command::new(&program);
    collector.arg(format!("--config=file:{}", config.display()));
    collector.arg("--feature-gates=service.profilesSupport");
    let mut collector = Background::start(log_to(&mut collector, &log)?)?;
    wait_until("the collector listens", 30, || {
        let running = collector.require_running();
        running.with_context(|| log_tail(&log))?;
        Ok(TcpStream::connect(&address).is_ok())
    })?;
    let mut push = cargo_example("wcprof", "push");
    execute(push.arg(&trace).arg(format!("http://{address}"))).with_context(|| log_tail(&log))?;
    let status = collector.interrupt(|| {})?;
    ensure!(status.success(), "the collector ended with {status}");
    let written = fs::read_to_string(&file).with_context(|| log_tail(&log))?;
    let CollectedProfiles {
        mut times,
        n_build_ids,
        n_addresses,
    } = CollectedProfiles::of(&written)?;
    let mut taken = |kind: &str| times.remove(kind).unwrap_or_default();
    let [got, cpu, off_cpu, counts] = ["wall", "cpu", "off_cpu", "samples"].map(&mut taken);
    let sum = |times: &BTreeMap<String, f64>| times.values().sum::<f64>();
    ensure!(
        sum(&got) == sum(&cpu) + sum(&off_cpu),
        "{} ns of wall time, {} on a CPU and {} off",
        sum(&got),
        sum(&cpu),
        sum(&off_cpu)
    );
    ensure!(
        sum(&counts) > 0.0 && n_build_ids > 5,
        "no counts or build-ids"
    );
    ensure!(own.len() > 50, "the trace has {} functions", own.len());
    ensure!(
        own == got,
        "the collector's file has {} functions, wcprof {}; different: {:?}",
        got.len(),
        own.len(),
        own.iter()
            .filter(|(name, ns)| got.get(*name) != Some(ns))
            .take(5)
            .collect::<Vec<_>>()
    );
    println!(
        "collector: the nanoseconds of {} functions in its file are those of the report; {} samples on a CPU, {n_build_ids} build-ids, \
         {n_addresses} addresses without a name",
        own.len(),
        sum(&counts)
    );
    Ok(())
}

/// Builds the collector; else why it cannot be built here.
fn build(program: &Path) -> Result<Result<(), String>> {
    if !is_installed("go") {
        return Ok(Err("needs go, which is not installed".to_owned()));
    }
    let mut go = command("go build -trimpath -o");
    go.arg(program).arg(".").current_dir(root().join(SOURCE));
    let output = go.stdin(Stdio::null()).output();
    let output = output.context("failed to run go")?;
    let errors = tail(&output.stderr);
    if output.status.success() {
        return Ok(Ok(()));
    }
    // What comes from the network may not be there; what is wrong with the source is a failure.
    let is_absent = ["dial tcp", "403 Forbidden", "download go1", "i/o timeout"]
        .iter()
        .any(|part| errors.contains(part));
    ensure!(is_absent, "go build failed:\n{errors}");
    Ok(Err(format!("its Go modules cannot be fetched: {errors}")))
}

fn configuration(address: &str, file: &Path) -> String {
    format!(
        "receivers:
  otlp:
    protocols:
      http:
        endpoint: {address}
exporters:
  debug:
  file:
    path: {}
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    profiles:
      receivers: [otlp]
      exporters: [debug, file]
",
        file.display()
    )
}

/// What the file exporter wrote: a request of OTLP in JSON, a line each. A sample's first location is its leaf, and a location's first
/// line its innermost function.
#[derive(Default)]
struct CollectedProfiles {
    /// By type of value and function: own time, ns, or counts.
    times: BTreeMap<String, BTreeMap<String, f64>>,
    /// Mappings with a build-id.
    n_build_ids: usize,
    /// Locations with an address.
    n_addresses: usize,
}

impl CollectedProfiles {
    fn of(lines: &str) -> Result<Self> {
        let mut all = Self::default();
        for line in lines.lines() {
            let request: Value = serde_json::from_str(line).context("the file has no JSON")?;
            all.add(&request)?;
        }
        Ok(all)
    }

    fn add(&mut self, request: &Value) -> Result<()> {
        let dictionary = &request["dictionary"];
        // Entry 0 is the default, and left out.
        let entry = |table: &str, number: &Value| {
            let number = integer(number).unwrap_or_default();
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            let entry = dictionary[table].get(number).cloned();
            entry.with_context(|| format!("no {table} {number}"))
        };
        let is_build_id = |number: &Value| {
            let key = entry("attributeTable", number)
                .and_then(|attribute| entry("stringTable", &attribute["keyStrindex"]));
            key.is_ok_and(|key| text(&key).starts_with("process.executable.build_id."))
        };
        let mappings = list(&dictionary["mappingTable"]);
        self.n_build_ids += mappings
            .filter(|mapping| list(&mapping["attributeIndices"]).any(is_build_id))
            .count();
        let locations = list(&dictionary["locationTable"]);
        self.n_addresses += locations
            .filter(|location| integer(&location["address"]).is_some_and(|address| address > 0))
            .count();
        let resources = list(&request["resourceProfiles"]);
        let scopes = resources.flat_map(|resource| list(&resource["scopeProfiles"]));
        for profile in scopes.flat_map(|scope| list(&scope["profiles"])) {
            let kind = entry("stringTable", &profile["sampleType"]["typeStrindex"])?;
            let times = self.times.entry(text(&kind).to_owned()).or_default();
            for sample in list(&profile["samples"]) {
                let stack = entry("stackTable", &sample["stackIndex"])?;
                let leaf = entry("locationTable", &stack["locationIndices"][0])?;
                let function = entry("functionTable", &leaf["lines"][0]["functionIndex"])?;
                let name = entry("stringTable", &function["nameStrindex"])?;
                let ns = integer(&sample["values"][0]).context("a sample has no value")?;
                *times.entry(short(text(&name)).to_owned()).or_default() += ns as f64;
            }
        }
        Ok(())
    }
}

/// A number, which is a text in JSON where it has 64 bits.
fn integer(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check a request with two samples of one function, and one whose tables lack an entry.
    #[test]
    fn collected() {
        let request = |index: u32| {
            format!(
                r#"{{"dictionary": {{"stringTable": ["", "f(int)", "wall", "process.executable.build_id.gnu"],
                "attributeTable": [{{}}, {{"keyStrindex": 3}}], "mappingTable": [{{}}, {{"attributeIndices": [1]}}], "functionTable": [{{}}, {{"nameStrindex": 1}}],
                "locationTable": [{{}}, {{"address": "16", "lines": [{{"functionIndex": 1}}]}}],
                "stackTable": [{{}}, {{"locationIndices": [1]}}]}},
                "resourceProfiles": [{{"scopeProfiles": [{{"profiles": [{{"sampleType": {{"typeStrindex": 2}}, "samples":
                [{{"stackIndex": 1, "values": ["70"]}}, {{"stackIndex": {index}, "values": [7]}}]}}]}}]}}]}}"#
            )
            .replace('\n', "")
        };
        let got = CollectedProfiles::of(&request(1)).unwrap();
        assert_eq!(got.times["wall"], BTreeMap::from([("f".to_owned(), 77.0)]));
        assert_eq!((got.n_build_ids, got.n_addresses), (1, 1));
        assert!(CollectedProfiles::of(&request(9)).is_err());
    }
}
