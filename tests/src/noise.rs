//! Seeded noise for test inputs (PCG-XSH-RR, O'Neill 2014). Knows nothing of what it fills.

/// A small random generator; the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// A generator.
    pub fn new(seed: u64) -> Self {
        let mut noise = Self(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
        noise.u32();
        noise
    }

    /// 32 random bits.
    pub fn u32(&mut self) -> u32 {
        let state = self.0;
        self.0 = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let xored = (((state >> 18) ^ state) >> 27) as u32;
        xored.rotate_right((state >> 59) as u32)
    }

    /// Below `n`.
    pub fn below(&mut self, n: u32) -> u32 {
        self.u32() % n
    }

    /// Uniform in [-1, 1).
    pub fn f32(&mut self) -> f32 {
        (self.u32() >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    }

    /// `n` of them.
    pub fn f32s(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.f32()).collect()
    }
}
