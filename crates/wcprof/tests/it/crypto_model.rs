//! `wcprof crypto calibrate` and `wcprof crypto model`, the built program.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

const REPORT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../msgr-crypto/data/report-2022.speed.txt"
);

fn crypto(args: &[&str]) -> Output {
    wcprof_testkit::wcprof()
        .arg("crypto")
        .args(args)
        .env("XDG_CACHE_HOME", "/nowhere")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[track_caller]
fn text(output: &[u8]) -> &str {
    std::str::from_utf8(output).unwrap()
}

#[track_caller]
fn fails(args: &[&str], code: i32) -> String {
    let output = crypto(args);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    text(&output.stderr).to_owned()
}

fn file(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Check the users' report of 2022 from its own table: 12.5 % of each of three threads, 0.3 points to
/// gain, and the verdict that batching cannot help; as text, JSON and chart.
#[test]
fn report_of_2022() {
    let folder = tempfile::tempdir().unwrap();
    let shapes = file(
        folder.path(),
        "shapes.toml",
        "version = 1\n[[frame]]\nname = 'reply'\nside = 'rx'\ncalls = '80,0 | 192,16384,16,0'\n",
    );
    let svg = folder.path().join("chart.svg");
    let args = [
        "model",
        "--speed",
        REPORT,
        "--shapes",
        &shapes,
        "--threads",
        "3",
        "--iops",
        "87000",
    ];
    let chart = ["--format", "svg", "-o", svg.to_str().unwrap()];
    assert!(crypto(&[&args[..], &chart].concat()).status.success());
    let output = crypto(&args);
    assert!(output.status.success(), "{output:?}");
    let out = text(&output.stdout);
    let row = out
        .lines()
        .find(|line| line.contains("RX reply  ") && line.contains("87"));
    let row: Vec<_> = row.unwrap().split_whitespace().collect();
    assert_eq!(
        row[2..8],
        ["12.5", "%", "12.2", "%", "0.3", "87227"],
        "{out}"
    );
    assert!(out.contains("Batching cannot help"), "{out}");
    assert!(fs::read_to_string(svg).unwrap().starts_with("<svg "));

    let output = crypto(&[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], "wcprof-crypto-model");
    let load = &json["frames"][0]["load"];
    assert!((load["thread_percent"].as_f64().unwrap() - 12.46).abs() < 0.01);
    assert!((load["gain_points"].as_f64().unwrap() - 0.26).abs() < 0.01);
    assert_eq!(json["verdict"]["batching_helps"], false);
}

/// Check that a calibration of this machine's library is saved, is read again, and gives a model in
/// which a frame of sixteen times the bytes takes longer.
#[test]
fn calibrate_then_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("here.json");
    let path = path.to_str().unwrap();
    let output = crypto(&["calibrate", "-o", path]);
    assert!(output.status.success(), "{output:?}");
    let out = text(&output.stdout);
    assert!(out.starts_with("OpenSSL "), "{out}");
    assert!(out.contains("16 KiB") && out.contains("ns a call"), "{out}");
    assert!(out.contains(&format!("--calibration {path}")), "{out}");
    let json: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(json["schema"], "msgr-crypto-calibration");
    assert!(
        json["fit"]["decrypt"]["regimes"][0]["byte_ns"]
            .as_f64()
            .unwrap()
            > 0.0
    );

    let output = crypto(&["model", "--calibration", path, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ns = |name: &str| {
        let frames = json["frames"].as_array().unwrap();
        let frame = frames
            .iter()
            .find(|f| f["name"] == name && f["side"] == "tx");
        frame.unwrap()["now"]["ns"].as_f64().unwrap()
    };
    assert!(ns("4K write") > 0.0);
    // Far enough apart for any noise.
    assert!(ns("4K write") < ns("64K write, one buffer"));
}

/// Check that a run after the first one uses the calibration that was kept and says so, unless it is not to,
/// and that other settings of the CPU do not use it.
#[test]
fn kept_calibration() {
    let folder = tempfile::tempdir().unwrap();
    let said = |args: &[&str], ia32cap: Option<&str>| {
        let mut command = wcprof_testkit::wcprof();
        command.arg("crypto").args(args);
        command.env("XDG_CACHE_HOME", folder.path());
        command.env_remove("OPENSSL_ia32cap");
        command.envs(ia32cap.map(|value| ("OPENSSL_ia32cap", value)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stderr).to_owned()
    };
    said(&["calibrate"], None);
    let reused = said(&["model"], None);
    assert!(reused.contains(" was calibrated on "), "{reused}");
    assert!(reused.contains("`wcprof crypto calibrate` measures it anew"));
    for (args, ia32cap) in [
        (&["model", "--no-cache"][..], None),
        (&["model"], Some("~0x200000200000000")),
        (&["calibrate"], None),
    ] {
        let anew = said(args, ia32cap);
        assert!(anew.contains("wcprof: measuring OpenSSL "), "{anew}");
        assert!(!anew.contains(" was calibrated on "), "{anew}");
    }
}

/// Check that files that can not be used are refused with their name, the reason and exit code 2.
#[test]
fn bad_files() {
    let folder = tempfile::tempdir().unwrap();
    let shapes = |content: &str| {
        let path = file(folder.path(), "bad.toml", content);
        fails(&["model", "--speed", REPORT, "--shapes", &path], 2)
    };
    let error = shapes("version = 1\n[[frame]]\nname = 'a'\nside = 'rx'\ncalls = '16,oops'\n");
    assert!(
        error.contains("bad.toml`: frame `a`: `oops` is no call"),
        "{error}"
    );
    assert!(error.contains("hint: docs/crypto.md"), "{error}");
    assert!(shapes("version = 3\n").contains("shape format 3 is not known"));
    assert!(shapes("\u{0}").contains("not a file of shapes"));

    let calibration = |content: &str| {
        let path = file(folder.path(), "bad.json", content);
        fails(&["model", "--calibration", &path], 2)
    };
    assert!(calibration("{").contains("bad.json`: not a calibration"));
    assert!(calibration(r#"{"schema": "x\u001b", "version": 1}"#).contains("the schema is `x`"));
    let schema = "msgr-crypto-calibration";
    let error = calibration(&format!(r#"{{"schema": "{schema}", "version": 9}}"#));
    assert!(
        error.contains("calibration version 9 is not known"),
        "{error}"
    );
    assert!(
        error.contains("hint: `wcprof crypto calibrate -o FILE`"),
        "{error}"
    );

    let speed = file(
        folder.path(),
        "speed.txt",
        "OpenSSL 3.0.16\ntype 16 bytes\n",
    );
    let error = fails(&["model", "--speed", &speed], 2);
    assert!(error.contains("made by OpenSSL 3.0.16"), "{error}");
    let error = fails(&["model", "--speed", "/nowhere/speed.txt"], 2);
    assert!(
        error.contains("failed to read `/nowhere/speed.txt`: no such file"),
        "{error}"
    );
    let error = fails(&["model", "--calibration", "/dev/zero"], 2);
    assert!(error.contains("not a regular file"), "{error}");
}

/// Check that contradictory flags are refused before anything is measured.
#[test]
fn bad_flags() {
    for args in [
        &["model", "--threads", "3"][..],
        &["model", "--iops", "100"],
        &["model", "--threads", "0", "--iops", "100"],
        &["model", "--threads", "1", "--iops", "0"],
        &["model", "--speed", "a", "--calibration", "b"],
        &["calibrate", "--json", "--verify"],
        &["calibrate", "--shapes", "a"],
    ] {
        fails(args, 2);
    }
}

/// Check that a library that is none is refused with the reason and where to find the right one.
#[test]
fn bad_libraries() {
    let error = fails(&["calibrate", "--lib", "/dev/null"], 1);
    assert!(
        error.contains("failed to load `/dev/null`: it is not a regular file"),
        "{error}"
    );
    assert!(error.contains("/proc/PID/maps"), "{error}");
    let error = fails(&["calibrate", "--lib", REPORT], 1);
    assert!(error.contains("invalid ELF header"), "{error}");
}
