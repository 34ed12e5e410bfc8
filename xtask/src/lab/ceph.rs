//! One monitor, some OSDs and a filled block device image, made from nothing each time.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fs_err as fs;

use super::conf::{self, Options};
use super::daemon::Daemon;
use super::place::{IMAGE, Lab, POOL, preload_tcmalloc, require_programs};
use super::vm;
use crate::process::{capture, capture_json, wait_until};

/// An image of one GiB fits into the cache of one OSD.
const IMAGE_SIZE: &str = "1024M";

/// Makes a new cluster; what an earlier one left is removed.
///
/// # Errors
/// When one still runs, or a program fails.
pub fn up(lab: &Lab, options: &Options) -> Result<()> {
    require_programs("ceph-mon ceph-osd ceph ceph-authtool monmaptool rbd")?;
    let folder = lab.cluster();
    ensure!(
        Daemon::all(&folder)?.is_empty(),
        "a cluster still runs: `cargo xtask lab down` first"
    );
    wipe(lab)?;
    fs::create_dir_all(folder.join("log"))?;
    fs::create_dir_all(folder.join("mon.a"))?;
    let result = make(lab, options);
    if result.is_err() {
        println!(
            "The cluster could not be made; stopping what runs. Logs: {}",
            folder.join("log").display()
        );
        down(lab, false)?;
    }
    result
}

fn make(lab: &Lab, options: &Options) -> Result<()> {
    let start = Instant::now();
    let say = |what: &dyn std::fmt::Display| {
        println!("[{:5.1} s] {what}", start.elapsed().as_secs_f64());
    };
    let cluster_id = make_uuid()?;
    fs::write(lab.conf(), conf::text(&lab.cluster(), &cluster_id, options))?;
    make_keys(lab)?;
    say(&start_monitor(lab, &cluster_id, options.tcmalloc)?);
    for id in 0..options.osds {
        say(&start_osd(lab, id, options.tcmalloc)?);
    }
    wait_until("all OSDs are up", Duration::from_secs(120), || {
        let stat = capture_json(&mut lab.command("ceph osd stat -f json"))?;
        Ok(stat["num_up_osds"] == options.osds)
    })?;
    // Only silences a health warning.
    let _ = capture(&mut lab.command("ceph osd require-osd-release pacific"));
    for words in [
        format!("ceph osd pool create {POOL} 32 32 replicated"),
        format!("ceph osd pool application enable {POOL} rbd"),
    ] {
        capture(&mut lab.command(&words))?;
    }
    let features = "layering,exclusive-lock";
    rbd(
        lab,
        &format!("create --size {IMAGE_SIZE} --image-feature {features}"),
    )?;
    say(&format!("image {POOL}/{IMAGE}"));
    // Reads of what was never written do not reach the store, and only reads fill its cache.
    for (direction, n_threads) in [("write", 8), ("read", 4)] {
        rbd(
            lab,
            &format!(
                "bench --io-type {direction} --io-pattern seq --io-size 4M --io-threads {n_threads} \
                 --io-total {IMAGE_SIZE}"
            ),
        )?;
        say(&format!("{direction} of the whole image"));
    }
    let (mode, osds, tcmalloc) = (options.mode, options.osds, options.tcmalloc);
    let description = format!("{mode:?} bluestore OSDs={osds} tcmalloc={tcmalloc}").to_lowercase();
    fs::write(lab.description(), format!("{description}\n"))?;
    say(&description);
    println!(
        "for ceph, rbd and rados: export CEPH_CONF={}",
        lab.conf().display()
    );
    Ok(())
}

/// Stops the virtual machine, the OSDs and the monitor.
///
/// # Errors
/// When one of them does not end.
pub fn down(lab: &Lab, wipe_too: bool) -> Result<()> {
    vm::down(lab)?;
    let daemons = Daemon::all(&lab.cluster())?.into_iter();
    let (monitors, others): (Vec<_>, Vec<_>) =
        daemons.partition(|daemon| daemon.name.starts_with("mon."));
    // An OSD tells its monitor that it goes.
    for daemon in others.into_iter().chain(monitors) {
        daemon.stop(Duration::from_secs(30))?;
    }
    if wipe_too { wipe(lab) } else { Ok(()) }
}

/// Removes the folder of a cluster that does not run, and nothing that is not one.
fn wipe(lab: &Lab) -> Result<()> {
    let folder = lab.cluster();
    if !folder.exists() {
        return Ok(());
    }
    ensure!(
        folder.join("ceph.conf").exists() || fs::read_dir(&folder)?.next().is_none(),
        "`{}` is not a cluster of the lab; remove it yourself or set WCPROF_LAB",
        folder.display()
    );
    Ok(fs::remove_dir_all(&folder)?)
}

fn make_keys(lab: &Lab) -> Result<()> {
    let folder = lab.cluster();
    let (monitor, admin) = (folder.join("mon.keyring"), folder.join("admin.keyring"));
    let tool = || lab.command("ceph-authtool");
    let key = ["--gen-key", "-n", "mon.", "--cap", "mon", "allow *"];
    capture(tool().arg("-C").arg(&monitor).args(key))?;
    let mut make_admin = tool();
    make_admin.arg("-C").arg(&admin);
    make_admin.args(["--gen-key", "-n", "client.admin"]);
    for service in ["mon", "osd", "mds", "mgr"] {
        make_admin.args(["--cap", service, "allow *"]);
    }
    capture(&mut make_admin)?;
    capture(tool().arg(&monitor).arg("--import-keyring").arg(&admin))?;
    Ok(())
}

fn start_monitor(lab: &Lab, cluster_id: &str, tcmalloc: bool) -> Result<Daemon> {
    let folder = lab.cluster();
    let map = folder.join("monmap");
    let words = format!("monmaptool --create --clobber --fsid {cluster_id} --addv a");
    capture(lab.command(&words).arg(conf::MONITOR).arg(&map))?;
    let mut format = daemon(lab, "ceph-mon --mkfs", "a");
    format.arg("--monmap").arg(&map);
    capture(format.arg("--keyring").arg(folder.join("mon.keyring")))?;
    let monitor = start(lab, "mon.a", daemon(lab, "ceph-mon -f", "a"), tcmalloc)?;
    wait_until("the monitor answers", Duration::from_secs(60), || {
        monitor.require_running(&lab.log("mon.a.out"))?;
        let mut ask = lab.command("ceph --connect-timeout 2 mon stat");
        Ok(capture(&mut ask).is_ok())
    })?;
    Ok(monitor)
}

fn start_osd(lab: &Lab, id: u32, tcmalloc: bool) -> Result<Daemon> {
    let name = format!("osd.{id}");
    let id = id.to_string();
    let folder = lab.cluster().join(&name);
    fs::create_dir_all(&folder)?;
    let uuid = make_uuid()?;
    let key = capture(&mut lab.command("ceph-authtool --gen-print-key"))?;
    let key = key.trim();
    let secret = folder.join("secret.json");
    fs::write(&secret, format!("{{\"cephx_secret\": \"{key}\"}}\n"))?;
    let given = capture(lab.command(&format!("ceph osd new {uuid} -i")).arg(&secret))?;
    let given = given.trim();
    ensure!(given == id, "the monitor gave id {given} to {name}");
    let mut add_key = lab.command("ceph-authtool -C");
    add_key.arg(folder.join("keyring"));
    capture(add_key.args(["--name", &name, "--add-key", key]))?;
    capture(daemon(lab, "ceph-osd --mkfs", &id).args(["--osd-uuid", &uuid]))?;
    let osd = start(lab, &name, daemon(lab, "ceph-osd -f", &id), tcmalloc)?;
    osd.require_running(&lab.log(&format!("{name}.out")))?;
    Ok(osd)
}

/// A daemon's program with the cluster's configuration.
fn daemon(lab: &Lab, words: &str, id: &str) -> Command {
    let mut command = lab.command(words);
    command.arg("-c").arg(lab.conf()).args(["-i", id]);
    command
}

fn start(lab: &Lab, name: &str, mut command: Command, tcmalloc: bool) -> Result<Daemon> {
    if tcmalloc {
        preload_tcmalloc(&mut command)?;
    }
    let log = lab.log(&format!("{name}.out"));
    Daemon::start(&lab.cluster(), name, &mut command, &log)
}

fn rbd(lab: &Lab, words: &str) -> Result<String> {
    // A cluster that does not answer would keep it waiting for ever. In our process group, so that it ends
    // with us.
    let words = format!("timeout --foreground 300 rbd {words} {POOL}/{IMAGE}");
    capture(&mut lab.command(&words))
}

fn make_uuid() -> Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?
        .trim()
        .to_owned())
}
