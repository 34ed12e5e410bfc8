//! One monitor, some OSDs and a filled block device image, made from nothing each time.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::conf::{self, Options};
use super::place::{IMAGE, Lab, POOL, require_programs};
use super::vm;
use crate::process::{capture_json, wait_until};

/// An image of one GiB fits into the cache of one OSD.
const IMAGE_SIZE: &str = "1024M";
/// How all of it is read or written.
const BENCH: &str = "--io-pattern seq --io-size 4M --io-total 1024M";

/// Makes a new cluster; what an earlier one left is removed.
///
/// # Errors
/// When one still runs, or a program fails.
pub fn up(lab: &Lab, options: &Options) -> Result<()> {
    require_programs("ceph-mon ceph-osd ceph ceph-authtool monmaptool rbd")?;
    lab.require_none()?;
    wipe(lab)?;
    fs::create_dir_all(lab.file("log"))?;
    fs::create_dir_all(lab.file("mon.a"))?;
    let result = make(lab, options);
    if result.is_err() {
        let log = lab.file("log");
        println!(
            "The cluster could not be made; stopping what runs. Logs: {}",
            log.display()
        );
        down(lab, false)?;
    }
    result
}

fn make(lab: &Lab, options: &Options) -> Result<()> {
    let start = Instant::now();
    let say = |what: &str| println!("[{:5.1} s] {what}", start.elapsed().as_secs_f64());
    let folder = lab.cluster();
    let id = make_uuid()?;
    fs::write(lab.file("ceph.conf"), conf::text(&folder, &id, options))?;
    for line in [
        format!("ceph-authtool -C {folder}/mon.keyring --gen-key -n mon. --cap mon 'allow *'"),
        format!(
            "ceph-authtool -C {folder}/admin.keyring --gen-key -n client.admin --cap mon 'allow *' \
             --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *'"
        ),
        format!("ceph-authtool {folder}/mon.keyring --import-keyring {folder}/admin.keyring"),
        format!(
            "monmaptool --create --fsid {id} --addv a {} {folder}/monmap",
            conf::MONITOR
        ),
        format!(
            "ceph-mon --mkfs -c {folder}/ceph.conf -i a --monmap {folder}/monmap --keyring {folder}/mon.keyring"
        ),
    ] {
        lab.run(&line)?;
    }
    start_monitor(lab, options)?;
    say("mon.a");
    for id in 0..options.osds {
        make_osd(lab, id)?;
        start_osd(lab, id, options)?;
        say(&format!("osd.{id}"));
    }
    wait_for_osds(lab, options)?;
    // Only silences a health warning.
    let _ = lab.run("ceph osd require-osd-release pacific");
    lab.run(&format!("ceph osd pool create {POOL} 32 32 replicated"))?;
    lab.run(&format!("ceph osd pool application enable {POOL} rbd"))?;
    rbd(
        lab,
        &format!("create --size {IMAGE_SIZE} --image-feature layering,exclusive-lock"),
    )?;
    // Reads of what was never written do not reach the store.
    rbd(
        lab,
        &format!("bench --io-type write --io-threads 8 {BENCH}"),
    )?;
    fill_cache(lab)?;
    say("image");
    describe(lab, options)?;
    println!("for ceph, rbd and rados: export CEPH_CONF={folder}/ceph.conf");
    Ok(())
}

/// Starts the daemons of a cluster again, as these options say; its data stay. What runs of it, the virtual machine too, is
/// stopped before.
///
/// # Errors
/// When no cluster was made, with as many OSDs, or a daemon neither ends nor starts.
pub fn restart(lab: &Lab, options: &Options) -> Result<()> {
    down(lab, false)?;
    fs::remove_file(lab.description())?;
    let conf = fs::read_to_string(lab.file("ceph.conf"))?;
    let id = conf.lines().find_map(|line| line.strip_prefix("fsid = "));
    let id = id.context("the cluster's configuration has no `fsid`")?;
    fs::write(
        lab.file("ceph.conf"),
        conf::text(&lab.cluster(), id, options),
    )?;
    start_monitor(lab, options)?;
    for id in 0..options.osds {
        start_osd(lab, id, options)?;
    }
    wait_for_osds(lab, options)?;
    fill_cache(lab)?;
    describe(lab, options)
}

/// Says that the cluster is complete, and how it was made.
fn describe(lab: &Lab, options: &Options) -> Result<()> {
    let (mode, osds, tcmalloc) = (options.mode, options.osds, options.tcmalloc);
    let description = format!("{mode:?} bluestore OSDs={osds} tcmalloc={tcmalloc}").to_lowercase();
    println!("{description}");
    Ok(fs::write(lab.description(), format!("{description}\n"))?)
}

/// Runs `rbd` on the image. A cluster that does not answer would keep it waiting for ever. In this process group, so that Ctrl-C
/// ends it.
fn rbd(lab: &Lab, words: &str) -> Result<()> {
    lab.run(&format!(
        "timeout --foreground 300 rbd {words} {POOL}/{IMAGE}"
    ))?;
    Ok(())
}

/// Reads the image once: only reads fill the cache of an OSD.
fn fill_cache(lab: &Lab) -> Result<()> {
    rbd(lab, &format!("bench --io-type read --io-threads 4 {BENCH}"))
}

fn start_monitor(lab: &Lab, options: &Options) -> Result<()> {
    let line = format!("ceph-mon -f -c {}/ceph.conf -i a", lab.cluster());
    let monitor = lab.start("mon.a", &line, options.tcmalloc)?;
    wait_until("the monitor answers", 60, || {
        monitor.require_running()?;
        Ok(lab.run("ceph --connect-timeout 2 mon stat").is_ok())
    })
}

fn wait_for_osds(lab: &Lab, options: &Options) -> Result<()> {
    wait_until("all OSDs are up", 120, || {
        let stat = capture_json(lab.command("ceph osd stat -f json"))?;
        Ok(stat["num_up_osds"] == options.osds)
    })
}

/// Registers an OSD with the monitor, and makes its store.
fn make_osd(lab: &Lab, id: u32) -> Result<()> {
    let (name, conf) = (format!("osd.{id}"), format!("{}/ceph.conf", lab.cluster()));
    let folder = format!("{}/{name}", lab.cluster());
    fs::create_dir_all(&folder)?;
    let (uuid, key) = (make_uuid()?, lab.run("ceph-authtool --gen-print-key")?);
    let secret = serde_json::json!({"cephx_secret": key});
    fs::write(format!("{folder}/secret.json"), secret.to_string())?;
    let given = lab.run(&format!("ceph osd new {uuid} -i {folder}/secret.json"))?;
    ensure!(
        given == id.to_string(),
        "the monitor gave id {given} to {name}"
    );
    lab.run(&format!(
        "ceph-authtool -C {folder}/keyring --name {name} --add-key {key}"
    ))?;
    lab.run(&format!(
        "ceph-osd --mkfs -c {conf} -i {id} --osd-uuid {uuid}"
    ))?;
    Ok(())
}

fn start_osd(lab: &Lab, id: u32, options: &Options) -> Result<()> {
    let line = format!("ceph-osd -f -c {}/ceph.conf -i {id}", lab.cluster());
    lab.start(&format!("osd.{id}"), &line, options.tcmalloc)?
        .require_running()
}

/// Stops the virtual machine, the OSDs and the monitor.
///
/// # Errors
/// When one of them does not end.
pub fn down(lab: &Lab, wipe_too: bool) -> Result<()> {
    vm::down(lab)?;
    // An OSD says goodbye to its monitor.
    for daemon in ["osd.", "rgw.", "mon."].map(|name| lab.daemons(name)) {
        daemon?.into_iter().try_for_each(|daemon| daemon.stop(30))?;
    }
    if wipe_too { wipe(lab) } else { Ok(()) }
}

/// Removes the folder of a cluster that does not run, and nothing that is not one.
fn wipe(lab: &Lab) -> Result<()> {
    let folder = lab.cluster();
    if !fs::exists(&folder)? {
        return Ok(());
    }
    ensure!(
        lab.file("ceph.conf").exists() || fs::read_dir(&folder)?.next().is_none(),
        "`{folder}` is not a cluster of the lab; remove it yourself or set WCPROF_LAB"
    );
    Ok(fs::remove_dir_all(&folder)?)
}

fn make_uuid() -> Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?
        .trim()
        .to_owned())
}
