//! Long tests, run only with --stress: threads run random operations concurrently, and all results
//! are checked.

use crate::kit::prelude::*;

/// Duration of each test in seconds.
pub(crate) static SECONDS: AtomicU64 = AtomicU64::new(0);

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "stress.memory.":
        random_operations = memory;
    Alone "stress.exec.":
        random_operations = exec;
    Ranks "stress.comm.":
        random_messages;
];

/// Random number generator. It generates the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

fn is_over(begin: Instant) -> bool {
    begin.elapsed() >= Duration::from_secs(SECONDS.load(Ordering::Relaxed))
}

fn memory(s: &Subject) -> Outcome {
    let begin = Instant::now();
    in_threads(8, |thread| {
        let mut random = Random(thread as u64 + 1);
        let mut kept = Vec::new();
        let kinds: Vec<_> = s.kinds.iter().filter(|kind| kind.properties & 32 != 0).collect();
        while !is_over(begin) && !kinds.is_empty() {
            let kind = kinds[random.below(kinds.len() as u64) as usize];
            let (seed, bits) = (random.below(u64::MAX), random.below(18));
            let size = 1 + random.below(1 << bits);
            let block = s.backend.alloc(kind.word, size, 1 << random.below(9))?;
            block.write(0, &pattern(seed, size))?;
            kept.push((seed, block));
            if kept.len() > 30 {
                let (seed, block) = kept.swap_remove(random.below(30) as usize);
                if let Some(difference) = difference(&block.all()?, &pattern(seed, block.size)) {
                    wrong!("thread {thread}, {} bytes: {difference}", block.size);
                }
            }
        }
        Ok(())
    })
}

fn exec(s: &Subject) -> Outcome {
    let begin = Instant::now();
    in_threads(8, |thread| {
        let mut random = Random(thread as u64 + 99);
        while !is_over(begin) {
            let (one, other) = (Stream::new(s.backend, 0)?, Stream::new(s.backend, 0)?);
            let (mut last, mut queued) = (Event::new(s.backend)?, 0);
            let job = Job::new(|| 0);
            for _ in 0..random.below(40) {
                let (here, there) =
                    if random.below(2) == 0 { (&one, &other) } else { (&other, &one) };
                here.callback(job)?;
                queued += 1;
                last = Event::on(s.backend, here)?;
                there.wait_event(&last)?;
            }
            last.sync()?;
            one.synchronize()?;
            other.synchronize()?;
            ensure!(
                job.runs() == queued,
                "{queued} pieces of work were queued, {} have run",
                job.runs()
            );
        }
        Ok(())
    })
}

fn random_messages(p: &Rank) -> Outcome {
    let dups: Vec<Rank> = (0..4).map(|_| p.dup()).collect::<Result<_, _>>()?;
    // The number of rounds must be the same on all ranks, so time is asked on rank 0 only.
    let begin = Instant::now();
    loop {
        in_threads(4, |thread| {
            let dup = &dups[thread as usize];
            let mut random = Random(thread as u64 + 7);
            for round in 0..50u64 {
                let (bits, tag) = (random.below(18), random.below(100) as i32);
                let size = random.below(1 << bits);
                let step = random.below(dup.size as u64) as i32;
                let (to, from) =
                    ((dup.rank + step) % dup.size, (dup.rank + dup.size - step) % dup.size);
                let got = dup.sendrecv(&message(dup.rank, to, round, size), to, size, from, tag)?;
                got.is(&message(from, dup.rank, round, size), from, tag)?;
            }
            Ok(())
        })?;
        let over = u64::from(is_over(begin));
        let all = crate::api::gather_all(&p.comm, [over, 0], p.size as u64)
            .map_err(|failure| crate::kit::outcome::Stop::Failed(failure.text))?;
        if all.first().is_some_and(|[over, _]| *over != 0) {
            return Ok(());
        }
    }
}
