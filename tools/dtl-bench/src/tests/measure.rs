//! Tests of `measure`.

use super::*;

struct Two(Vec<usize>);

impl Bench for Two {
    fn batch(&mut self, side: usize) -> Outcome<f64> {
        self.0.push(side);
        std::thread::sleep(Duration::from_millis(1));
        Ok(side as f64)
    }

    fn distance(&mut self) -> Option<f64> {
        Some(100.0)
    }
}

#[test]
fn the_sides_take_turns() {
    let mut two = Two(Vec::new());
    let samples = in_turn(&mut two, 2, Duration::from_millis(5)).expect("it cannot fail");
    assert!(two.0.chunks(2).all(|pair| pair == [0, 1]), "{:?}", two.0);
    let [a, b] = [0, 1].map(|side| samples[side].summary(Regime::Near).expect("samples"));
    assert_eq!((a.p10, b.p10, a.count), (0.0, 1.0, b.count));
    assert!(a.count >= 3, "{a:?}");
}
