//! Tests of the device on which memory is allocated, for backends with several devices.

use crate::kit::prelude::*;

/// Size of an allocation in bytes. It is larger than the memory that a backend may keep in
/// unreported caches.
const SIZE: u64 = 24 << 20;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "memory.alloc.":
        comes_from_the_current_device;
    Alone "memory.free.":
        of_another_device;
];

/// Returns a memory kind of the backend; DEVICE if the backend has it.
fn some_kind(s: &Subject) -> Outcome<u64> {
    match s.kind(DTL_MEMORY_DEVICE).or(s.kinds.first().copied()) {
        Some(kind) => Ok(kind.word),
        None => skip!("it has no memory kind"),
    }
}

/// Returns the free memory of each device, in bytes.
fn free_bytes(s: &Subject) -> Outcome<Vec<u64>> {
    let told = (0..s.devices).map(|device| optional(s.backend.device_memory(device)));
    let told: Option<Vec<(u64, u64)>> = told.collect::<Result<_, _>>()?;
    match told {
        Some(told) => Ok(told.into_iter().map(|(free, _)| free).collect()),
        None => skip!("neither table has memory_info"),
    }
}

fn comes_from_the_current_device(s: &Subject) -> Outcome {
    let kind = some_kind(s)?;
    for device in (0..s.devices).cycle().take(2 * s.devices as usize) {
        fresh(|| {
            s.backend.set_device(device)?;
            let before = free_bytes(s)?;
            let _block = s.backend.alloc(kind, SIZE, 0)?;
            let after = free_bytes(s)?;
            let fell: Vec<bool> = before
                .iter()
                .zip(&after)
                .map(|(was, is)| was.saturating_sub(*is) >= SIZE)
                .collect();
            let own = fell.get(device as usize).copied().unwrap_or(false);
            let elsewhere = fell.iter().position(|fell| *fell);
            check!(
                own || elsewhere.is_none(),
                "device {device} is current, memory came from {elsewhere:?}"
            )
        })?;
    }
    Ok(())
}

fn of_another_device(s: &Subject) -> Outcome {
    let kind = some_kind(s)?;
    for from in 0..s.devices {
        for by in 0..s.devices {
            let block = fresh(|| {
                s.backend.set_device(from)?;
                Ok(s.backend.alloc(kind, 4096, 0)?)
            })?;
            fresh(|| {
                s.backend.set_device(by)?;
                Ok(block.free()?)
            })?;
        }
    }
    Ok(())
}
