//! Time inside a libcrypto without symbols: it has stable names, and hotspot rules count it where named
//! callers make it certain.

use std::path::{Path, PathBuf};
use std::process::Command;

use wcprof_symbols::FunctionStarts;
use wcprof_symbols::elf::ElfFile;
use wcprof_types::Svma;

use wcprof_testkit::{Attach, Engine, Folded, Recording, RemoteProcess, alone, printed, text};

/// Frames of the messenger's thread, as the rule wants them.
const MESSENGER: [&str; 2] = [
    "ceph::crypto::onwire::AES128GCM_OnWireRxHandler::authenticated_decrypt_update",
    "EVP_DecryptUpdate",
];

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("failed to run {command:?}: {e}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    text(&output.stdout).to_owned()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/src")
        .join(name)
}

/// The program, linked with `library`.
fn program(folder: &Path, flags: &[&str], library: &str) -> PathBuf {
    let to = folder.join("stripped");
    let mut command = Command::new("g++");
    command.args([
        "-std=c++17",
        "-O2",
        "-fno-optimize-sibling-calls",
        "-pthread",
    ]);
    command.args(flags).arg(source("stripped.cpp"));
    run(command.arg("-o").arg(&to).arg(library));
    to
}

fn record(program: &Path) -> Recording {
    let target = RemoteProcess::start(program);
    Attach::new(Engine::Procfs, target.pid()).run()
}

/// Time on a CPU, of one thread.
fn busy(folded: &Folded, thread: &str) -> Folded {
    folded.thread(thread).states(&["[on-cpu]"]).with_stack()
}

/// Leaf functions without a name, by how long they were the leaf, longest first.
fn unnamed_leaves(folded: &Folded) -> Vec<(String, u64)> {
    let mut leaves: Vec<(String, u64)> = Vec::new();
    for line in &folded.lines {
        let Some(leaf) = line.frames.last().filter(|leaf| leaf.contains("+0x")) else {
            continue;
        };
        match leaves.iter_mut().find(|(name, _)| name == leaf) {
            Some((_, weight)) => *weight += line.weight,
            None => leaves.push((leaf.clone(), line.weight)),
        }
    }
    leaves.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    leaves
}

/// The finding of a rule: nanoseconds that it counts, and the pools that it is about.
fn finding(recording: &Recording, rule: &str) -> Option<(u64, Vec<String>)> {
    let output = printed("doctor", &recording.path(), &["--json"]);
    let document: serde_json::Value = serde_json::from_str(&output).expect("JSON");
    let findings = document["findings"].as_array().expect("findings").clone();
    let finding = findings.iter().find(|finding| finding["rule"] == rule)?;
    let pools = finding["pools"].as_array().expect("pools").iter();
    let pools = pools.filter_map(|pool| pool.as_str().map(str::to_owned));
    Some((
        finding["basis"]["matched_ns"].as_u64().expect("time"),
        pools.collect(),
    ))
}

/// What the rules must count: the messenger's decryption, the other one, and no hashing.
#[track_caller]
fn check_rules(recording: &Recording, folded: &Folded) {
    for (rule, thread, chain) in [
        ("aes-gcm", "msgr-worker-0", &MESSENGER[..]),
        ("cipher", "tls-io", &["tls_read", "EVP_DecryptUpdate"]),
    ] {
        let (matched, pools) = finding(recording, rule).unwrap_or_else(|| {
            panic!("no finding {rule}:\n{}", busy(folded, thread).show());
        });
        let counted = busy(folded, thread).chain(chain).total() as f64;
        let share = matched as f64 / 1000.0 / counted;
        assert!((share - 1.0).abs() < 0.02, "{rule}: {share}");
        assert_eq!(pools.len(), 1, "{rule}: {pools:?}");
        assert!(
            !pools.iter().any(|pool| pool.starts_with("hasher")),
            "{rule}"
        );
    }
}

/// Check that the functions of a small stripped library are named after where their FDEs begin, each
/// by one name alone, and that rules count what lies below the exported callers, and nothing else.
#[test]
fn own_library() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let library = folder.path().join("libcrypto.so.3");
    let with_symbols = folder.path().join("with-symbols");
    for (to, flag) in [(&library, "-s"), (&with_symbols, "-g0")] {
        let mut command = Command::new("gcc");
        command.args(["-std=gnu11", "-O2", "-shared", "-fPIC", flag]);
        command.args(["-fno-optimize-sibling-calls", "-Wl,-soname,libcrypto.so.3"]);
        run(command.arg(source("stripped_crypto.c")).arg("-o").arg(to));
    }
    let symbols = run(Command::new("nm").arg(&with_symbols));
    let name_of = |function: &str| {
        let line = symbols.lines().find(|line| line.ends_with(function));
        let address = line
            .and_then(|line| line.split(' ').next())
            .expect("symbol");
        let address = u64::from_str_radix(address, 16).expect("address");
        format!("libcrypto.so.3+{address:#x}")
    };
    let rpath = format!("-Wl,-rpath,{}", folder.path().display());
    let program = program(folder.path(), &[&rpath], &library.to_string_lossy());
    let _alone = alone();
    let recording = record(&program);
    let folded = recording.folded();
    for (thread, kernel) in [
        ("msgr-worker-0", "ghash_kernel"),
        ("tls-io", "ghash_kernel"),
        ("hasher", "sha_block"),
    ] {
        let busy = busy(&folded, thread);
        let leaves = unnamed_leaves(&busy);
        let (name, weight) = leaves.first().expect("an unnamed leaf");
        assert_eq!(*name, name_of(kernel), "{thread}:\n{}", busy.show());
        let share = *weight as f64 / busy.total() as f64;
        assert!(share > 0.9, "{thread}: {share}\n{}", busy.show());
        let known = ["ghash_kernel", "gcm_cipher", "sha_block"].map(name_of);
        for (name, _) in &leaves {
            assert!(known.contains(name), "{thread}: {name}\n{}", busy.show());
        }
    }
    check_rules(&recording, &folded);
}

/// Check the same with the system's libcrypto: its unnamed functions begin where FDEs do, the hottest is
/// the same in two recordings, and rules count it.
#[test]
fn system_library() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let program = program(folder.path(), &["-DREAL"], "-lcrypto");
    let _alone = alone();
    let recordings = [record(&program), record(&program)];
    let folded = recordings.each_ref().map(Recording::folded);
    let tables = recordings[0].trace().0.tables;
    let module = tables
        .modules
        .iter()
        .find(|module| module.file_name().starts_with("libcrypto.so"))
        .expect("libcrypto is mapped");
    let elf = std::fs::File::open(&module.path).expect("libcrypto can be read");
    let elf = ElfFile::from_file(elf).expect("an ELF file");
    let starts = FunctionStarts::read(&elf).expect("call frame information");
    let hottest = folded.each_ref().map(|folded| {
        let leaves = unnamed_leaves(&busy(folded, "msgr-worker-0"));
        for (name, _) in &leaves {
            let (_, offset) = name.rsplit_once("+0x").expect("an offset");
            let offset = Svma(u64::from_str_radix(offset, 16).expect("hexadecimal"));
            let found = starts.function_at(offset).map(|(start, _)| start);
            assert_eq!(found, Some(offset), "{name} is not where a function begins");
        }
        leaves.first().map(|(name, _)| name.clone())
    });
    assert_eq!(hottest[0], hottest[1]);
    for (recording, folded) in recordings.iter().zip(&folded) {
        check_rules(recording, folded);
    }
}
