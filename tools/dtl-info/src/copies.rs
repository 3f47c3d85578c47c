//! `--copies`: exchanges large messages between the ranks of a job, and reports the copy method
//! that the library chose for each size, with the measured rates.

use dtl_binding::{Comm, Library, Result, explain, field};

/// Number of messages of each size in each direction: enough for the first trials of all methods.
const MESSAGES: usize = 100;
/// The same for messages below 16 KiB, of which the library measures few.
const SMALL_MESSAGES: usize = 1000;
/// Maximum size of the report of a rank, in bytes.
const REPORT: usize = 1 << 16;

/// Returns the reports of all ranks on rank 0, and an empty text on the other ranks. Collective.
pub(crate) fn report() -> Result<String> {
    let _library = Library::init()?;
    let comm = Comm::world()?;
    let (rank, size) = (comm.rank()?, comm.size()?);
    let partner = rank ^ 1;
    // With an odd number of ranks, the last one has no partner.
    if partner < size {
        exchange(&comm, rank, partner)?;
    }
    let lines = explain()?;
    let lines = lines.lines().filter_map(|line| line.strip_prefix("copies of "));
    let own = lines.map(|line| format!("  {line}\n")).collect::<String>();
    let own = if own.is_empty() { format!("  {}\n", why_none(&comm, size)?) } else { own };
    if rank > 0 {
        comm.send(own.as_bytes(), 0, 1)?;
        return Ok(String::new());
    }
    let mut all = format!("rank 0:\n{own}");
    for source in 1..size {
        let mut text = vec![0_u8; REPORT];
        let received = comm.recv(&mut text, source, 1)?;
        text.truncate(received.size_bytes);
        all += &format!("rank {source}:\n{}", String::from_utf8_lossy(&text));
    }
    Ok(all)
}

/// Returns the reason why the library chose no method for the messages to this rank.
fn why_none(comm: &Comm, size: i32) -> Result<String> {
    Ok(if size < 2 {
        "no other rank: start two, for example by \"dtlrun -n 2 dtl-info --copies\"".to_owned()
    } else {
        format!("no choice of copy methods: {}", field(&comm.info()?.transport))
    })
}

/// Sends and receives messages of each size class, in turn, from and into the same buffer.
fn exchange(comm: &Comm, rank: i32, partner: i32) -> Result<()> {
    let mut buffer = vec![1_u8; 6 << 20];
    for size in (0..12).map(|class| 3 << 10 << class) {
        let Some(message) = buffer.get_mut(..size) else { continue };
        let messages = if size < 16 << 10 { SMALL_MESSAGES } else { MESSAGES };
        for turn in 0..2 * messages {
            if (turn % 2 == 0) == (rank < partner) {
                comm.send(message, partner, 0)?;
            } else {
                comm.recv(message, partner, 0)?;
            }
        }
    }
    Ok(())
}
