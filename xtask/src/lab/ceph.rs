//! One monitor, some OSDs and a filled block device image, made from nothing each time.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{
    Daemon, IMAGE, Lab, POOL, conf, create_folder, require_programs, vm, wait_until, write,
};
use crate::process::{capture, tail};

/// An image of one GiB fits into the cache of one OSD.
const IMAGE_SIZE: &str = "1024M";

/// How the cluster is made.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Protection of messages: checksums, or AES-128-GCM
    #[arg(long, value_enum, default_value_t = Mode::Secure)]
    pub(super) mode: Mode,
    /// Where objects are kept: in a file of 8 GiB (sparse), or in memory
    #[arg(long, value_enum, default_value_t = Store::Bluestore)]
    pub(super) store: Store,
    /// Run the daemons with tcmalloc, as upstream builds do and Debian's do not
    #[arg(long)]
    pub(super) tcmalloc: bool,
    /// Number of OSDs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub(super) osds: u32,
    /// Threads of each of an OSD's eight shards
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub(super) threads_per_shard: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Secure,
            store: Store::Bluestore,
            tcmalloc: false,
            osds: 1,
            threads_per_shard: 2,
        }
    }
}

/// How messages are protected.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Mode {
    /// Checksums.
    Crc,
    /// AES-128-GCM.
    Secure,
}

/// Where objects are kept.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Store {
    /// In a sparse file, as on a disk.
    Bluestore,
    /// In memory.
    Memstore,
}

/// Makes a new cluster; what an earlier one left is removed.
///
/// # Errors
/// When one still runs, or a program fails.
pub fn up(lab: &Lab, options: &Options) -> Result<()> {
    require_programs(&[
        "ceph-mon",
        "ceph-osd",
        "ceph",
        "ceph-authtool",
        "monmaptool",
        "rbd",
    ])?;
    let folder = lab.cluster();
    ensure!(
        Daemon::all(&folder)?.is_empty(),
        "a cluster still runs: `cargo xtask lab down` first"
    );
    let start = Instant::now();
    let say = |what: &str| println!("[{:5.1} s] {what}", start.elapsed().as_secs_f64());
    wipe(lab)?;
    create_folder(&folder.join("log"))?;
    create_folder(&folder.join("mon.a"))?;
    let result = make(lab, options, &say);
    if result.is_err() {
        println!(
            "The cluster could not be made; stopping what runs. Logs: {}",
            folder.join("log").display()
        );
        down(lab, false)?;
    }
    result
}

fn make(lab: &Lab, options: &Options, say: &dyn Fn(&str)) -> Result<()> {
    let folder = lab.cluster();
    let preload = preload(options.tcmalloc)?;
    let cluster_id = uuid()?;
    write(&lab.conf(), conf::text(&folder, &cluster_id, options))?;
    make_keys(lab)?;
    let monitor = start_monitor(lab, &cluster_id, preload.as_deref())?;
    say(&format!("{monitor}"));
    for id in 0..options.osds {
        let osd = start_osd(lab, id, preload.as_deref())?;
        say(&format!("{osd}"));
    }
    wait_until("all OSDs are up", Duration::from_secs(120), || {
        n_up(lab).map(|n| n == options.osds)
    })?;
    // Only silences a health warning.
    let _ = ceph(lab, &["osd", "require-osd-release", "pacific"]);
    ceph(
        lab,
        &["osd", "pool", "create", POOL, "32", "32", "replicated"],
    )?;
    ceph(lab, &["osd", "pool", "application", "enable", POOL, "rbd"])?;
    rbd(
        lab,
        &[
            "create",
            "--size",
            IMAGE_SIZE,
            "--image-feature",
            "layering,exclusive-lock",
        ],
    )?;
    say(&format!("image {POOL}/{IMAGE}"));
    // Reads of what was never written do not reach the store, and only reads fill its cache.
    for (direction, n_threads) in [("write", "8"), ("read", "4")] {
        rbd(
            lab,
            &[
                "bench",
                "--io-type",
                direction,
                "--io-pattern",
                "seq",
                "--io-size",
                "4M",
                "--io-threads",
                n_threads,
                "--io-total",
                IMAGE_SIZE,
            ],
        )?;
        say(&format!("{direction} of the whole image"));
    }
    let description = format!(
        "{:?} {:?} OSDs={} tcmalloc={}",
        options.mode, options.store, options.osds, options.tcmalloc
    )
    .to_lowercase();
    write(&lab.description(), format!("{description}\n"))?;
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
    let folder = lab.cluster();
    let (monitors, others): (Vec<_>, Vec<_>) = Daemon::all(&folder)?
        .into_iter()
        .partition(|daemon| daemon.name.starts_with("mon."));
    // An OSD tells its monitor that it goes.
    for daemon in others.into_iter().chain(monitors) {
        daemon.stop(Duration::from_secs(30))?;
    }
    if wipe_too { wipe(lab) } else { Ok(()) }
}

/// The library that replaces the allocator, when asked for.
///
/// # Errors
/// When it is not installed.
pub fn preload(tcmalloc: bool) -> Result<Option<String>> {
    const NAME: &str = "libtcmalloc.so.4";
    if !tcmalloc {
        return Ok(None);
    }
    let known = capture(Command::new("/sbin/ldconfig").arg("-p")).unwrap_or_default();
    ensure!(
        known.contains(NAME),
        "{NAME} is not installed; run `cargo xtask lab install`"
    );
    Ok(Some(NAME.to_owned()))
}

/// Removes the folder of a cluster that does not run, and nothing that is not one.
fn wipe(lab: &Lab) -> Result<()> {
    let folder = lab.cluster();
    if !folder.exists() {
        return Ok(());
    }
    ensure!(
        folder.join("ceph.conf").exists()
            || fs::read_dir(&folder).is_ok_and(|mut d| d.next().is_none()),
        "`{}` is not a cluster of the lab; remove it yourself or set WCPROF_LAB",
        folder.display()
    );
    fs::remove_dir_all(&folder).with_context(|| format!("failed to remove `{}`", folder.display()))
}

fn make_keys(lab: &Lab) -> Result<()> {
    let folder = lab.cluster();
    let (monitor, admin) = (folder.join("mon.keyring"), folder.join("admin.keyring"));
    let tool = || lab.command("ceph-authtool");
    capture(tool().arg("-C").arg(&monitor).args([
        "--gen-key",
        "-n",
        "mon.",
        "--cap",
        "mon",
        "allow *",
    ]))?;
    let mut command = tool();
    command
        .arg("-C")
        .arg(&admin)
        .args(["--gen-key", "-n", "client.admin"]);
    for service in ["mon", "osd", "mds", "mgr"] {
        command.args(["--cap", service, "allow *"]);
    }
    capture(&mut command)?;
    capture(tool().arg(&monitor).arg("--import-keyring").arg(&admin))?;
    Ok(())
}

fn start_monitor(lab: &Lab, cluster_id: &str, preload: Option<&str>) -> Result<Daemon> {
    let folder = lab.cluster();
    let map = folder.join("monmap");
    capture(
        lab.command("monmaptool")
            .args(["--create", "--clobber", "--fsid", cluster_id])
            .args(["--addv", "a", conf::MONITOR])
            .arg(&map),
    )?;
    capture(
        daemon(lab, "ceph-mon", "a", None)
            .arg("--mkfs")
            .arg("--monmap")
            .arg(&map)
            .arg("--keyring")
            .arg(folder.join("mon.keyring")),
    )?;
    let log = lab.log("mon.a.out");
    let monitor = Daemon::start(
        &folder,
        "mon.a",
        daemon(lab, "ceph-mon", "a", preload).arg("-f"),
        &log,
    )?;
    wait_until("the monitor answers", Duration::from_secs(60), || {
        still_runs(&monitor, &log)?;
        Ok(ceph(lab, &["--connect-timeout", "2", "mon", "stat"]).is_ok())
    })?;
    Ok(monitor)
}

fn start_osd(lab: &Lab, id: u32, preload: Option<&str>) -> Result<Daemon> {
    let name = format!("osd.{id}");
    let folder = lab.cluster().join(&name);
    create_folder(&folder)?;
    let uuid = uuid()?;
    let key = capture(lab.command("ceph-authtool").arg("--gen-print-key"))?;
    let key = key.trim();
    let secret = folder.join("secret.json");
    write(&secret, format!("{{\"cephx_secret\": \"{key}\"}}\n"))?;
    let given = capture(
        lab.command("ceph")
            .args(["osd", "new", &uuid, "-i"])
            .arg(&secret),
    )?;
    ensure!(
        given.trim() == id.to_string(),
        "the monitor gave id {} to {name}",
        given.trim()
    );
    capture(
        lab.command("ceph-authtool")
            .arg("-C")
            .arg(folder.join("keyring"))
            .args(["--name", &name, "--add-key", key]),
    )?;
    let id = id.to_string();
    capture(daemon(lab, "ceph-osd", &id, None).args(["--mkfs", "--osd-uuid", &uuid]))?;
    let log = lab.log(&format!("{name}.out"));
    let osd = Daemon::start(
        &lab.cluster(),
        &name,
        daemon(lab, "ceph-osd", &id, preload).arg("-f"),
        &log,
    )?;
    still_runs(&osd, &log)?;
    Ok(osd)
}

fn daemon(lab: &Lab, program: &str, id: &str, preload: Option<&str>) -> Command {
    let mut command = lab.command(program);
    command.arg("-c").arg(lab.conf()).args(["-i", id]);
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    command
}

/// The end of a daemon's output as an error if it has ended.
fn still_runs(daemon: &Daemon, log: &Path) -> Result<()> {
    ensure!(
        daemon.is_running(),
        "{} ended:\n{}",
        daemon.name,
        tail(&fs::read(log).unwrap_or_default(), 10)
    );
    Ok(())
}

fn n_up(lab: &Lab) -> Result<u32> {
    #[derive(Deserialize)]
    struct Stat {
        num_up_osds: u32,
    }
    let json = ceph(lab, &["osd", "stat", "-f", "json"])?;
    let stat: Stat = serde_json::from_str(&json).context("failed to parse `ceph osd stat`")?;
    Ok(stat.num_up_osds)
}

fn ceph(lab: &Lab, arguments: &[&str]) -> Result<String> {
    capture(lab.command("ceph").args(arguments))
}

fn rbd(lab: &Lab, arguments: &[&str]) -> Result<String> {
    let image = format!("{POOL}/{IMAGE}");
    // A cluster that does not answer would keep it waiting for ever.
    capture(
        lab.command("timeout")
            // In our process group, so that it ends with us.
            .args(["--foreground", "300", "rbd"])
            .args(arguments)
            .arg(image),
    )
}

fn uuid() -> Result<String> {
    let text =
        fs::read_to_string("/proc/sys/kernel/random/uuid").context("failed to make a UUID")?;
    Ok(text.trim().to_owned())
}
