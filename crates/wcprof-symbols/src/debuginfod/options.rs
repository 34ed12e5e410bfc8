//! Environment variables to a client's options, and what the client reports to its caller.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Most servers.
const MAX_URLS: usize = 32;
/// A file of a server that does not say how large it is, bytes.
const MAX_UNKNOWN_SIZE: u64 = 1 << 30;

/// How far a download is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Download {
    /// File name of the module that it is for, as the target has it: to be escaped.
    pub module: String,
    /// The server's host.
    pub server: String,
    /// Bytes that came.
    pub received: u64,
    /// Bytes of the whole file; `None` when the server does not say.
    pub size: Option<u64>,
}

/// A server that did not do what it should, for the first time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("debuginfod server `{server}`: {reason}{}", if *.given_up { "; going on without it" } else { "" })]
pub struct ServerFailure {
    /// Its URL, without user and password.
    pub server: String,
    /// Why.
    pub reason: String,
    /// It is not asked again.
    pub given_up: bool,
}

/// Called while a file comes, from any thread, some ten times a second.
pub type OnProgress = Arc<dyn Fn(&Download) + Send + Sync>;

/// Where downloaded files are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CachePath {
    /// The folder; it is made when it is needed.
    pub path: PathBuf,
    /// The user named just this folder. Otherwise it is used only if it belongs to the user, since
    /// `sudo` may leave another user's home.
    pub is_named: bool,
}

/// What a [`Debuginfod`](super::Debuginfod) needs to know.
#[derive(Clone)]
pub struct DebuginfodOptions {
    /// Servers, in the order in which they are asked. Only `http` and `https`.
    pub urls: Vec<String>,
    /// Servers that are not asked, because the policy before them wants signatures, which nothing here verifies.
    pub n_refused: usize,
    /// `None`: files are kept for this run only.
    pub cache: Option<CachePath>,
    /// A server that gives less than 100 KiB in this time is given up, as is one that loses this
    /// time without giving any file; `None` waits without end. Default: 90 s.
    pub timeout: Option<Duration>,
    /// Time to connect to a server, TLS included. Default: 5 s.
    pub connect_timeout: Duration,
    /// Time for one file. Default: none.
    pub max_time: Option<Duration>,
    /// Largest file, bytes. Default: none.
    pub max_size: Option<u64>,
    /// Largest file of a server that does not say its size, bytes. Default: 1 GiB.
    pub max_unknown_size: u64,
    /// Uses the proxy that `HTTPS_PROXY` and the like name. Default: true.
    pub proxy: bool,
    /// Told how far downloads are. Default: none.
    pub on_progress: Option<OnProgress>,
}

impl fmt::Debug for DebuginfodOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DebuginfodOptions")
            .field("urls", &self.urls)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl DebuginfodOptions {
    /// Servers by URL, and defaults for all else.
    pub fn new(urls: impl IntoIterator<Item = String>) -> Self {
        Self {
            urls: urls.into_iter().take(MAX_URLS).collect(),
            n_refused: 0,
            cache: None,
            timeout: Some(Duration::from_secs(90)),
            connect_timeout: Duration::from_secs(5),
            max_time: None,
            max_size: None,
            max_unknown_size: MAX_UNKNOWN_SIZE,
            proxy: true,
            on_progress: None,
        }
    }

    /// The options that the environment names (debuginfod-client-config(7)): `DEBUGINFOD_URLS`,
    /// `_CACHE_PATH`, `_TIMEOUT`, `_MAXTIME`, `_MAXSIZE`. `None` without a URL.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let text = |name: &str| variable(name)?.into_string().ok();
        let (mut urls, mut n_refused, mut is_enforcing) = (Vec::new(), 0, false);
        for word in text("DEBUGINFOD_URLS")?.split_whitespace() {
            match word.strip_prefix("ima:") {
                // A policy for the URLs behind it.
                Some(policy) => is_enforcing = policy != "ignore",
                None if is_enforcing => n_refused += 1,
                None => urls.push(word.to_owned()),
            }
        }
        if urls.is_empty() && n_refused == 0 {
            return None;
        }
        let defaults = Self::new(urls);
        let number = |name: &str| text(name)?.trim().parse::<i64>().ok();
        // 0 and less mean no limit.
        let limit = |value: i64| u64::try_from(value).ok().filter(|value| *value > 0);
        let seconds = |name: &str| number(name).map(|n| limit(n).map(Duration::from_secs));
        Some(Self {
            n_refused,
            cache: cache_path(&variable),
            timeout: seconds("DEBUGINFOD_TIMEOUT").unwrap_or(defaults.timeout),
            max_time: seconds("DEBUGINFOD_MAXTIME").flatten(),
            max_size: number("DEBUGINFOD_MAXSIZE").and_then(limit),
            ..defaults
        })
    }
}

/// `$DEBUGINFOD_CACHE_PATH`, the folder that old versions made, or `debuginfod_client` in the
/// user's cache folder.
fn cache_path(variable: &impl Fn(&str) -> Option<OsString>) -> Option<CachePath> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = set("DEBUGINFOD_CACHE_PATH") {
        return Some(CachePath {
            path: path.into(),
            is_named: true,
        });
    }
    let absolute = |name: &str| set(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let home = absolute("HOME");
    let old = home.as_ref().map(|h| h.join(".debuginfod_client_cache"));
    let path = old.filter(|old| old.is_dir()).or_else(|| {
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(home?.join(".cache")))?;
        Some(base.join("debuginfod_client"))
    })?;
    Some(CachePath {
        path,
        is_named: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(set: &[(&str, &str)]) -> Option<DebuginfodOptions> {
        DebuginfodOptions::from_environment(|name| {
            let found = set.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    /// Check that an empty or unset DEBUGINFOD_URLS means no client, and that servers whose files must be signed are
    /// refused up to the next policy.
    #[test]
    fn urls() {
        assert!(parse(&[]).is_none() && parse(&[("DEBUGINFOD_URLS", " ")]).is_none());
        let urls = "https://a/ ima:enforcing https://b https://c ima:ignore http://d:8002";
        let options = parse(&[("DEBUGINFOD_URLS", urls)]).unwrap();
        assert_eq!(options.urls, ["https://a/", "http://d:8002"]);
        assert_eq!(options.n_refused, 2);
    }

    /// Check defaults, limits, and that 0 lifts a limit.
    #[test]
    fn limits() {
        let urls = ("DEBUGINFOD_URLS", "http://a");
        let options = parse(&[urls]).unwrap();
        assert_eq!(options.timeout, Some(Duration::from_secs(90)));
        assert_eq!((options.max_size, options.max_time), (None, None));
        let options = parse(&[
            urls,
            ("DEBUGINFOD_TIMEOUT", "0"),
            ("DEBUGINFOD_MAXSIZE", "1000"),
            ("DEBUGINFOD_MAXTIME", "7"),
        ])
        .unwrap();
        assert_eq!(options.timeout, None);
        assert_eq!(options.max_size, Some(1000));
        assert_eq!(options.max_time, Some(Duration::from_secs(7)));
    }

    /// Check the places of the cache, best first.
    #[test]
    fn places() {
        let home = tempfile::tempdir().unwrap();
        let home_text = home.path().to_str().unwrap();
        let place = |more: &[(&str, &str)]| {
            let base = [("DEBUGINFOD_URLS", "http://a"), ("HOME", home_text)];
            let cache = parse(&[&base[..], more].concat()).unwrap().cache.unwrap();
            (cache.path.to_str().unwrap().to_owned(), cache.is_named)
        };
        let named = ("DEBUGINFOD_CACHE_PATH", "/named");
        let xdg = ("XDG_CACHE_HOME", "/xdg");
        assert_eq!(
            place(&[]),
            (format!("{home_text}/.cache/debuginfod_client"), false)
        );
        assert_eq!(place(&[xdg]), ("/xdg/debuginfod_client".to_owned(), false));
        let old = home.path().join(".debuginfod_client_cache");
        std::fs::create_dir(&old).unwrap();
        assert_eq!(place(&[xdg]), (old.to_str().unwrap().to_owned(), false));
        assert_eq!(place(&[xdg, named]), ("/named".to_owned(), true));
    }
}
