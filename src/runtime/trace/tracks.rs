//! Tracks: rows of the trace for the streams and engines of devices, and for counters. Plugins name
//! them. The number of a track consists of the numbers of its two names, so nothing is stored.

use super::names::Name;
use super::text::EventOrigin;
use crate::error::{Result, failure};

/// First process id of a group in the trace file. Process ids below are ranks.
const FIRST_PROCESS: i32 = 1 << 30;
/// Process ids of a rank: one for each name that a group can have.
const PROCESSES: i32 = 1 << 14;

/// Row of the trace.
pub(super) struct Track {
    pub(super) group: Name,
    pub(super) name: Name,
}

impl Track {
    /// Returns the number of the track, which is not 0.
    pub(super) fn number(&self) -> u64 {
        u64::from(self.group.0 + 1) << 32 | u64::from(self.name.0 + 1)
    }

    /// Returns the track with a number that [`Track::number`] has returned.
    pub(super) fn find(number: u64) -> Result<Track> {
        let part = |part: u64| Name::find((part as u32).checked_sub(1)?);
        let both = part(number >> 32).zip(part(number));
        both.map(|(group, name)| Track { group, name }).ok_or_else(|| {
            failure!(
                DTL_ERROR_INVALID_ARGUMENT,
                "track is {number}, which is no track: use a number that trace_track has returned"
            )
        })
    }

    /// Returns the place of the track's events in the trace file of a rank.
    pub(super) fn origin(&self, rank: i32) -> EventOrigin {
        let process = rank.wrapping_mul(PROCESSES).wrapping_add(self.group.0 as i32);
        let process = FIRST_PROCESS | process & (FIRST_PROCESS - 1);
        EventOrigin { rank: process, thread: self.name.0 as i32 + 1 }
    }
}

#[cfg(test)]
#[path = "tests/tracks.rs"]
mod tests;
