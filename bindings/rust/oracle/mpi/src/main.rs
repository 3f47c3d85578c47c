//! Runs random messages and collectives twice, through libdtl over a communicator of rsmpi and
//! through rsmpi itself, and compares the bytes that each rank has received.
//!
//! Usage, with a launcher of MPI: oracle-mpi [CASES [SEED]]. Without an error it exits with 0, and
//! rank 0 prints the number of cases.

#![allow(clippy::print_stdout, reason = "the number of cases is the output of the program")]

mod cases;
mod draw;

use cases::{Pair, compare};
use draw::Draw;
use dtl_binding::{Comm, SUM, sys};
use mpi::Threading;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{Communicator, CommunicatorCollectives};

/// Runs one random case. All ranks draw the same numbers from `draw`.
fn case(pair: &Pair, draw: &mut Draw) {
    match draw.below(5) {
        0 => compare::<u8>(pair, draw),
        1 => compare::<i32>(pair, draw),
        2 => compare::<i64>(pair, draw),
        3 => compare::<f32>(pair, draw),
        _ => compare::<f64>(pair, draw),
    }
}

/// Opens a communicator over one of rsmpi, and checks that both have the same ranks.
fn open(world: SimpleCommunicator) -> Pair {
    let comm = Comm::from_mpi(&world).expect("dtl_comm_from_mpi_fint");
    assert_eq!(comm.rank().unwrap(), world.rank());
    assert_eq!(comm.size().unwrap(), world.size());
    Pair { comm, world }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise| arguments.next().map_or(otherwise, |text| text.parse().unwrap());
    let (cases, seed): (u64, u64) = (number(300), number(1));
    let error = Comm::from_mpi(&SimpleCommunicator::world()).expect_err("MPI is not initialized");
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_STATE, "{error}");
    let (universe, _) = mpi::initialize_with_threading(Threading::Multiple).expect("MPI_Init");
    let all = open(universe.world());
    // The same ranks in the other order, and halves.
    let (rank, size) = (all.world.rank(), all.world.size());
    let split = |color, key| all.world.split_by_color_with_key(Color::with_value(color), key);
    let reversed = open(split(0, size - rank).unwrap());
    let half = open(split(rank % 2, rank).unwrap());
    let mut draw = Draw::new(seed);
    for number in 0..cases {
        let pair = match draw.below(4) {
            0 => &reversed,
            1 => &half,
            _ => &all,
        };
        // The halves draw one case each, and continue alike.
        let mut own = Draw::new(draw.next() ^ number);
        case(pair, &mut own);
    }
    ends(all, universe.world());
    drop((reversed, half));
    late(universe);
    if rank == 0 {
        println!("{cases} cases of {size} ranks are equal (seed {seed})");
    }
}

/// Checks that the MPI communicator and the library's live independently.
fn ends(all: Pair, world: SimpleCommunicator) {
    let copy = world.duplicate();
    let comm = Comm::from_mpi(&copy).unwrap();
    drop(copy);
    let mut ranks = 1_i32;
    comm.allreduce_in_place(&mut ranks, SUM).unwrap();
    assert_eq!(ranks, world.size());
    drop(all);
    world.barrier();
}

/// Checks that calls after MPI_Finalize fail, and that a communicator may be dropped then.
fn late(universe: mpi::environment::Universe) {
    let world = universe.world();
    let comm = Comm::from_mpi(&world).unwrap();
    drop(universe);
    let error = Comm::from_mpi(&world).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_STATE, "{error}");
    if comm.size().is_ok_and(|size| size == 1) {
        // A barrier of one rank may need no MPI.
        return;
    }
    let error = comm.barrier().unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_STATE, "{error}");
}
