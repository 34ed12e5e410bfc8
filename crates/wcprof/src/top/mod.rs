//! `wcprof top`: a live view of where threads spend their time. The recording goes into the ring of
//! the flight recorder; once a second its last seconds become a profile, a model and a picture.

mod draw;
mod model;
mod row;
mod state;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent};
use wcprof_findings::RuleSet;
use wcprof_profile::model::Profile;
use wcprof_profile::{Categories, Rules, latest_change};
use wcprof_record::NamedSnapshot;
use wcprof_report::Answers;
use wcprof_symbols::SymbolOptions;
use wcprof_text::time_in;
use wcprof_trace::ring::RingOptions;
use wcprof_types::TimeNs;

use crate::args::{AnalysisArgs, SamplingArgs, SymbolArgs, TargetArgs, parse_keep};
use crate::failure::{Exit, Failure};
use crate::keep::write::{self, NameOptions, OnFailure, check_folder, create_numbered};
use crate::live;
use crate::live_names::LiveNames;
use crate::message::{Level, line};
use crate::names;
use crate::open::{hotspot_rules, state_rules};
use crate::select;
use crate::session::{self, SessionOptions, default_trace_path, named};
use crate::signals::{ENDING, Ending, at_signals};
use crate::terminal::Terminal;
use crate::views::answers;
use draw::draw;
use model::{Model, fitting};
use state::{Action, Ui};

/// How long a picture waits for names that are looked up; the next one has them.
const NAMES_PATIENCE: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Also show the child processes of these, now and later
    #[arg(long)]
    pub(crate) children: bool,
    /// The time that is shown, 1s to 60s
    #[arg(short, long, value_name = "TIME", default_value = "5s", value_parser = |text: &str| time_in(text, "1s", "60s"))]
    pub(crate) window: Duration,
    /// The time that is kept in memory; the key s saves it
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_keep)]
    pub(crate) keep: Duration,
    /// Memory limit for what is kept
    #[arg(long, value_name = "MB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(8..=1 << 16))]
    pub(crate) keep_memory: u64,
    /// Saved traces are FILE-1.wct, FILE-2.wct [default: wcprof-PID-DATE]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) targets: TargetArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
}

/// What the view waits for.
enum News {
    /// There is another one.
    Picture,
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// A signal, or the terminal has gone.
    Stop,
    /// There are no more, and why.
    Over(String),
    /// What, or why not.
    Saved(Result<String, String>),
}

/// The last picture that the view has not taken: one that is slow misses some.
type Last = Arc<Mutex<Option<Box<Picture>>>>;

fn lock(last: &Last) -> MutexGuard<'_, Option<Box<Picture>>> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is shown of a moment.
struct Picture {
    kept: Arc<NamedSnapshot>,
    profile: Profile,
    answers: Answers,
    /// How long it records, which time is shown, and what it costs: the most important first.
    line: Vec<String>,
}

pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        let error = anyhow::anyhow!("the view needs a terminal on standard input and output");
        return Err(Failure::usage(error)
            .hint("`wcprof attach PID` prints, `wcprof attach PID --keep 60s` waits"));
    }
    let rules = state_rules(&args.analysis.rules)?;
    let hotspot_rules = hotspot_rules(&args.analysis.rules)?;
    names::check(&args.analysis.symbols)?;
    let chosen = select::targets(&args.targets, args.children)?;
    let output = args.output.clone();
    let base = output.unwrap_or_else(|| default_trace_path(chosen.first_pid()));
    check_folder(&base)?;
    let options = SessionOptions {
        targets: chosen.targets.clone(),
        children: args.children,
        arrivals: None,
        duration: None,
        sampling: args.sampling.clone(),
        kernel: Some(false),
        full_command_lines: false,
        trace: base,
        ending: Ending::default(),
    };
    let painter = Painter {
        window_ns: args.window.as_nanos() as u64,
        // Large debug files take many seconds on a busy machine.
        names: LiveNames::new(NAMES_PATIENCE),
        symbols: SymbolOptions {
            cancel: options.ending.names.clone(),
            ..symbol_options(&args.analysis.symbols)
        },
        hotspot_rules,
        categories: rules.categories().map_err(Failure::usage)?,
        rules,
    };
    let is_stopped = record(args, &options, painter)?;
    if is_stopped {
        message!("wcprof: ended by a signal");
    }
    Ok(())
}

/// A line on how far naming is, and failures of debuginfod, would write over the view.
fn symbol_options(args: &SymbolArgs) -> SymbolOptions {
    SymbolOptions {
        debuginfod: None,
        progress: None,
        ..names::options(args)
    }
}

/// Records and shows until the user ends it; gives whether a signal did.
fn record(args: &TopArgs, options: &SessionOptions, painter: Painter) -> Result<bool, Failure> {
    let ring = RingOptions {
        keep: args.keep.max(args.window),
        max_bytes: usize::try_from(args.keep_memory << 20).unwrap_or(usize::MAX),
    };
    let (looks, looked) = sync_channel(1);
    let running = live::begin(options, ring, Some(looks), |_, _| Ok(()))?;
    let (news_tx, news) = channel();
    let (last, mut writers) = (Last::default(), Vec::new());
    let (is_stopped, ended) = thread::scope(|scope| {
        let painted = (news_tx.clone(), last.clone());
        scope.spawn(move || painter.run(&looked, args, &painted));
        let shown = show(args, options, (news_tx, &news), &last, &mut writers);
        options.ending.end_recording();
        // Nobody looks at names any more.
        options.ending.names.cancel();
        let ended = live::finish(running, options);
        (shown, ended)
    });
    let saved = print_saved(writers, &news);
    let ended = ended?;
    let Some(loss) = ended.loss else {
        if ended.reason != session::INTERRUPTED {
            message!("wcprof: the recording ended: {}", ended.reason);
        }
        return saved.and(is_stopped);
    };
    if let Err(failure) = saved {
        line(Level::Error, &failure.to_string());
    }
    Err(Failure::new(Exit::Failure, anyhow!("{loss}")))
}

/// Waits for what is being saved, and says what the view has not said of it.
fn print_saved(writers: Vec<JoinHandle<()>>, news: &Receiver<News>) -> Result<(), Failure> {
    let mut saved = Ok(());
    for writer in writers {
        let ended = writer.join();
        saved = saved.and(ended.map_err(|_| anyhow!("the writing thread panicked").into()));
    }
    for news in news.try_iter() {
        match news {
            News::Saved(Ok(what)) => message!("wcprof: saved {what}"),
            News::Saved(Err(error)) => saved = Err(anyhow!("{error}").into()),
            _ => {}
        }
    }
    saved
}

/// Shows the view until the user ends it; gives whether a signal did.
fn show(
    args: &TopArgs,
    options: &SessionOptions,
    (news_tx, news): (Sender<News>, &Receiver<News>),
    last: &Last,
    writers: &mut Vec<JoinHandle<()>>,
) -> Result<bool, Failure> {
    let stopped = news_tx.clone();
    let _signals = at_signals(&ENDING, move |_| {
        let _ = stopped.send(News::Stop);
    })?;
    let keys = news_tx.clone();
    // This thread waits until the end of the process.
    named("wcprof-keys").spawn(move || read_keys(&keys))?;
    // The hook of this restores the terminal at a panic, of any thread.
    let mut terminal = ratatui::try_init().context("failed to set up the terminal")?;
    let view = View {
        args,
        options,
        color: Terminal::stdout().color,
        last,
        news_tx,
    };
    let shown = view.run(&mut terminal, news, writers);
    // A terminal that has gone cannot be restored, and need not be.
    let _ = ratatui::try_restore();
    shown
}

fn read_keys(news: &Sender<News>) {
    loop {
        let found = match event::read() {
            Ok(Event::Key(key)) => News::Key(key),
            Ok(Event::Resize(..)) => News::Resized,
            Ok(_) => continue,
            Err(_) => News::Stop,
        };
        let is_last = matches!(found, News::Stop);
        if news.send(found).is_err() || is_last {
            return;
        }
    }
}

/// Ends the view when the thread that it is on panics: nothing may be drawn on the terminal that the
/// panic's hook has restored.
struct EndAtPanic(Sender<News>);

impl Drop for EndAtPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            // The view may be over by now.
            let _ = self.0.send(News::Stop);
        }
    }
}

/// Makes pictures of what the ring holds.
struct Painter {
    window_ns: u64,
    names: LiveNames,
    symbols: SymbolOptions,
    hotspot_rules: RuleSet,
    categories: Categories,
    rules: Rules,
}

impl Painter {
    fn run(
        mut self,
        looks: &Receiver<NamedSnapshot>,
        args: &TopArgs,
        (news, last): &(Sender<News>, Last),
    ) {
        let _end = EndAtPanic(news.clone());
        let mut why = "the recording has ended (q says why); this is the last picture".to_owned();
        for kept in looks {
            match self.picture(kept, args) {
                Ok(None) => {}
                Ok(Some(picture)) => {
                    let before = lock(last).replace(Box::new(picture));
                    if before.is_none() && news.send(News::Picture).is_err() {
                        return;
                    }
                }
                Err(failure) => {
                    why = failure.to_string();
                    break;
                }
            }
        }
        // The view may be over by now.
        let _ = news.send(News::Over(why));
    }

    fn picture(&mut self, kept: NamedSnapshot, args: &TopArgs) -> Result<Option<Picture>, Failure> {
        let now = kept.snapshot.end().0;
        let to = now.saturating_sub(live::SETTLED_NS);
        if to <= kept.snapshot.start().0 {
            return Ok(None);
        }
        let from = TimeNs(to.saturating_sub(self.window_ns));
        let (profile, answers, line) = {
            let cut = kept.snapshot.cut(from)?;
            let symbols = (&args.analysis.symbols, &self.symbols);
            let mut profile = self
                .names
                .profile(&kept, &cut, TimeNs(to), symbols, &self.rules)?;
            // The window is shorter than the time between two readings of limits.
            if let Some(change) = latest_change(kept.snapshot.accounts()) {
                profile.set_change(&change);
            }
            let until = TimeNs(to.saturating_sub(cut.from().0));
            let tables = cut.tables();
            let stats = &tables.stats;
            let own = 100.0 * stats.own_cpu_ns as f64 / stats.duration.0.max(1) as f64;
            let line = vec![
                format!("the last {:.1} s", until.0 as f64 / 1e9),
                format!("{:.0} s recorded", now as f64 / 1e9),
                format!("wcprof {own:.1} % of a core"),
                format!(
                    "{} Hz, engine {}",
                    tables.header.rate_hz, tables.header.engine
                ),
                format!("{:.0} s kept", (now - kept.snapshot.start().0) as f64 / 1e9),
            ];
            let answers = answers(&profile, tables, &self.hotspot_rules, &self.categories);
            (profile, answers, line)
        };
        Ok(Some(Picture {
            kept: Arc::new(kept),
            profile,
            answers,
            line,
        }))
    }
}

/// The view itself.
struct View<'a> {
    args: &'a TopArgs,
    options: &'a SessionOptions,
    color: bool,
    last: &'a Last,
    news_tx: Sender<News>,
}

impl View<'_> {
    /// Gives whether a signal ended it.
    fn run(
        &self,
        terminal: &mut DefaultTerminal,
        news: &Receiver<News>,
        writers: &mut Vec<JoinHandle<()>>,
    ) -> Result<bool, Failure> {
        let mut ui = Ui::new();
        let mut number = 1;
        let mut picture: Option<Box<Picture>> = None;
        let mut model = Model {
            headline: "recording begins".to_owned(),
            rows: Vec::new(),
            pane_title: String::new(),
            pane: Vec::new(),
        };
        loop {
            let width = terminal.size().map_or(100, |size| usize::from(size.width));
            let status = picture
                .as_ref()
                .map(|picture| fitting(&picture.line, "; ", width));
            let status = status.unwrap_or_default();
            terminal
                .draw(|frame| draw(frame, &model, &ui, &status, self.color))
                .context("failed to draw")?;
            // The sender that is kept here never lets this end.
            let Ok(event) = news.recv() else {
                return Ok(false);
            };
            match event {
                News::Picture => {
                    let next = lock(self.last).take();
                    if !ui.paused {
                        picture = next;
                    }
                }
                News::Resized => {}
                News::Stop => return Ok(true),
                News::Over(why) => ui.ended = Some(why),
                News::Saved(result) => {
                    ui.message = Some(match result {
                        Ok(what) => format!("saved {what}"),
                        Err(error) => error,
                    });
                }
                News::Key(key) => match ui.key(key, &model.rows) {
                    Action::Quit => return Ok(false),
                    Action::Save => {
                        if let Some(picture) = &picture {
                            writers.extend(self.save(&picture.kept, &mut number));
                            ui.message = Some("saving ...".to_owned());
                        }
                    }
                    Action::None => ui.message = None,
                },
            }
            if let Some(picture) = &picture {
                let width = terminal.size().map_or(100, |size| size.width);
                model = Model::new(&picture.profile, &picture.answers, &ui, width.into());
                // Pages beyond the end are not to be gone back through.
                ui.scroll = ui.scroll.min(model.pane.len().saturating_sub(1));
            }
        }
    }

    /// Writes what is kept until the shown moment, on another thread.
    fn save(&self, kept: &Arc<NamedSnapshot>, number: &mut u32) -> Option<JoinHandle<()>> {
        let created = create_numbered(&self.options.trace, number);
        let kept = Arc::clone(kept);
        let news = self.news_tx.clone();
        let symbols = self.args.analysis.symbols.clone();
        let cancel = self.options.ending.names.clone();
        let spawned = named("wcprof-writer").spawn(move || {
            let names = NameOptions {
                options: SymbolOptions {
                    cancel,
                    ..symbol_options(&symbols)
                },
                args: &symbols,
                raw: false,
            };
            let reason = "saved from the live view";
            let result = created
                .and_then(|created| write::write(&kept, created, reason, &names, OnFailure::Remove))
                .map(|written| match written.is_cancelled {
                    true => format!("{} without names", written.path.display()),
                    false => written.path.display().to_string(),
                })
                .map_err(|failure| failure.to_string());
            // Said by the view, or after it.
            let _ = news.send(News::Saved(result));
        });
        let failed = |error: std::io::Error| self.news_tx.send(News::Saved(Err(error.to_string())));
        spawned.map_err(|error| drop(failed(error))).ok()
    }
}
