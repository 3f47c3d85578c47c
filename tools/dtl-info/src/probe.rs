//! `--probe`: loads a plugin file in a child process, so that a crash or a hang becomes one line of
//! the report.
//!
//! Before each step, such as loading the file or querying the availability of a backend, the child
//! writes a line with a prefix and a JSON object to its standard output. Output of the plugin
//! itself is ignored. The parent derives the result from these lines and from the exit status of
//! the child.

use crate::library::{component_names, unavailable};
use dtl::tooling::plugins::load;
use dtl_binding::{Backend, Error, Library, Result, Status};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use subprocess::{Setup, has_exited, kill_group, listen, prepare, reset_sigchld};

const MARK: &str = "dtl-probe: ";
/// Maximum time to wait for end of file on the pipe after the child has exited. Processes that the
/// child started may keep the pipe open.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Exit status of a child whose pipe to the parent is closed.
const OUTPUT_CLOSED: i32 = 96;

/// Result of the probe. The discriminants are the exit statuses of dtl-info.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok = 0,
    Refused = 1,
    Crashed = 3,
    Hung = 4,
}

impl Verdict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Refused => "refused",
            Verdict::Crashed => "crashed",
            Verdict::Hung => "hung",
        }
    }
}

pub(crate) struct Report {
    pub(crate) path: String,
    pub(crate) verdict: Verdict,
    /// Step during which the child crashed or hung.
    pub(crate) step: Option<String>,
    pub(crate) signal: Option<i32>,
    /// Reason for the verdict; empty if the result is ok.
    pub(crate) reason: String,
    pub(crate) status: Option<String>,
    /// Properties of the plugin and its backends; null unless the result is ok.
    pub(crate) plugin: Value,
}

impl Report {
    /// Formats the report as one readable line.
    pub(crate) fn line(&self) -> String {
        let said =
            if self.verdict == Verdict::Ok { described(&self.plugin) } else { self.reason.clone() };
        format!("{:<8} {}: {said}\n", self.verdict.word(), self.path)
    }

    pub(crate) fn json(&self) -> String {
        let report = json!({
            "path": self.path,
            "result": self.verdict.word(),
            "step": self.step,
            "signal": self.signal,
            "status": self.status,
            "reason": Some(&self.reason).filter(|reason| !reason.is_empty()),
            "plugin": self.plugin,
        });
        format!("{report:#}\n")
    }
}

/// Formats a plugin: "mine 1.0, ABI 2: a (memory), b (comm; cannot run here: no card)".
fn described(plugin: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let backends = plugin["backends"].as_array().into_iter().flatten().map(|backend| {
        let components: Vec<_> =
            backend["components"].as_array().into_iter().flatten().map(text).collect();
        let why = backend["reason"]
            .as_str()
            .map_or(String::new(), |why| format!("; cannot run here: {why}"));
        format!("{} ({}{why})", text(&backend["name"]), components.join(", "))
    });
    let backends: Vec<_> = backends.collect();
    let name = format!("{} {}", text(&plugin["name"]), text(&plugin["version"]));
    format!("{}, ABI {}: {}", name.trim(), plugin["abi_version"], backends.join(", "))
}

/// Loads a plugin file in a child process, with this time limit. A crash of the child is reported
/// and has no other effect.
pub(crate) fn run(path: &Path, limit: Duration) -> std::io::Result<Report> {
    reset_sigchld();
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--probe-child").arg(path);
    command.env_remove("DTL_PLUGIN_PATH").env_remove("DTL_PLUGIN_PROBE");
    // A group of its own, so that what it starts can be ended with it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    prepare(&mut command, Setup { no_core: true, ..Setup::default() });
    let mut child = command.spawn()?;
    let output = child.stdout.take().map(listen);
    let begin = Instant::now();
    while !has_exited(child.id()) && begin.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(2));
    }
    let in_time = has_exited(child.id());
    // Before it is reaped: until then its number, which is its group's, is nobody else's.
    kill_group(child.id());
    let ended = child.wait()?;
    let ended = in_time.then_some(ended);
    let said = output.and_then(|output| output.recv_timeout(LAST_OUTPUT).ok()).unwrap_or_default();
    Ok(judge(path, limit, ended, &said))
}

fn judge(path: &Path, limit: Duration, ended: Option<ExitStatus>, said: &str) -> Report {
    let lines = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix(MARK)?).ok());
    let (mut step, mut refused, mut plugin, mut is_done) = (None, None, Value::Null, false);
    for line in lines {
        let word = |key| line.get(key).and_then(Value::as_str).map(str::to_owned);
        step = word("step").or(step);
        refused = word("refused").map(|reason| (word("status"), reason)).or(refused);
        is_done |= line.get("done").is_some();
        if let Some(found) = line.get("plugin") {
            plugin = found.clone();
        }
    }
    let place = step.clone().unwrap_or_else(|| "the start of the child process".to_owned());
    let mut report = Report {
        path: path.display().to_string(),
        verdict: Verdict::Crashed,
        step,
        signal: ended.and_then(|ended| ended.signal()),
        reason: String::new(),
        status: None,
        plugin: Value::Null,
    };
    match (ended, refused) {
        (None, _) => {
            report.verdict = Verdict::Hung;
            report.reason = format!("no end within {limit:?}, in {place}");
        }
        (Some(ended), _) if ended.signal().is_some() => {
            let signal = ended.signal().unwrap_or_default();
            report.reason = format!("killed by signal {signal}{}, in {place}", signal_name(signal));
        }
        (Some(_), Some((status, reason))) => {
            (report.verdict, report.step) = (Verdict::Refused, None);
            (report.status, report.reason) = (status, reason);
        }
        (Some(ended), None) if is_done && ended.success() => {
            (report.verdict, report.step, report.plugin) = (Verdict::Ok, None, plugin);
        }
        (Some(ended), None) if ended.code() == Some(OUTPUT_CLOSED) => {
            report.reason = format!("it closed descriptors that are not its own, in {place}");
        }
        (Some(ended), None) => {
            let code = ended.code().unwrap_or_default();
            report.reason = format!("it ended the process with exit status {code}, in {place}");
        }
    }
    report
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        31 => " (SIGSYS)",
        _ => "",
    }
}

/// Pipe from the child to its parent: a duplicate of the standard output descriptor, because the
/// plugin may close the original.
static OUT: OnceLock<File> = OnceLock::new();

fn say(value: &Value) {
    let Some(mut out) = OUT.get() else { return };
    // The plugin may have left an unfinished line.
    if let Err(error) = out.write_all(format!("\n{MARK}{value}\n").as_bytes()) {
        // A parent that is gone needs no answer.
        let is_closed = error.kind() != ErrorKind::BrokenPipe;
        std::process::exit(if is_closed { OUTPUT_CLOSED } else { 0 });
    }
}

/// Runs in the child: performs every step that a program performs before it uses the plugin.
pub(crate) fn child(path: &Path) {
    if let Ok(own) = std::io::stdout().as_fd().try_clone_to_owned() {
        OUT.get_or_init(|| File::from(own));
    }
    match try_it(path) {
        Ok(()) => say(&json!({ "done": true })),
        Err(error) => {
            // The record has the reason without the path.
            let kept = crate::plugins::tried().into_iter().find_map(|tried| tried.failure);
            let (status, reason) = kept.unwrap_or_else(|| (error.status.name(), error.text));
            say(&json!({ "refused": reason, "status": status }));
        }
    }
    say(&json!({ "step": "the end of the process" }));
}

fn try_it(path: &Path) -> Result<()> {
    let step = |what: &str| say(&json!({ "step": what }));
    // After a failure it stays open: its record of the plugin has the reason.
    let library = ManuallyDrop::new(Library::init()?);
    load(path, "dtl-info --probe", &step).map_err(|error| Error {
        call: "dtl_backend_load",
        status: Status(error.status()),
        text: error.text().to_owned(),
    })?;
    let mut backends = Vec::new();
    let all = crate::plugins::tried();
    let plugin = all.iter().find(|tried| tried.state == "loaded");
    for name in plugin.iter().flat_map(|plugin| &plugin.backends) {
        if let Ok(backend) = Backend::find(name) {
            step(&format!("is_available of {name}"));
            let reason = unavailable(backend);
            let components = component_names(backend.info()?.components);
            backends.push(json!({
                "name": name,
                "components": components,
                "available": reason.is_none(),
                "reason": reason,
            }));
        }
    }
    if let Some(plugin) = plugin {
        say(&json!({ "plugin": {
            "name": plugin.name,
            "version": plugin.version,
            "description": plugin.description,
            "abi_version": plugin.abi_version,
            "backends": backends,
        }}));
    }
    step("the destroy of its backends");
    ManuallyDrop::into_inner(library).finalize()
}
