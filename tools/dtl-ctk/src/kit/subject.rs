//! The backend under test and its reported capabilities.

use crate::kit::calls::Backend;
use crate::kit::catalog::Need;
use crate::kit::current_slot;
use crate::kit::outcome::{Outcome, check, ensure, optional, skip, wrong};
use dtl_sys::*;
use std::thread;
use std::time::{Duration, Instant};

/// Memory kinds that have tests.
pub(crate) const KINDS: [(u64, &str); 5] = [
    (DTL_MEMORY_HOST, "host"),
    (DTL_MEMORY_DEVICE, "device"),
    (DTL_MEMORY_PINNED, "pinned"),
    (DTL_MEMORY_MANAGED, "managed"),
    (DTL_MEMORY_SHARED, "shared"),
];

pub(crate) fn kind_name(kind: u64) -> &'static str {
    KINDS.iter().find(|(word, _)| *word == kind).map_or("?", |(_, name)| name)
}

/// A memory kind that the backend has.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) word: u64,
    pub(crate) properties: u64,
    pub(crate) alignment: u64,
}

impl Kind {
    pub(crate) fn is_host_accessible(self) -> bool {
        self.properties & DTL_MEMORY_HOST_ACCESSIBLE != 0
    }
}

/// Backend under test.
pub(crate) struct Subject {
    pub(crate) backend: Backend,
    pub(crate) components: u32,
    pub(crate) computes: bool,
    pub(crate) devices: i32,
    pub(crate) kinds: Vec<Kind>,
}

impl Subject {
    /// Queries the capabilities of a backend.
    pub(crate) fn of(backend: Backend) -> Outcome<Subject> {
        let info = backend.info()?;
        if let Err(why) = backend.available()? {
            skip!("the backend cannot run here: {why}");
        }
        let mut subject = Subject {
            backend,
            components: info.components,
            computes: info.flags & DTL_BACKEND_NO_COMPUTE == 0,
            devices: 0,
            kinds: Vec::new(),
        };
        if subject.has("device") {
            subject.devices = backend.device_count().unwrap_or(0);
        }
        if subject.has("memory") {
            for (word, _) in KINDS {
                subject.kinds.extend(look(backend, word)?);
            }
        }
        Ok(subject)
    }

    /// Returns true if the backend has the table of a component.
    pub(crate) fn has(&self, component: &str) -> bool {
        let bit = match component {
            "device" => DTL_COMPONENT_DEVICE,
            "memory" => DTL_COMPONENT_MEMORY,
            "transfer" => DTL_COMPONENT_TRANSFER,
            "exec" => DTL_COMPONENT_EXEC,
            "comm" => DTL_COMPONENT_COMM,
            _ => 0,
        };
        self.components & bit != 0
    }

    pub(crate) fn kind(&self, word: u64) -> Option<Kind> {
        self.kinds.iter().copied().find(|kind| kind.word == word)
    }

    /// Returns the first of a test's needs that the backend does not meet.
    pub(crate) fn lacks(&self, needs: &[Need]) -> Option<Need> {
        needs.iter().copied().find(|&need| !self.meets(need, needs))
    }

    fn meets(&self, need: Need, needs: &[Need]) -> bool {
        match need {
            Need::Device => self.has("device"),
            Need::TwoDevices => self.devices >= 2,
            Need::Memory => self.has("memory"),
            Need::DeviceMemory => self.has("device") || self.has("memory"),
            Need::Kind(word) => self.kind(word).is_some(),
            Need::Copies => {
                let names_kinds = needs.iter().any(|need| matches!(need, Need::Kind(_)));
                let used = |kind: &&Kind| !names_kinds || needs.contains(&Need::Kind(kind.word));
                self.has("transfer")
                    || self.kinds.iter().filter(used).all(|kind| kind.is_host_accessible())
            }
            Need::Compute => self.computes,
            Need::Streams | Need::Cut => true,
        }
    }
}

/// Returns the memory kind `word` with its properties. Returns `None` if the query for its
/// properties or a test allocation fails with DTL_ERROR_NOT_SUPPORTED.
fn look(backend: Backend, word: u64) -> Outcome<Option<Kind>> {
    let kind = match optional(backend.kind_info(word)) {
        Ok(None) => return Ok(None),
        Ok(Some(info)) => Kind { word, properties: info.properties, alignment: info.alignment },
        // That it cannot be described is a test's matter.
        Err(_) => Kind { word, properties: 0, alignment: 1 },
    };
    let here = "memory.alloc in kind discovery";
    match current_slot::within(here, || backend.alloc(word, 64, 0)) {
        Err(refused) if refused.status == DTL_ERROR_NOT_SUPPORTED => Ok(None),
        // What is wrong with it is a test's matter.
        _ => Ok(Some(kind)),
    }
}

/// Returns `size` pseudorandom bytes that depend only on `seed`.
pub(crate) fn pattern(seed: u64, size: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    let mut bytes = vec![0; size as usize];
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    bytes
}

/// Describes the first difference between two byte arrays, for an error message.
pub(crate) fn difference(is: &[u8], should: &[u8]) -> Option<String> {
    if is.len() != should.len() {
        return Some(format!("{} bytes, expected {}", is.len(), should.len()));
    }
    // One memcmp: the loop over each byte takes long for large buffers, which nearly always are equal.
    (is != should).then_some(())?;
    let at = is.iter().zip(should).position(|(is, should)| is != should)?;
    let count = is.iter().zip(should).filter(|(is, should)| is != should).count();
    Some(format!(
        "byte {at} is {:#04x}, expected {:#04x} ({count} of {} differ)",
        is[at],
        should[at],
        is.len()
    ))
}

/// Waits until a condition holds. Returns false after the time limit.
pub(crate) fn becomes(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if begin.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Calls `work`, which measures and returns the duration of an operation, until a duration is less
/// than `limit`; fails after ten calls. On a busy machine any single operation may be delayed, so
/// one short duration is enough to show that the operation does not wait.
pub(crate) fn quick(
    what: &str,
    limit: Duration,
    mut work: impl FnMut() -> Outcome<Duration>,
) -> Outcome {
    let mut least = Duration::MAX;
    for _ in 0..10 {
        least = least.min(work()?);
        if least < limit {
            return Ok(());
        }
    }
    wrong!("{what} takes {least:?}")
}

/// Returns the resident memory of this process in bytes; 0 if unknown.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    pages * 4096
}

/// Returns the number of threads of this process.
pub(crate) fn thread_count() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Returns the size, in bytes, of this process's mapped address space; 0 if unknown.
fn mapped_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Minimum size of the stack that stays mapped for a thread that was not joined.
const STACK: u64 = 64 << 10;

/// Fails if calls to `round` leave address space mapped, for example the stacks of threads that
/// have ended but were not joined. The calls are made in up to six batches. The allocator maps more
/// memory now and then, so one batch with little growth is enough to pass.
pub(crate) fn keeps_no_addresses(what: &str, mut round: impl FnMut() -> Outcome) -> Outcome {
    const ROUNDS: u64 = 50;
    let mut least = u64::MAX;
    for _ in 0..6 {
        let before = mapped_bytes();
        (0..ROUNDS).try_for_each(|_| round())?;
        least = least.min(mapped_bytes().saturating_sub(before));
        if least < ROUNDS * STACK {
            return Ok(());
        }
    }
    wrong!(
        "{} KiB of addresses stay mapped for each {what} that was made and destroyed (VmSize): \
         threads that have ended and were not joined keep their stacks",
        (least / ROUNDS) >> 10
    )
}

/// Returns the number of open files of this process.
pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Runs a function on a new thread, which has never set a device.
pub(crate) fn fresh<T: Send>(work: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(outcome) => outcome,
        Err(_) => wrong!("the thread panicked"),
    })
}

/// Runs the same work on this many threads concurrently. Returns the first failure.
pub(crate) fn in_threads(count: i32, work: impl Fn(i32) -> Outcome + Sync) -> Outcome {
    let work = &work;
    thread::scope(|scope| {
        let started: Vec<_> = (0..count).map(|index| scope.spawn(move || work(index))).collect();
        let ended: Vec<Outcome> = started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| wrong!("a thread panicked")))
            .collect();
        ended.into_iter().collect()
    })
}

/// Limit on the growth of the process (memory, threads, open files) over many rounds of a test.
pub(crate) struct Growth {
    pub(crate) bytes: u64,
    pub(crate) threads: Option<usize>,
    pub(crate) files: Option<usize>,
}

/// Runs `warm` rounds, then `rounds` more. Fails if the memory, the threads or the open files of
/// the process grow by more than `most` during the last `rounds` rounds. `what` describes the
/// rounds in the error message, for example "20 000 events were made and destroyed".
pub(crate) fn leaves_little(
    (warm, rounds): (usize, usize),
    most: &Growth,
    what: &str,
    mut round: impl FnMut() -> Outcome,
) -> Outcome {
    (0..warm).try_for_each(|_| round())?;
    let (memory, files, threads) = (resident_bytes(), open_files(), thread_count());
    (0..rounds).try_for_each(|_| round())?;
    let few = most
        .threads
        .is_none_or(|most| becomes(Duration::from_secs(5), || thread_count() <= threads + most));
    ensure!(few, "{} threads run; there were {threads} before {what}", thread_count());
    let grown = resident_bytes().saturating_sub(memory);
    ensure!(grown < most.bytes, "{} MiB more after {what}", grown >> 20);
    check!(
        most.files.is_none_or(|most| open_files() <= files + most),
        "{} files are open; there were {files} before {what}",
        open_files()
    )
}
