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

/// Number of measured distances. At first, the processors move during each batch of the second side.
struct Moving(usize);

impl Bench for Moving {
    fn batch(&mut self, _side: usize) -> Outcome<f64> {
        std::thread::sleep(Duration::from_millis(1));
        Ok(1.0)
    }

    fn distance(&mut self) -> Option<f64> {
        self.0 += 1;
        let is_far = self.0 < 60 && (self.0 - 1) % 4 >= 2;
        Some(if is_far { 500.0 } else { 100.0 })
    }
}

#[test]
fn all_sides_get_values_of_one_distance() {
    let samples = in_turn(&mut Moving(0), 2, Duration::from_millis(2)).expect("it cannot fail");
    assert!(samples.iter().all(|of| of.has(Regime::Near)), "{samples:?}");
    assert!(!samples[1].has(Regime::Far), "{samples:?}");
}
