//! Tests of `batch`.

use super::*;

/// Simulated second rank. It sends the expected data; if `wrong` is set, it changes the byte at
/// this offset.
struct Other {
    wrong: Option<usize>,
}

impl Other {
    fn give(&self, into: &mut [u8], row: Row) -> Outcome {
        let place = Place { rank: 0, ranks: 2, is_oversubscribed: false };
        into.iter_mut().enumerate().for_each(|(at, byte)| *byte = expected(row, place, at));
        self.wrong.and_then(|at| into.get_mut(at)).into_iter().for_each(|byte| *byte ^= 1);
        Ok(())
    }
}

fn row(test: Test, bytes: usize) -> Row {
    Row { test, bytes }
}

impl Endpoint for Other {
    fn name(&self) -> &'static str {
        "other"
    }
    fn send(&mut self, _: &[u8], _: i32) -> Outcome {
        Ok(())
    }
    fn receive(&mut self, into: &mut [u8], _: i32) -> Outcome {
        self.give(into, row(Test::Latency, into.len()))
    }
    fn start_send(&mut self, _: &[u8], _: i32) -> Outcome {
        Ok(())
    }
    fn start_receive(&mut self, into: &mut [u8], _: i32) -> Outcome {
        self.give(into, row(Test::Bandwidth, into.len()))
    }
    fn finish(&mut self) -> Outcome {
        Ok(())
    }
    fn barrier(&mut self) -> Outcome {
        Ok(())
    }
    fn bcast(&mut self, data: &mut [u8]) -> Outcome {
        self.give(data, row(Test::Bcast, data.len()))
    }
    fn reduce(&mut self, _: &[u8], into: &mut [u8]) -> Outcome {
        self.give(into, row(Test::Reduce, into.len()))
    }
    fn allreduce(&mut self, _: &[u8], into: &mut [u8]) -> Outcome {
        self.give(into, row(Test::Allreduce, into.len()))
    }
    fn allgather(&mut self, data: &[u8], into: &mut [u8]) -> Outcome {
        self.give(into, row(Test::Allgather, data.len()))
    }
    fn alltoall(&mut self, _: &[u8], into: &mut [u8], bytes: usize) -> Outcome {
        self.give(into, row(Test::Alltoall, bytes))
    }
}

#[test]
fn a_wrong_byte_is_found_in_each_test() {
    let place = Place { rank: 0, ranks: 2, is_oversubscribed: false };
    for row in Row::list(&[], &[64]).expect("rows") {
        let mut buffers = Buffers::new(&[row], 2);
        let right = verify(&mut Other { wrong: None }, &mut buffers, row, place);
        assert_eq!(right, Ok(()), "{row:?}");
        if row.bytes > 0 {
            let wrong = verify(&mut Other { wrong: Some(5) }, &mut buffers, row, place);
            assert!(wrong.is_err_and(|text| text.contains("as byte 5, expected")), "{row:?}");
        }
    }
}

#[test]
fn ranks_and_places_have_data_of_their_own() {
    let of = |rank| (0..64).map(|at| pattern(at, rank)).collect::<Vec<_>>();
    assert!(of(0) != of(1) && of(1) != of(2) && of(0)[..32] != of(0)[32..]);
    let mine =
        expected(row(Test::Alltoall, 8), Place { rank: 1, ranks: 2, is_oversubscribed: false }, 0);
    assert_eq!(mine, pattern(8, 0), "rank 0's second block");
}
