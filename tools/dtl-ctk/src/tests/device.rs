//! Tests of availability, features and the device table.

use crate::kit::calls::field;
use crate::kit::catalog::{Group, Need, tests_alone};
use crate::kit::outcome::{Outcome, ensure, refused, skip, wrong};
use crate::kit::subject::Subject;
use dtl_sys::*;
use std::sync::Barrier;
use std::thread;

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "is_available, supports",
        needs: &[],
        rule: "is_available says whether the backend can run here, and must not fail; supports \
            answers 0 \
               for a feature that it does not know.",
        usually: "The slot answers from a state that changes, fails instead of answering 0, or \
            leaves its \
                  output unwritten.",
        tests: tests_alone![
            "device.available.same_answer_twice": "asked 100 times, the answer is the \
             same" => available_is_stable;
            "device.available.same_on_every_thread": "eight threads that ask at once get one \
             answer" => available_threads;
            "device.supports.components_are_its_tables": "the components it supports are those of \
             dtl_backend_info" => supports_tables;
            "device.supports.unknown_feature_is_no": "a feature that nobody knows is answered \
             0" => supports_unknown;
            "device.supports.long_name_is_no": "a feature name of 4000 bytes is answered \
             0" => supports_long;
            "device.supports.same_answer_twice": "a feature is answered the same each \
             time" => supports_stable;
        ],
    },
    Group {
        slot: "device.count",
        needs: &[Need::Device],
        rule: "count gives the number of devices.",
        usually: "The count is taken from uninitialised memory, or devices are counted afresh and \
            change.",
        tests: tests_alone![
            "device.count.at_least_one": "an available backend with a device table has a \
             device" => count_positive;
            "device.count.same_each_time": "100 calls give one count" => count_stable;
            "device.count.same_on_every_thread": "eight threads at once get one \
             count" => count_threads;
            "device.count.ends_where_info_ends": "the device behind the last is refused, the last \
             is not" => count_bounds;
        ],
    },
    Group {
        slot: "device.set, device.get",
        needs: &[Need::Device],
        rule: "set makes a device the calling thread's current one (as cudaSetDevice); get is \
            asked only of a \
               thread that never set one, and gives a device that exists.",
        usually: "The current device is kept for the process instead of the thread, or get gives \
            an index \
                  that is none.",
        tests: tests_alone![
            "device.get.valid_before_set": "a new thread's current device exists" => get_before_set;
            "device.get.answers_what_was_set": "after set(i), get is i, for each \
             device" => get_after_set;
            "device.get.same_for_every_new_thread": "threads that set nothing all have the same \
             device" => get_fresh_threads;
            "device.set.last_device_accepted": "the last device can be made current" => set_last;
            "device.set.negative_refused": "set(-1) is DTL_ERROR_OUT_OF_BOUNDS" => set_negative;
            "device.set.beyond_count_refused": "set(count) is DTL_ERROR_OUT_OF_BOUNDS and changes \
             nothing" => set_beyond;
            "device.set.again_1000_times": "the same device can be set over and over" => set_often;
            "device.set.from_threads_at_once": "eight threads set and get 200 times without a \
             failure" => set_threads;
        ],
    },
    Group {
        slot: "device.set, device.get",
        needs: &[Need::Device, Need::TwoDevices],
        rule: "The current device belongs to the thread.",
        usually: "The current device is kept for the process, or every allocation is made on \
            device 0.",
        tests: tests_alone![
            "device.set.other_threads_keep_theirs": "two threads use different devices at \
             once" => set_is_per_thread;
            "device.set.allocation_is_on_that_device": "memory taken after set(i) is on device \
             i" => set_decides_memory;
            "device.info.devices_are_told_apart": "two devices do not have the same PCI \
             address" => info_distinct;
        ],
    },
];

/// The same question from eight threads at once: one answer.
fn one_answer<T: PartialEq + Send + std::fmt::Debug>(ask: impl Fn() -> T + Sync) -> Outcome {
    let first = ask();
    let answers: Vec<T> = thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(&ask)).collect();
        asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    match answers.iter().find(|answer| **answer != first) {
        Some(other) => wrong!("one thread got {first:?}, another {other:?}"),
        None => Ok(()),
    }
}

fn available_is_stable(s: &Subject) -> Outcome {
    for number in 0..100 {
        if let Err(why) = s.backend.available()? {
            wrong!(
                "call {number} says that it cannot run here ({why}); an earlier one said that it \
                 can"
            );
        }
    }
    Ok(())
}

fn available_threads(s: &Subject) -> Outcome {
    one_answer(|| s.backend.available().map(|answer| answer.is_ok()).ok())
}

fn supports_tables(s: &Subject) -> Outcome {
    for component in ["device", "memory", "transfer", "exec", "comm"] {
        let yes = s.backend.supports(component)?;
        ensure!(
            (yes != 0) == s.has(component),
            "supports(\"{component}\") is {yes}, its table is {}",
            s.has(component)
        );
    }
    Ok(())
}

fn supports_unknown(s: &Subject) -> Outcome {
    let yes = s.backend.supports("no.such.feature-42")?;
    ensure!(yes == 0, "supports(\"no.such.feature-42\") is {yes}");
    Ok(())
}

fn supports_long(s: &Subject) -> Outcome {
    let yes = s.backend.supports(&"x".repeat(4000))?;
    ensure!(yes == 0, "supports of a name of 4000 bytes is {yes}");
    Ok(())
}

fn supports_stable(s: &Subject) -> Outcome {
    for feature in ["device", "no_compute", "threads", "ipc"] {
        let first = s.backend.supports(feature)?;
        for _ in 0..100 {
            let again = s.backend.supports(feature)?;
            ensure!(again == first, "supports(\"{feature}\") was {first} and is {again}");
        }
    }
    Ok(())
}

fn count_positive(s: &Subject) -> Outcome {
    let count = s.backend.device_count()?;
    ensure!((1..=4096).contains(&count), "it is available and has {count} device(s)");
    Ok(())
}

fn count_stable(s: &Subject) -> Outcome {
    let first = s.backend.device_count()?;
    for _ in 0..100 {
        let again = s.backend.device_count()?;
        ensure!(again == first, "the count was {first} and is {again}");
    }
    Ok(())
}

fn count_threads(s: &Subject) -> Outcome {
    one_answer(|| s.backend.device_count().ok())
}

fn count_bounds(s: &Subject) -> Outcome {
    let count = s.backend.device_count()?;
    s.backend.device_info(count - 1)?;
    refused(s.backend.device_info(count), DTL_ERROR_OUT_OF_BOUNDS, "the device behind the last")
}

/// Runs on a thread of its own: one that never set a device.
pub(crate) fn fresh<T: Send>(work: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(outcome) => outcome,
        Err(_) => wrong!("the thread panicked"),
    })
}

fn get_before_set(s: &Subject) -> Outcome {
    let device = fresh(|| Ok(s.backend.get_device()?))?;
    ensure!(
        (0..s.devices).contains(&device),
        "a new thread's device is {device}, of {}",
        s.devices
    );
    Ok(())
}

fn get_after_set(s: &Subject) -> Outcome {
    fresh(|| {
        for device in (0..s.devices).chain((0..s.devices).rev()) {
            s.backend.set_device(device)?;
            let is = s.backend.get_device()?;
            ensure!(is == device, "set({device}), get gives {is}");
        }
        Ok(())
    })
}

fn get_fresh_threads(s: &Subject) -> Outcome {
    let first = fresh(|| Ok(s.backend.get_device()?))?;
    fresh(|| Ok(s.backend.set_device(s.devices - 1)?))?;
    let later = fresh(|| Ok(s.backend.get_device()?))?;
    ensure!(
        first == later,
        "a new thread had device {first}, after another thread's set it has {later}"
    );
    Ok(())
}

fn set_last(s: &Subject) -> Outcome {
    fresh(|| Ok(s.backend.set_device(s.devices - 1)?))
}

fn set_negative(s: &Subject) -> Outcome {
    refused(s.backend.set_device(-1), DTL_ERROR_OUT_OF_BOUNDS, "set(-1)")
}

fn set_beyond(s: &Subject) -> Outcome {
    fresh(|| {
        let before = s.backend.get_device()?;
        refused(s.backend.set_device(s.devices), DTL_ERROR_OUT_OF_BOUNDS, "set(count)")?;
        let after = s.backend.get_device()?;
        ensure!(before == after, "the refused set changed the device from {before} to {after}");
        Ok(())
    })
}

fn set_often(s: &Subject) -> Outcome {
    fresh(|| (0..1000).try_for_each(|_| s.backend.set_device(0)).map_err(Into::into))
}

fn set_threads(s: &Subject) -> Outcome {
    let work = |first: i32| -> Outcome {
        for step in 0..200 {
            let device = (first + step) % s.devices;
            s.backend.set_device(device)?;
            let is = s.backend.get_device()?;
            ensure!(is == device, "set({device}), get gives {is} while other threads set theirs");
        }
        Ok(())
    };
    in_threads(8, work)
}

/// The same work on so many threads at once; the first failure counts.
pub(crate) fn in_threads(count: i32, work: impl Fn(i32) -> Outcome + Sync) -> Outcome {
    thread::scope(|scope| {
        let started: Vec<_> = (0..count)
            .map(|index| {
                scope.spawn({
                    let work = &work;
                    move || work(index)
                })
            })
            .collect();
        let ended: Vec<Outcome> = started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| wrong!("a thread panicked")))
            .collect();
        ended.into_iter().collect()
    })
}

fn set_is_per_thread(s: &Subject) -> Outcome {
    let together = Barrier::new(2);
    in_threads(2, |device| {
        s.backend.set_device(device)?;
        together.wait();
        let is = s.backend.get_device()?;
        ensure!(
            is == device,
            "this thread set device {device}, another its own, and get gives {is}"
        );
        Ok(())
    })
}

fn set_decides_memory(s: &Subject) -> Outcome {
    let Some(kind) = s.kinds.last() else { skip!("it has no memory") };
    fresh(|| {
        for device in 0..s.devices {
            s.backend.set_device(device)?;
            let block = s.backend.alloc(kind.word, 4096, 0)?;
            let is = block.query(0)?.device;
            ensure!(is == device, "after set({device}) an allocation is on device {is}");
        }
        Ok(())
    })
}

fn info_distinct(s: &Subject) -> Outcome {
    let mut seen = Vec::new();
    for device in 0..s.devices {
        let pci = field(&s.backend.device_info(device)?.pci).unwrap_or_default();
        ensure!(pci.is_empty() || !seen.contains(&pci), "two devices have the PCI address {pci}");
        seen.push(pci);
    }
    Ok(())
}
