//! An object gateway in front of the cluster, and load on it through its Swift interface.

use std::net::TcpStream;
use std::process::Command;

use anyhow::{Context, Result};
use fs_err as fs;

use super::conf::GATEWAY;
use super::daemon::Daemon;
use super::place::{Lab, require_programs};
use crate::process::{Background, capture, command, log_to, wait_until};

/// The gateway's name in the cluster.
const NAME: &str = "client.rgw.a";

/// Starts the gateway and makes its user.
///
/// # Errors
/// When it is not installed or does not answer.
pub fn up(lab: &Lab) -> Result<Daemon> {
    require_programs("radosgw radosgw-admin curl")?;
    lab.require_cluster()?;
    let key = lab.run(&format!(
        "ceph auth get-or-create {NAME} mon 'allow rw' osd 'allow rwx'"
    ))?;
    fs::write(lab.file("rgw.keyring"), key + "\n")?;
    fs::create_dir_all(lab.file("rgw.a"))?;
    let conf = format!("-n {NAME} -c {}/ceph.conf", lab.cluster());
    // The socket is not in the configuration: `radosgw-admin` would make it, too.
    let socket = lab.file("rgw.a.asok");
    let line = format!("radosgw -f {conf} --admin-socket {}", socket.display());
    let gateway = lab.start("rgw.a", &line, false)?;
    wait_until("the gateway answers", 120, || {
        gateway.require_running()?;
        Ok(TcpStream::connect(GATEWAY).is_ok())
    })?;
    for words in [
        "user create --uid lab --display-name lab",
        "subuser create --uid lab --subuser lab:swift --access full --secret secret",
    ] {
        lab.run(&format!("radosgw-admin {words} {conf}"))?;
    }
    Ok(gateway)
}

/// Stores an object of 4 KiB, and reads it again and again on each of `n` connections until the result is
/// dropped.
///
/// # Errors
/// When the gateway refuses it.
pub fn read_object(lab: &Lab, n: u32) -> Result<Vec<Background>> {
    let object = store_object(lab)?;
    let get = || {
        let mut get = get(&object, 100_000_000);
        Background::start(log_to(&mut get, "/dev/null".as_ref())?)
    };
    (0..n).map(|_| get()).collect()
}

/// Stores such an object and reads it so many times.
///
/// # Errors
/// When the gateway refuses it.
pub fn read_object_times(lab: &Lab, times: u32) -> Result<()> {
    let object = store_object(lab)?;
    capture(&mut get(&object, times)).map(|_| ())
}

fn curl(words: &str) -> Command {
    command(&format!("curl --silent --fail {words}"))
}

/// Gives the object's address.
fn store_object(lab: &Lab) -> Result<String> {
    let login = "-i -H 'X-Auth-User: lab:swift' -H 'X-Auth-Key: secret'";
    let login = capture(curl(&format!("{login} http://{GATEWAY}/auth/1.0")))?;
    let mut headers = login.lines();
    let token = headers
        .find(|line| line.to_lowercase().starts_with("x-auth-token:"))
        .context("the gateway gave no token")?;
    let container = format!("http://{GATEWAY}/swift/v1/load");
    let content = lab.file("object");
    fs::write(&content, [b'x'; 4096])?;
    let put = format!("-X PUT -H '{}'", token.trim());
    capture(curl(&format!(
        "{put} -H 'X-Container-Read: .r:*' {container}"
    )))?;
    capture(curl(&format!("{put} {container}/o -T")).arg(content))?;
    Ok(format!("{container}/o"))
}

/// One name for each request; the gateway leaves out the query.
fn get(object: &str, times: u32) -> Command {
    curl(&format!("'{object}?n=[1-{times}]'"))
}
