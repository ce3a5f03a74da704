//! Choices between variants that give the same bits: which is fastest differs from device to device.
//! Measuring them is a host's affair. Knows no device.

/// Most tokens that a processor's lanes share a row's weights for.
pub const MOST_ROW_TOKENS: u32 = 4;
/// Most tokens that a lane of a GPU's matrix-vector product computes.
pub const MOST_GEMV_TOKENS: u32 = 8;

/// From how many tokens on which body of a matrix product is used; with experts, from how many tokens of
/// an expert ([`kernels::moe_group`](crate::kernels::moe_group)). No value changes a bit of any result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Processors: tokens a workgroup computes where there are that many; 1, 2 or
    /// [`MOST_ROW_TOKENS`].
    pub row_tokens: u32,
    /// GPUs: most tokens that go to the matrix-vector body, by eight or less at a time.
    pub gemv_tokens: u32,
    /// GPUs: most tokens that go to tiles of 16; more go to tiles of 32.
    pub skinny_tokens: u32,
    /// Cooperative matrices: most tokens that go to the body whose subgroups share the spans of a row.
    pub coop_split_tokens: u32,
    /// Cooperative matrices: most tokens that go to tiles of 32; more go to tiles of 64.
    pub coop_skinny_tokens: u32,
}

impl Tuning {
    /// Names and values, for files and people.
    pub fn fields(&self) -> [(&'static str, u32); 5] {
        [
            ("row_tokens", self.row_tokens),
            ("gemv_tokens", self.gemv_tokens),
            ("skinny_tokens", self.skinny_tokens),
            ("coop_split_tokens", self.coop_split_tokens),
            ("coop_skinny_tokens", self.coop_skinny_tokens),
        ]
    }

    /// The same with a value changed; `None` where there is no such field or it cannot have this value.
    #[must_use]
    pub fn with(mut self, field: &str, value: u32) -> Option<Self> {
        let (slot, fine) = match field {
            "row_tokens" => (
                &mut self.row_tokens,
                matches!(value, 1 | 2 | MOST_ROW_TOKENS),
            ),
            "gemv_tokens" => (&mut self.gemv_tokens, value <= MOST_TOKENS),
            "skinny_tokens" => (&mut self.skinny_tokens, value <= MOST_TOKENS),
            "coop_split_tokens" => (&mut self.coop_split_tokens, value <= MOST_TOKENS),
            "coop_skinny_tokens" => (&mut self.coop_skinny_tokens, value <= MOST_TOKENS),
            _ => return None,
        };
        *slot = value;
        fine.then_some(self)
    }
}

impl Default for Tuning {
    /// What suits most devices that nobody has measured.
    fn default() -> Self {
        Self {
            row_tokens: MOST_ROW_TOKENS,
            gemv_tokens: MOST_GEMV_TOKENS,
            skinny_tokens: 64,
            coop_split_tokens: 16,
            coop_skinny_tokens: 32,
        }
    }
}

/// No border lies higher.
const MOST_TOKENS: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_take_what_they_may_be() {
        let tuning = Tuning::default();
        for (name, value) in tuning.fields() {
            assert_eq!(tuning.with(name, value), Some(tuning), "{name}");
        }
        assert_eq!(tuning.with("row_tokens", 3), None);
        assert_eq!(tuning.with("gemv_tokens", u32::MAX), None);
        assert_eq!(tuning.with("rows", 1), None);
        let other = tuning.with("skinny_tokens", 0).expect("none at all");
        assert_ne!(other, tuning);
    }
}
