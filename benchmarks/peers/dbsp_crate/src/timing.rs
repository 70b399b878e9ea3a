//! Time of the steps: by the clock, and of the processor, all threads of this process together.

use std::time::Instant;

/// Runs while it lives.
pub struct Timer {
    clock: Instant,
    cpu_s: f64,
}

/// The seconds and processor seconds of some steps.
#[derive(Default)]
pub struct Taken {
    seconds: f64,
    cpu_seconds: f64,
}

fn cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is a constant of the system and `time` is ours.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "a clock of the processor");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

impl Timer {
    pub fn started() -> Self {
        Self { clock: Instant::now(), cpu_s: cpu_s() }
    }

    pub fn taken(&self) -> Taken {
        Taken { seconds: self.clock.elapsed().as_secs_f64(), cpu_seconds: cpu_s() - self.cpu_s }
    }
}

impl Taken {
    /// With the crate's own profile, which is JSON too.
    pub fn json(&self, profile: &str) -> String {
        let Self { seconds, cpu_seconds } = self;
        format!("{{\"seconds\": {seconds}, \"cpu_seconds\": {cpu_seconds}, \"profile\": {profile}}}")
    }
}
