//! A day of short intervals: the agent with a store that ends, hangs, refuses and has another clock, a full disk, restarts of its own,
//! and processes that come and go; to whether all is accounted for, and whether what it takes stays flat.
//!
//! The truth is this process's own clock: when it started and ended each process, and when there was an agent.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::accounts::{DayAccounts, LifeStretch, Lived};
use super::health::{AgentHealth, family};
use super::store::{self, LoopbackStore, StoreMode};
use super::targets::osd_flags;
use crate::lab::place::Lab;
use crate::process::{
    Background, build_release, capture, command, execute, free_address, log_tail, log_to, quoted,
    result_folder, wait_until,
};

/// Processes that come and go, most of the day and in two of its hours.
const FEW: usize = 10;
const MANY: usize = 100;
/// The number of the first of them: `osd.10000`.
const FIRST: u64 = 10_000;
/// Bytes of the disk of the agent's state, and of the spool on it, MB.
const DISK_MB: usize = 16;
const SPOOL_MB: u64 = 8;
/// Of a core. Twenty times as many profiles a second as with intervals of 10 s need more than the default.
const MAX_CPU: u32 = 40;
/// What may grow from one quiet hour to a later one, as part of it.
const MAX_GROWTH: f64 = 0.1;
/// What is counted when a request is lost for certain, and when the store may have it.
const LOST: [&str; 4] = [
    "push_refused_total",
    "spool_dropped_total",
    "spool_expired_total",
    "push_rejected_profiles_total",
];
const UNSURE: &str = "push_unsure_total";

/// What happens at an hour of the day.
#[derive(Clone, Copy, PartialEq, Debug)]
enum DayEvent {
    /// The agent is ended by a signal, and started again.
    Agent(Signal),
    /// The store ends.
    Ended,
    /// It starts, and behaves so.
    Store(StoreMode),
    /// Nothing more fits on the disk of the agent's state.
    Full,
    Freed,
    /// As many processes come and go.
    Crowd(usize),
}

/// Hours and what happens then.
fn events() -> Vec<(f64, DayEvent)> {
    let normal = DayEvent::Store(StoreMode::default());
    let clock = |clock_ahead| {
        DayEvent::Store(StoreMode {
            clock_ahead,
            ..StoreMode::default()
        })
    };
    let mut all = vec![
        (1.0, DayEvent::Agent(Signal::SIGTERM)),
        (2.0, DayEvent::Agent(Signal::SIGKILL)),
        (2.5, DayEvent::Agent(Signal::SIGTERM)),
        (3.0, DayEvent::Ended),
        (3.3, normal),
        (7.0, DayEvent::Crowd(MANY)),
        (8.0, DayEvent::Crowd(FEW)),
        // Ten minutes off is within what stores take; eleven is refused.
        (9.0, clock(600)),
        (10.0, clock(-590)),
        (11.0, clock(-660)),
        (11.5, normal),
        // Full while the store takes nothing.
        (12.0, DayEvent::Ended),
        (12.0, DayEvent::Full),
        (12.3, DayEvent::Freed),
        (12.35, normal),
        // More than the spool holds.
        (14.0, DayEvent::Ended),
        (15.2, normal),
        (
            17.0,
            DayEvent::Store(StoreMode {
                rate: Some(20_000),
                ..StoreMode::default()
            }),
        ),
        (17.5, normal),
        (
            18.0,
            DayEvent::Store(StoreMode {
                hangs: true,
                ..StoreMode::default()
            }),
        ),
        (18.3, normal),
        (20.0, DayEvent::Crowd(MANY)),
        (21.0, DayEvent::Crowd(FEW)),
    ];
    // A store that is started again and again.
    for at in 0..5 {
        let at = 4.0 + f64::from(at) * 0.2;
        all.extend([(at, DayEvent::Ended), (at + 0.03, normal)]);
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

fn now_ns() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as f64
}

/// A process that calls itself an OSD and waits: one thread, which is idle.
struct ShortLived {
    number: u64,
    child: Child,
    born: f64,
    until: Instant,
}

/// Processes that come and go.
struct Shorts {
    alive: Vec<ShortLived>,
    wanted: usize,
    next: u64,
    lived: BTreeMap<String, Lived>,
    /// Of a generator of numbers that are the same each time.
    state: u64,
}

impl Shorts {
    fn random(&mut self, below: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.state >> 33) % below
    }

    /// Ends those whose time has come, and starts one, if there are too few. Every fourth is one that was there before: a restart.
    fn step(&mut self) -> Result<()> {
        let now = Instant::now();
        while let Some(at) = self.alive.iter().position(|short| short.until <= now) {
            let short = self.alive.swap_remove(at);
            self.end(short)?;
        }
        if self.alive.len() > self.wanted {
            let short = self.alive.swap_remove(0);
            self.end(short)?;
        }
        if self.alive.len() < self.wanted {
            let number = match self.random(4) {
                0 if self.next > FIRST => FIRST + self.random(self.next - FIRST),
                _ => self.next,
            };
            if self.alive.iter().any(|short| short.number == number) {
                return Ok(());
            }
            self.next = self.next.max(number + 1);
            let born = now_ns();
            let mut sh = Command::new("/bin/sh");
            sh.arg0("ceph-osd").args(["-c", "read line", "--id"]);
            let child = sh.arg(number.to_string()).stdin(Stdio::piped()).spawn()?;
            let seconds = 10 + self.random(50);
            self.alive.push(ShortLived {
                number,
                child,
                born,
                until: now + Duration::from_secs(seconds),
            });
        }
        Ok(())
    }

    fn end(&mut self, mut short: ShortLived) -> Result<()> {
        // Its input ends, and it with it.
        drop(short.child.stdin.take());
        short.child.wait()?;
        let life = LifeStretch {
            from: short.born,
            to: now_ns(),
        };
        let lived = self.lived.entry(format!("osd.{}", short.number));
        let lived = lived.or_default();
        lived.threads = Some(1.0);
        lived.lives.push(life);
        Ok(())
    }
}

impl Drop for Shorts {
    fn drop(&mut self) {
        for short in &mut self.alive {
            // Fails only when it has ended.
            let _ = short.child.kill();
            let _ = short.child.wait();
        }
    }
}

/// The OSDs and the machine of the lab, which others may start anew: when each was seen to run.
#[derive(Default)]
struct Lasting(BTreeMap<(String, i32), LifeStretch>);

impl Lasting {
    fn look(&mut self, lab: &Lab) -> Result<()> {
        let now = now_ns();
        for daemon in lab.daemons("osd.")?.into_iter().chain(lab.machine()?) {
            let name = if daemon.name == "vm" {
                "lab"
            } else {
                &*daemon.name
            };
            let seen = self.0.entry((name.to_owned(), daemon.pid));
            seen.or_insert(LifeStretch { from: now, to: now }).to = now;
        }
        Ok(())
    }
}

/// A small file system of the agent's state.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let disk = Self(folder.to_owned());
        // What an interrupted day left.
        disk.unmount();
        let options = format!("-o size={DISK_MB}m,mode=700");
        execute(command(&format!(
            "mount -t tmpfs {options} wcprof-day {}",
            quoted(folder)
        )))
        .context("a small disk needs root")?;
        Ok(disk)
    }

    /// Fails only where there is none.
    fn unmount(&self) {
        let _ = capture(command(&format!("umount {}", quoted(&self.0))));
    }

    fn fill(&self) -> Result<()> {
        let filled = fs::write(self.0.join("fill"), vec![0; (DISK_MB + 1) << 20]);
        ensure!(filled.is_err(), "the disk holds more than it has");
        Ok(())
    }

    fn free(&self) -> Result<()> {
        Ok(fs::remove_file(self.0.join("fill"))?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// The agent, once after the other.
struct Agents {
    wcprof: String,
    state: PathBuf,
    folder: PathBuf,
    address: String,
    url: String,
    interval: u64,
    n: usize,
    running: Background,
    /// When there was none, or it had not begun.
    away: Vec<LifeStretch>,
    /// What those that have ended had counted.
    counted: BTreeMap<String, f64>,
}

impl Agents {
    fn log(&self) -> PathBuf {
        self.folder.join(format!("agent-{}.log", self.n))
    }

    fn line(&self) -> Command {
        command(&format!(
            "{} agent {} --osd '1????' --vm lab --store {} --idle --interval {}ms --max-cpu {MAX_CPU} --spool-size {SPOOL_MB} \
             --listen {} --state-dir {}",
            self.wcprof,
            osd_flags(),
            self.url,
            self.interval,
            self.address,
            quoted(&self.state),
        ))
    }

    /// Starts one, and waits until it records.
    fn start(&mut self, gone: f64) -> Result<()> {
        self.n += 1;
        let log = self.log();
        self.running = Background::start(log_to(&mut self.line(), &log)?)?;
        let running = &mut self.running;
        let recording = wait_until("the agent records", 60, || {
            running.require_running()?;
            Ok(fs::read_to_string(&log)?.contains("recording "))
        });
        recording.with_context(|| log_tail(&log))?;
        self.away.push(LifeStretch {
            from: gone,
            to: now_ns() + 1e9,
        });
        Ok(())
    }

    fn health(&self) -> Result<AgentHealth> {
        AgentHealth::read(&self.address, self.running.pid()).with_context(|| log_tail(&self.log()))
    }

    /// Ends the one that runs, and starts another.
    fn restart(&mut self, signal: Signal) -> Result<()> {
        self.add_counted()?;
        let mut gone = now_ns();
        let pid = self.running.pid();
        if signal == Signal::SIGKILL {
            // Its profiles of the last seconds were not made yet.
            gone -= 4e9;
            for pid in family(pid).into_iter().rev() {
                kill(Pid::from_raw(pid), signal)?;
            }
        } else {
            kill(Pid::from_raw(pid), signal)?;
        }
        self.running.child.wait()?;
        self.start(gone)
    }

    fn add_counted(&mut self) -> Result<()> {
        let health = self.health()?;
        for name in LOST
            .iter()
            .chain([&UNSURE, &"pushes_total", &"joined_intervals_total"])
        {
            *self.counted.entry((*name).to_owned()).or_default() += health.value(name);
        }
        let lost = health.value("lost_seconds_total");
        *self
            .counted
            .entry("lost_seconds_total".to_owned())
            .or_default() += lost;
        Ok(())
    }
}

/// What runs on that day.
struct Day {
    folder: PathBuf,
    shorts: Shorts,
    agents: Agents,
    port: u16,
    store: Option<LoopbackStore>,
    /// What each store got.
    all_got: Vec<PathBuf>,
    // Unmounted when nobody uses it any more.
    disk: SmallDisk,
}

/// How the agent was at an hour, and which one it was.
struct AgentLook {
    hour: f64,
    agent: usize,
    health: AgentHealth,
}

impl Day {
    fn begin(interval: u64) -> Result<Self> {
        let wcprof = build_release()?;
        LoopbackStore::build()?;
        let folder = result_folder("lab-agent-day")?;
        let disk = SmallDisk::new(&folder.join("state"))?;
        let got = folder.join("store-0.json");
        let store = LoopbackStore::start(&got, &StoreMode::default())?;
        let port = store.url.rsplit(':').next();
        let port = port.and_then(|port| port.parse().ok());
        let mut agents = Agents {
            wcprof,
            state: disk.0.join("agent"),
            folder: folder.clone(),
            address: free_address()?,
            url: store.url.clone(),
            interval,
            n: 0,
            running: Background::start(command("sleep 0").stdin(Stdio::null()))?,
            away: Vec::new(),
            counted: BTreeMap::new(),
        };
        let mut shorts = Shorts {
            alive: Vec::new(),
            wanted: FEW,
            next: FIRST,
            lived: BTreeMap::new(),
            state: 1,
        };
        shorts.step()?;
        agents.start(now_ns())?;
        Ok(Self {
            folder,
            shorts,
            agents,
            port: port.context("the store's URL has no port")?,
            store: Some(store),
            all_got: vec![got],
            disk,
        })
    }

    fn end_store(&mut self) -> Result<()> {
        self.store.take().map_or(Ok(()), LoopbackStore::end)
    }

    fn happens(&mut self, event: DayEvent) -> Result<()> {
        match event {
            DayEvent::Agent(signal) => self.agents.restart(signal),
            DayEvent::Ended => self.end_store(),
            DayEvent::Store(mode) => {
                self.end_store()?;
                let got = self
                    .folder
                    .join(format!("store-{}.json", self.all_got.len()));
                let mode = StoreMode {
                    port: self.port,
                    ..mode
                };
                self.store = Some(LoopbackStore::start(&got, &mode)?);
                self.all_got.push(got);
                Ok(())
            }
            DayEvent::Full => self.disk.fill(),
            DayEvent::Freed => self.disk.free(),
            DayEvent::Crowd(n) => {
                self.shorts.wanted = n;
                Ok(())
            }
        }
    }

    /// Looks at the agent, and prints a row of the curve.
    fn look(&self, hour: f64, before: Option<&AgentLook>) -> Result<AgentLook> {
        let health = self.agents.health()?;
        let agent = self.agents.n;
        // What another agent counted is not its own.
        if let Some(before) = before.filter(|before| before.agent == agent) {
            let waiting = health.value("spool_requests");
            let alive = self.shorts.alive.len();
            let line = health.line(&before.health);
            println!("{hour:>6.2} {alive:>5} {line} {waiting:>8}");
        }
        Ok(AgentLook {
            hour,
            agent,
            health,
        })
    }

    /// Ends all when everything is sent. Gives what each of the short processes lived, and what the stores got.
    fn end(&mut self) -> Result<(BTreeMap<String, Lived>, Vec<Value>)> {
        while let Some(short) = self.shorts.alive.pop() {
            self.shorts.end(short)?;
        }
        wait_until("all is sent", 300, || {
            Ok(self.agents.health()?.value("spool_requests") == 0.0)
        })?;
        self.agents.add_counted()?;
        let status = self.agents.running.interrupt(|| {})?;
        ensure!(status.success(), "the agent ended with {status}");
        self.end_store()?;
        let mut got = Vec::new();
        for file in &self.all_got {
            got.extend(store::read(file)?);
        }
        Ok((std::mem::take(&mut self.shorts.lived), got))
    }
}

/// Runs the day.
///
/// # Errors
/// When a program fails, or a figure is not what it must be.
pub(super) fn run(lab: &Lab, interval_ms: u64, intervals: u64) -> Result<()> {
    let mut day = Day::begin(interval_ms)?;
    let mut lasting = Lasting::default();
    let begin = Instant::now();
    let hour = Duration::from_millis(interval_ms * intervals) / 24;
    let mut events = events().into_iter().peekable();
    let mut looks: Vec<AgentLook> = Vec::new();
    println!("  hour alive     CPU  names  memory  descriptors threads observations/s  waiting");
    let mut next_look = begin;
    while begin.elapsed() < 24 * hour {
        let at = begin.elapsed().as_secs_f64() / hour.as_secs_f64();
        while let Some((_, event)) = events.next_if(|(due, _)| *due <= at) {
            println!("{at:>6.2} {event:?}");
            day.happens(event)?;
        }
        day.shorts.step()?;
        lasting.look(lab)?;
        let running = day.agents.running.require_running();
        running.with_context(|| log_tail(&day.agents.log()))?;
        if Instant::now() >= next_look {
            next_look += hour / 6;
            looks.push(day.look(at, looks.last())?);
        }
        thread::sleep(Duration::from_millis(100));
    }
    let (mut lived, got) = day.end()?;
    for ((name, _), life) in lasting.0 {
        lived.entry(name).or_default().lives.push(life);
    }
    let n_lives: usize = lived.values().map(|lived| lived.lives.len()).sum();
    println!("{n_lives} processes of {} names", lived.len());
    let accounts = DayAccounts::of(&lived, &day.agents.away, &got, interval_ms as f64 * 1e6);
    let mut wrong = judge_accounts(&accounts, &day.agents.counted, interval_ms);
    wrong.extend(judge_flat(&looks));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Whether what the store does not have is what the agent counted, and nothing is there twice.
fn judge_accounts(
    accounts: &DayAccounts,
    counted: &BTreeMap<String, f64>,
    interval_ms: u64,
) -> Vec<String> {
    let value = |name: &str| counted.get(name).copied().unwrap_or_default();
    let lost: f64 = LOST.iter().map(|name| value(name)).sum();
    let unsure = value(UNSURE);
    println!("counted: {counted:?}");
    println!(
        "{} profiles stored; {} intervals missing ({} with parts), {lost} counted as lost and {unsure} as stored perhaps; threads of short \
         processes lived {:.1} s in windows that hold {:.1} s",
        accounts.profiles, accounts.missing, accounts.at_most, accounts.lived, accounts.stored
    );
    let mut wrong = Vec::new();
    let missing = accounts.missing as f64;
    // Seconds that the flight recorder lost are of all processes.
    let unrecorded = value("lost_seconds_total") * 1e3 / interval_ms as f64 * (MANY as f64 + 4.0);
    if missing > lost + unsure + unrecorded {
        wrong.push(format!(
            "{missing} intervals are missing, {lost} and {unsure} counted"
        ));
    }
    if (accounts.at_most as f64) < lost - unrecorded {
        wrong.push(format!("{lost} are counted as lost, {missing} are missing"));
    }
    let off = accounts.stored / accounts.lived - 1.0;
    if off.is_nan() || off.abs() > 0.01 {
        wrong.push(format!("the time of short processes is off by {off:.4}"));
    }
    let first = |what: &str, all: &[String]| {
        let some = all.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        (!all.is_empty()).then(|| format!("{} {what}: {some}", all.len()))
    };
    wrong.extend(first("windows twice", &accounts.twice));
    wrong.extend(first("processes unknown", &accounts.strangers));
    wrong
}

/// Whether the last agent takes as much in the last quiet hours as in its first ones.
fn judge_flat(looks: &[AgentLook]) -> Vec<String> {
    let last = looks.last().map_or(0, |look| look.agent);
    let median = |from: f64, to: f64, of: &dyn Fn(&AgentHealth) -> f64| {
        let hours = from..to;
        let within = looks
            .iter()
            .filter(|look| look.agent == last && hours.contains(&look.hour));
        let mut values: Vec<f64> = within.map(|look| of(&look.health)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let mut wrong = Vec::new();
    for (what, of) in [
        (
            "memory",
            (&|health: &AgentHealth| health.kernel.memory) as &dyn Fn(&AgentHealth) -> f64,
        ),
        ("descriptors", &|health| health.kernel.descriptors as f64),
        ("threads", &|health| health.kernel.threads as f64),
    ] {
        let [early, middle, late] =
            [(5.5, 7.0), (15.5, 17.0), (22.0, 24.0)].map(|(from, to)| median(from, to, of));
        println!("{what}: {early:.0} at hour 6, {middle:.0} at 16, {late:.0} at 23");
        let growth = late / middle - 1.0;
        if growth.is_nan() || growth > MAX_GROWTH {
            wrong.push(format!("{what} grew by {growth:.2} in the quiet hours"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the events of a day are in order, and that it ends as it began.
    #[test]
    fn in_order() {
        let events = events();
        assert!(events.is_sorted_by(|a, b| a.0 <= b.0));
        assert!(events.iter().all(|(hour, _)| *hour < 22.0));
        let last = |is: &dyn Fn(&DayEvent) -> bool| {
            events
                .iter()
                .rev()
                .find(|(_, event)| is(event))
                .map(|(_, event)| *event)
        };
        assert_eq!(
            last(&|event| matches!(event, DayEvent::Store(_) | DayEvent::Ended)),
            Some(DayEvent::Store(StoreMode::default()))
        );
        assert_eq!(
            last(&|event| matches!(event, DayEvent::Crowd(_))),
            Some(DayEvent::Crowd(FEW))
        );
    }

    /// Check what is judged wrong: more missing than counted, less missing than counted, windows that are there twice.
    #[test]
    fn judged() {
        let judge = |missing, twice: &[&str], lost| {
            let accounts = DayAccounts {
                missing,
                at_most: missing,
                twice: twice.iter().map(|text| (*text).to_owned()).collect(),
                lived: 100.0,
                stored: 100.2,
                ..DayAccounts::default()
            };
            judge_accounts(
                &accounts,
                &BTreeMap::from([(LOST[1].to_owned(), lost)]),
                500,
            )
        };
        assert_eq!(judge(5, &[], 5.0), [""; 0]);
        assert_eq!(
            judge(6, &[], 5.0),
            ["6 intervals are missing, 5 and 0 counted"]
        );
        assert_eq!(judge(5, &[], 6.0), ["6 are counted as lost, 5 are missing"]);
        assert_eq!(judge(5, &["x"], 5.0), ["1 windows twice: x"]);
    }
}
