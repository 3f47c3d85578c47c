//! Encoding of the data that the bootstrap exchanges: 64-bit words, error messages, and outcomes
//! (words or an error).

use crate::abi::status::*;
use crate::error::{Error, Result, fail, failure, is_status, status_name};
use crate::runtime::component::Exchange;
use crate::sys::os::process;

/// Converts words to little-endian bytes.
pub(crate) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Converts little-endian bytes to words; ignores an incomplete last word.
pub(crate) fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_le_bytes)).collect()
}

/// Converts a string to 64-bit words; the last word is padded with zero bytes.
pub(crate) fn text_words(text: &str) -> Vec<u64> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    words_of(&bytes)
}

/// Decodes a string that was encoded with [`text_words`] and may have been truncated.
pub(crate) fn text_of(words: &[u64]) -> String {
    String::from_utf8_lossy(&bytes_of(words)).trim_end_matches('\0').to_owned()
}

/// Encodes an outcome as words: the status, then the data words or the error message.
pub(crate) fn encode(outcome: &Result<Vec<u64>>) -> Vec<u64> {
    match outcome {
        Ok(words) => [&[0], words.as_slice()].concat(),
        Err(error) => {
            [&[u64::from(error.status() as u32)], text_words(error.text()).as_slice()].concat()
        }
    }
}

/// Decodes an outcome that another rank has encoded with [`encode`].
pub(crate) fn decode(words: &[u64]) -> Result<Vec<u64>> {
    let (status, rest) = words.split_first().ok_or_else(|| {
        failure!(DTL_ERROR_COMMUNICATION, "an empty answer of rank 0; use one version of libdtl")
    })?;
    match u32::try_from(*status).map_or(DTL_ERROR_COMMUNICATION, |status| status as i32) {
        DTL_SUCCESS => Ok(rest.to_vec()),
        status => {
            let status = if is_status(status) { status } else { DTL_ERROR_COMMUNICATION };
            let text = text_of(rest);
            let text = if text.is_empty() { "it gave no reason".to_owned() } else { text };
            Err(Error::new(status, text))
        }
    }
}

/// Result of the bootstrap exchange: the data (one record per rank) that the ranks contributed.
#[derive(Debug, PartialEq, Eq)]
pub struct Records {
    /// Rank of this process.
    pub rank: i32,
    /// Number of ranks.
    pub size: i32,
    /// Records of all ranks, concatenated in rank order.
    pub records: Vec<u64>,
    /// Random number that rank 0 has generated; equal on all ranks.
    pub job_cookie: u64,
}

/// One rank's contribution: its record, or the reason why the rank cannot participate.
pub(super) struct RankRecord {
    /// Number of 64-bit words per record, equal on all ranks.
    pub(super) len: usize,
    pub(super) cookie: u64,
    pub(super) mine: Result<Vec<u64>>,
}

/// Number of words that precede the record in a contribution: status and cookie.
pub(super) const BEFORE: usize = 2;

impl RankRecord {
    pub(super) fn new(len: usize, mine: Result<Vec<u64>>) -> Self {
        let mine = mine.and_then(|record| match record.len() == len {
            true => Ok(record),
            false => {
                fail!(DTL_ERROR_INTERNAL, "a record of {} words instead of {len}", record.len())
            }
        });
        RankRecord { len, cookie: process::random_u64().unwrap_or(0), mine }
    }

    /// Returns the contribution as words: status, cookie and record. Every rank returns the same
    /// number of words. On failure, the error message, truncated to the size of the record,
    /// replaces the record.
    pub(super) fn words(&self) -> Vec<u64> {
        let mut words = encode(&self.mine);
        words.insert(1, self.cookie);
        words.resize(BEFORE + self.len, 0);
        words
    }

    /// Extracts the records from the contributions `all` and returns them in rank order. This
    /// rank's own failure takes precedence over a failure of the exchange, which takes precedence
    /// over another rank's failure.
    pub(super) fn finish(
        &self,
        (rank, size): (i32, i32),
        all: Result<Vec<u64>>,
    ) -> Result<Records> {
        if let Err(own) = &self.mine {
            return Err(own.clone());
        }
        let all = all?;
        let each = || all.chunks_exact(BEFORE + self.len);
        if let Some(error) = (0..).zip(each()).find_map(|(rank, words)| failure(rank, words)) {
            return Err(error);
        }
        let records: Vec<u64> =
            each().flat_map(|words| words.iter().skip(BEFORE)).copied().collect();
        if records.len() != self.len * size.unsigned_abs() as usize {
            return fail!(
                DTL_ERROR_COMMUNICATION,
                "the ranks' records are not whole; use one version of libdtl"
            );
        }
        let job_cookie = all.get(1).copied().unwrap_or(0);
        Ok(Records { rank, size, records, job_cookie })
    }

    /// Exchanges the contributions of all ranks in two calls to `over.allgather`. The second call
    /// confirms that all ranks have received the contributions.
    pub(super) fn exchange(&self, over: &dyn Exchange) -> Result<Records> {
        let all = over.allgather(&self.words());
        let records = self.finish((over.rank(), over.size()), all)?;
        over.allgather(&[0])?;
        Ok(records)
    }
}

/// Returns the error that the contribution of `rank` reports, or `None` if it does not report a
/// failure.
pub(super) fn failure(rank: usize, words: &[u64]) -> Option<Error> {
    let status = *words.first().filter(|status| **status != 0)?;
    let bytes = bytes_of(words.get(BEFORE..).unwrap_or_default());
    let text = String::from_utf8_lossy(&bytes);
    let more = if bytes.last().is_some_and(|last| *last != 0) { " …" } else { "" };
    Some(failure!(
        DTL_ERROR_UNAVAILABLE,
        "rank {rank} could not prepare its part ({}: {}{more}); see its own output",
        status_name(status as u32 as i32).to_string_lossy(),
        text.trim_end_matches(['\0', '\u{FFFD}'])
    ))
}
