//! Limits to an HTTP client: TLS by the certificates that this system trusts, proxies of the environment.

use std::sync::Arc;
use std::time::Duration;

use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Proxy};

/// How long a connection without a request is kept. A server or proxy may end it at any time, and a request that is sent just
/// then is lost without a word.
const MAX_IDLE: Duration = Duration::from_secs(2);

/// What a client waits for at most; `None` waits without end.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// To find a host, and to connect to it, TLS included.
    pub connect: Option<Duration>,
    /// For a request to leave, for the beginning of its answer, and for each next part of it.
    pub step: Option<Duration>,
    /// For all of a request and its answer.
    pub whole: Option<Duration>,
    /// Other addresses that a server may name one after the other.
    pub max_redirects: u32,
    /// Uses the proxy that `HTTPS_PROXY` and the like name, but for hosts in `NO_PROXY`.
    pub proxy: bool,
}

/// A client. It takes an answer with any status.
pub fn client(limits: &ClientLimits) -> Agent {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(certificates())
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .user_agent(concat!("wcprof/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .max_redirects(limits.max_redirects)
        .max_redirects_will_error(limits.max_redirects > 0)
        .timeout_resolve(limits.connect)
        .timeout_connect(limits.connect)
        .timeout_send_request(limits.step)
        .timeout_recv_response(limits.step)
        .timeout_per_read(limits.step)
        .timeout_per_write(limits.step)
        .timeout_per_call(limits.whole)
        .max_idle_age(MAX_IDLE)
        .proxy(match limits.proxy {
            true => Proxy::try_from_env(),
            false => None,
        });
    config.build().new_agent()
}

/// Those that this system trusts, or that `SSL_CERT_FILE` and `SSL_CERT_DIR` name; what cannot be read is left out.
fn certificates() -> RootCerts {
    let found = rustls_native_certs::load_native_certs().certs;
    let certificates = found
        .iter()
        .map(|der| Certificate::from_der(der).to_owned());
    RootCerts::Specific(Arc::new(certificates.collect()))
}
