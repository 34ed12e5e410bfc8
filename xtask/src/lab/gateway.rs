//! An object gateway in front of the cluster, and load on it through its Swift interface.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fs_err as fs;
use ureq::Agent;

use super::conf::GATEWAY;
use super::daemon::Daemon;
use super::place::{Lab, require_programs};
use crate::process::{capture, wait_until};

/// The gateway's name in the cluster.
const NAME: &str = "client.rgw.a";

/// Starts the gateway and makes its user.
///
/// # Errors
/// When it is not installed or does not answer.
pub fn up(lab: &Lab) -> Result<Daemon> {
    require_programs("radosgw radosgw-admin")?;
    lab.require_cluster()?;
    let folder = lab.cluster();
    let mut make_key = lab.command(&format!("ceph auth get-or-create {NAME}"));
    let key = capture(make_key.args(["mon", "allow rw", "osd", "allow rwx"]))?;
    fs::write(folder.join("rgw.keyring"), key)?;
    fs::create_dir_all(folder.join("rgw.a"))?;
    let log = lab.log("rgw.a.out");
    let mut command = lab.command(&format!("radosgw -n {NAME} -f -c"));
    let gateway = Daemon::start(&folder, "rgw.a", command.arg(lab.conf()), &log)?;
    wait_until("the gateway answers", Duration::from_secs(120), || {
        gateway.require_running(&log)?;
        Ok(TcpStream::connect(GATEWAY).is_ok())
    })?;
    for words in [
        "user create --uid lab --display-name lab",
        "subuser create --uid lab --subuser lab:swift --access full --secret secret",
    ] {
        let mut admin = lab.command(&format!("radosgw-admin {words} -n {NAME} -c"));
        capture(admin.arg(lab.conf()))?;
    }
    Ok(gateway)
}

/// Operations that are asked for one after the other on some connections, until it is dropped.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    n_done: Arc<AtomicU64>,
    jobs: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Stores an object of `size` bytes, and reads it on `n_jobs` connections.
    ///
    /// # Errors
    /// When the gateway refuses it.
    pub fn start(n_jobs: u32, size: usize) -> Result<Self> {
        let agent = connect();
        let login = agent
            .get(format!("http://{GATEWAY}/auth/1.0"))
            .header("X-Auth-User", "lab:swift")
            .header("X-Auth-Key", "secret")
            .call()?;
        let token = login.headers().get("X-Auth-Token");
        let token = token.context("the gateway gave no token")?;
        let container = format!("http://{GATEWAY}/swift/v1/load");
        let object = format!("{container}/o");
        agent
            .put(&container)
            .header("X-Auth-Token", token)
            .header("X-Container-Read", ".r:*")
            .send_empty()?;
        agent
            .put(&object)
            .header("X-Auth-Token", token)
            .send(vec![b'x'; size])?;
        let stop = Arc::new(AtomicBool::new(false));
        let n_done = Arc::new(AtomicU64::new(0));
        let job = |_| {
            let (stop, n_done) = (Arc::clone(&stop), Arc::clone(&n_done));
            let (agent, object) = (connect(), object.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    agent.get(&object).call()?.body_mut().read_to_vec()?;
                    n_done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        };
        let jobs = (0..n_jobs).map(job).collect();
        Ok(Self { stop, n_done, jobs })
    }

    /// Operations done so far.
    pub fn n_done(&self) -> u64 {
        self.n_done.load(Ordering::Relaxed)
    }

    /// Ends it.
    ///
    /// # Errors
    /// What a job met.
    pub fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for job in self.jobs.drain(..) {
            match job.join() {
                Ok(result) => result?,
                Err(_) => bail!("a job of the load panicked"),
            }
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Keeps its connection between requests.
fn connect() -> Agent {
    let config = Agent::config_builder().timeout_global(Some(Duration::from_secs(60)));
    config.build().into()
}
