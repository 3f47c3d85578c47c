//! Tests of a backend's availability, its features and its device table.

use crate::kit::prelude::*;
use std::sync::Barrier;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "device.available.":
        same_answer_twice = available_is_stable, same_on_every_thread = available_threads;
    Alone "device.supports.":
        components_are_its_tables, unknown_feature_is_no, long_name_is_no,
        same_answer_twice = supports_stable;
    Alone "device.count.":
        at_least_one, same_each_time,
        same_on_every_thread = |s| one_answer(|| s.backend.device_count().ok()),
        ends_where_info_ends;
    Alone "device.get.":
        valid_before_set, answers_what_was_set, same_for_every_new_thread;
    Alone "device.set.":
        last_device_accepted = |s| fresh(|| Ok(s.backend.set_device(s.devices - 1)?)),
        negative_refused = |s| {
            refused(s.backend.set_device(-1), DTL_ERROR_OUT_OF_BOUNDS, "set(-1)")
        },
        beyond_count_refused, again_1000_times, from_threads_at_once, other_threads_keep_theirs,
        allocation_is_on_that_device;
    Alone "device.info.":
        devices_are_told_apart;
];

/// Checks that eight threads that call `ask` concurrently get the same result.
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

fn components_are_its_tables(s: &Subject) -> Outcome {
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

fn unknown_feature_is_no(s: &Subject) -> Outcome {
    let yes = s.backend.supports("no.such.feature-42")?;
    check!(yes == 0, "supports(\"no.such.feature-42\") is {yes}")
}

fn long_name_is_no(s: &Subject) -> Outcome {
    let yes = s.backend.supports(&"x".repeat(4000))?;
    check!(yes == 0, "supports of a name of 4000 bytes is {yes}")
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

fn at_least_one(s: &Subject) -> Outcome {
    let count = s.backend.device_count()?;
    check!((1..=4096).contains(&count), "it is available and has {count} device(s)")
}

fn same_each_time(s: &Subject) -> Outcome {
    let first = s.backend.device_count()?;
    for _ in 0..100 {
        let again = s.backend.device_count()?;
        ensure!(again == first, "the count was {first} and is {again}");
    }
    Ok(())
}

fn ends_where_info_ends(s: &Subject) -> Outcome {
    let count = s.backend.device_count()?;
    s.backend.device_info(count - 1)?;
    refused(s.backend.device_info(count), DTL_ERROR_OUT_OF_BOUNDS, "the device behind the last")
}

fn valid_before_set(s: &Subject) -> Outcome {
    let device = fresh(|| Ok(s.backend.get_device()?))?;
    check!((0..s.devices).contains(&device), "a new thread's device is {device}, of {}", s.devices)
}

fn answers_what_was_set(s: &Subject) -> Outcome {
    fresh(|| {
        for device in (0..s.devices).chain((0..s.devices).rev()) {
            s.backend.set_device(device)?;
            let is = s.backend.get_device()?;
            ensure!(is == device, "set({device}), get gives {is}");
        }
        Ok(())
    })
}

fn same_for_every_new_thread(s: &Subject) -> Outcome {
    let first = fresh(|| Ok(s.backend.get_device()?))?;
    fresh(|| Ok(s.backend.set_device(s.devices - 1)?))?;
    let later = fresh(|| Ok(s.backend.get_device()?))?;
    check!(
        first == later,
        "a new thread had device {first}, after another thread's set it has {later}"
    )
}

fn beyond_count_refused(s: &Subject) -> Outcome {
    fresh(|| {
        let before = s.backend.get_device()?;
        refused(s.backend.set_device(s.devices), DTL_ERROR_OUT_OF_BOUNDS, "set(count)")?;
        let after = s.backend.get_device()?;
        check!(before == after, "the refused set changed the device from {before} to {after}")
    })
}

fn again_1000_times(s: &Subject) -> Outcome {
    fresh(|| (0..1000).try_for_each(|_| s.backend.set_device(0)).map_err(Into::into))
}

fn from_threads_at_once(s: &Subject) -> Outcome {
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

fn other_threads_keep_theirs(s: &Subject) -> Outcome {
    let together = Barrier::new(2);
    in_threads(2, |device| {
        s.backend.set_device(device)?;
        together.wait();
        let is = s.backend.get_device()?;
        check!(is == device, "this thread set device {device}, another its own, and get gives {is}")
    })
}

fn allocation_is_on_that_device(s: &Subject) -> Outcome {
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

fn devices_are_told_apart(s: &Subject) -> Outcome {
    let mut seen = Vec::new();
    for device in 0..s.devices {
        let pci = field(&s.backend.device_info(device)?.pci).unwrap_or_default();
        ensure!(pci.is_empty() || !seen.contains(&pci), "two devices have the PCI address {pci}");
        seen.push(pci);
    }
    Ok(())
}
