//! Random numbers with a fixed seed, and processes of known shares made of them.

/// xorshift64*: deterministic on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            random.bits();
        }
        random
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// 0 to 1, 1 excluded.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// About normally distributed, mean 0, deviation 1.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// What share of a tick's interval is spent in the place in question.
pub trait Process {
    fn next(&mut self, random: &mut Random) -> f64;
}

/// Each tick sees the place with this probability, whatever it saw before.
pub struct Independent(pub f64);

impl Process for Independent {
    fn next(&mut self, random: &mut Random) -> f64 {
        f64::from(u8::from(random.unit() < self.0))
    }
}

/// In the place and out of it by turns, for times with these means, in ticks; seen at ticks.
pub struct Turns {
    means: [f64; 2],
    inside: bool,
    left: Option<f64>,
}

impl Turns {
    pub fn new(inside: f64, outside: f64) -> Self {
        Self {
            means: [outside, inside],
            inside: false,
            left: None,
        }
    }

    pub fn share(&self) -> f64 {
        self.means[1] / (self.means[0] + self.means[1])
    }
}

impl Process for Turns {
    fn next(&mut self, random: &mut Random) -> f64 {
        let mut left = match self.left {
            Some(left) => left - 1.0,
            None => {
                self.inside = random.unit() < self.share();
                random.exponential(self.means[usize::from(self.inside)])
            }
        };
        while left <= 0.0 {
            self.inside = !self.inside;
            left += random.exponential(self.means[usize::from(self.inside)]);
        }
        self.left = Some(left);
        f64::from(u8::from(self.inside))
    }
}

/// Exact run time that follows itself slowly: an autoregressive share of each interval.
pub struct Wander {
    pub mean: f64,
    pub deviation: f64,
    /// Correlation from tick to tick.
    pub memory: f64,
    pub state: Option<f64>,
}

impl Process for Wander {
    fn next(&mut self, random: &mut Random) -> f64 {
        let fresh = random.normal();
        let state = match self.state {
            Some(last) => self.memory * last + (1.0 - self.memory.powi(2)).sqrt() * fresh,
            None => fresh,
        };
        self.state = Some(state);
        // Cut on both sides alike, so that the mean stays.
        let room = self.mean.min(1.0 - self.mean);
        self.mean + (self.deviation * state).clamp(-room, room)
    }
}
