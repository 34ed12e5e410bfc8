//! A TOML file to flags: its keys are the names of flags, and what is typed counts more.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use clap::ArgMatches;
use clap::parser::ValueSource;
use toml::{Table, Value};
use wcprof_host::own_files::is_trusted;

use super::args::AgentArgs;
use crate::cli::{Cli, Command};
use crate::failure::Failure;
use crate::help;

/// Bytes of a file.
const MAX_BYTES: usize = 1 << 20;

/// The flags that were typed, and those of the file that they name.
pub(super) fn with_file(words: &[OsString]) -> Result<AgentArgs, Failure> {
    let typed = agent(help::parse(words.iter().cloned()).map_err(plain)?)?;
    let Some(path) = &typed.config else {
        return Ok(typed);
    };
    let text = read(path).map_err(Failure::usage)?;
    let matches = help::command().try_get_matches_from(words).map_err(plain)?;
    let typed = matches.subcommand().map(|(_, typed)| typed);
    let flags = flags(&text, typed).map_err(|error| in_file(path, error))?;
    let all = words.iter().cloned().chain(flags);
    agent(help::parse(all).map_err(|error| in_file(path, plain_text(&error)))?)
}

/// The text of a file that nobody but the user and root can write: it says where profiles go, and which file has the
/// password for it.
fn read(path: &Path) -> anyhow::Result<String> {
    let failed = || format!("failed to read `{}`", path.display());
    let file = File::open(path).with_context(failed)?;
    let metadata = file.metadata().with_context(failed)?;
    let is_own = is_trusted(metadata.uid()) && metadata.mode() & 0o022 == 0;
    anyhow::ensure!(
        is_own || !metadata.is_file(),
        "others can write `{}`; `chmod go-w` and `chown root` keep it from them",
        path.display()
    );
    let mut text = String::new();
    let most = MAX_BYTES as u64 + 1;
    file.take(most)
        .read_to_string(&mut text)
        .with_context(failed)?;
    Ok(text)
}

fn agent(cli: Cli) -> Result<AgentArgs, Failure> {
    match cli.command {
        Command::Agent(args) => Ok(*args),
        _ => Err(Failure::usage(anyhow!("not the command `agent`"))),
    }
}

fn plain(error: clap::Error) -> Failure {
    Failure::usage(plain_text(&error))
}

/// What clap says, without its usage.
fn plain_text(error: &clap::Error) -> anyhow::Error {
    let text = error.to_string();
    let text = text.split("\n\n").next().unwrap_or(&text);
    anyhow!("{}", text.trim_start_matches("error: "))
}

fn in_file(path: &Path, error: anyhow::Error) -> Failure {
    let error = error.context(format!("in `{}`", path.display()));
    Failure::usage(error)
        .hint("its keys are the flags of `wcprof agent --help`, without dashes in front")
}

/// The flags of a file that were not typed.
fn flags(text: &str, typed: Option<&ArgMatches>) -> anyhow::Result<Vec<OsString>> {
    anyhow::ensure!(text.len() <= MAX_BYTES, "more than {MAX_BYTES} bytes");
    let table: Table = text.parse()?;
    let mut flags = Vec::new();
    for (key, value) in &table {
        let is_flag = !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        anyhow::ensure!(is_flag && key != "config", "`{key}` is no flag for a file");
        let source = typed.and_then(|typed| source_of(typed, key));
        if source != Some(ValueSource::CommandLine) {
            add(&mut flags, key, value)?;
        }
    }
    Ok(flags)
}

/// Where the value of a flag is from; `None` also for what is no flag.
fn source_of(typed: &ArgMatches, key: &str) -> Option<ValueSource> {
    let id = key.replace('-', "_");
    let is_known = typed.try_contains_id(&id).is_ok();
    is_known.then(|| typed.value_source(&id)).flatten()
}

fn add(flags: &mut Vec<OsString>, key: &str, value: &Value) -> anyhow::Result<()> {
    let text = match value {
        Value::Boolean(true) => {
            flags.push(format!("--{key}").into());
            return Ok(());
        }
        Value::Boolean(false) => return Ok(()),
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Array(values) => {
            let is_flat = |value: &&Value| !matches!(value, Value::Array(_) | Value::Boolean(_));
            anyhow::ensure!(
                values.iter().filter(is_flat).count() == values.len(),
                "`{key}`: a list of lists"
            );
            return values.iter().try_for_each(|value| add(flags, key, value));
        }
        Value::Datetime(_) | Value::Table(_) => anyhow::bail!("`{key}`: no value of a flag"),
    };
    flags.push(format!("--{key}={text}").into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Check that a file which others can write is refused.
    #[test]
    fn writable_by_others() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "rate = 49").unwrap();
        let set = |mode| {
            file.as_file()
                .set_permissions(PermissionsExt::from_mode(mode))
        };
        set(0o644).unwrap();
        assert_eq!(read(file.path()).unwrap(), "rate = 49");
        for mode in [0o664, 0o646] {
            set(mode).unwrap();
            let error = read(file.path()).unwrap_err().to_string();
            assert!(error.contains("others can write"), "{error}");
        }
    }

    fn parsed(file: &str, typed: &[&str]) -> Result<AgentArgs, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.toml");
        std::fs::write(&path, file).unwrap();
        let path = path.to_str().unwrap();
        let words = ["wcprof", "agent", "--config", path];
        let words = words.iter().chain(typed);
        let words: Vec<OsString> = words.map(OsString::from).collect();
        with_file(&words).map_err(|failure| failure.to_string())
    }

    /// Check values of each kind, that what is typed replaces what the file says, and that an empty file changes
    /// nothing.
    #[test]
    fn values() {
        let file = "osd = [\"*\"]\ninterval = \"10s\"\nrate = 29\nidle = true\nno-inline = false\n\
            store-kind = \"otlp\"\nlabel = [\"cluster=a\", \"rack=2\"]\n\
            trigger = \"lock of tp_osd_tp > 30% over 5s\"\n";
        let args = parsed(file, &["--rate", "31", "--label", "cluster=b"]).unwrap();
        assert_eq!(args.found.osd, ["*"]);
        assert_eq!(args.interval, Duration::from_secs(10));
        assert_eq!((args.sampling.rate, args.sampling.max_cpu), (31, 1));
        assert!(args.store.idle && !args.symbols.no_inline);
        assert_eq!(args.store.label, [("cluster".to_owned(), "b".to_owned())]);
        assert_eq!(args.recorder.trigger.len(), 1);
        // Together they are complete.
        let args = parsed("user = \"me\"", &["--password-file", "p"]).unwrap();
        assert!(args.store.user.is_some() && args.store.password_file.is_some());
        let args = parsed("", &[]).unwrap();
        assert_eq!(args.interval, Duration::from_secs(30));
        assert_eq!((args.sampling.rate, args.symbols.max_memory), (19, 250));
    }

    /// Check that mistakes are refused by name.
    #[test]
    fn mistakes() {
        for (file, words) in [
            ("interval = ", &["agent.toml", "line 1"][..]),
            ("intervall = \"1s\"", &["agent.toml", "--intervall"]),
            ("interval = \"1 year\"", &["agent.toml", "--interval"]),
            ("config = \"x\"", &["`config` is no flag"]),
            ("rate = {a = 1}", &["`rate`: no value"]),
            ("osd = [[1]]", &["`osd`: a list of lists"]),
            ("label = \"0=x\"", &["agent.toml", "--label"]),
            ("\"osd=1 --vm\" = 1", &["is no flag"]),
        ] {
            let error = parsed(file, &[]).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{file}: {error}");
            }
        }
        let missing = ["wcprof", "agent", "--config", "/nonexistent"].map(OsString::from);
        let error = with_file(&missing).unwrap_err().to_string();
        assert!(error.contains("/nonexistent"), "{error}");
    }
}
