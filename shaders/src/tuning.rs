//! Choices between variants that give the same bits: which is fastest differs from device to device.
//! Measuring them is a host's affair. Knows no device.

/// Most tokens that a processor's lanes share a row's weights for.
pub const MOST_ROW_TOKENS: u32 = 4;
/// Most tokens that a lane of a GPU's matrix-vector product computes.
pub const MOST_GEMV_TOKENS: u32 = 8;

/// From how many tokens on which body of a matrix product is used, and in which shape; with experts, from how
/// many tokens of an expert ([`kernels::moe_group`](crate::kernels::moe_group)). No value changes a bit of any
/// result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Processors: tokens a workgroup computes where there are that many; 1, 2 or
    /// [`MOST_ROW_TOKENS`].
    pub row_tokens: u32,
    /// Processors, one token: rows a lane; 4 or 8. Not of matrices that are joined to others
    /// ([`fused_row`](crate::kernels::fused_row)).
    pub row_rows_alone: u32,
    /// Processors, one token: rows a lane in a matrix of very many, such as a vocabulary's; 4, 8 or 16.
    pub row_rows_many: u32,
    /// Processors, one token: how many rows very many are: enough work for every core, however many of
    /// them a lane has.
    pub row_many: u32,
    /// Processors, several tokens: rows a lane; 8 or 16.
    pub row_rows_shared: u32,
    /// GPUs: most tokens that go to the matrix-vector body, by eight or less at a time.
    pub gemv_tokens: u32,
    /// GPUs: lanes of a workgroup of the matrix-vector body; 32, 64 or 128.
    pub gemv_lanes: u32,
    /// GPUs: most tokens that go to tiles of 16; more go to larger ones.
    pub skinny_tokens: u32,
    /// GPUs: rows of a tile of 16 tokens; 32, 64 or 128.
    pub skinny_rows: u32,
    /// GPUs: rows of a larger tile; 64 or 128.
    pub tile_rows: u32,
    /// GPUs: tokens of a larger tile; 32 or 64.
    pub tile_tokens: u32,
    /// Cooperative matrices: most tokens that go to the body whose subgroups share the spans of a row.
    pub coop_split_tokens: u32,
    /// Cooperative matrices: most tokens that go to tiles of 32; more go to tiles of 64.
    pub coop_skinny_tokens: u32,
}

impl Tuning {
    /// Names and values, for files and people.
    pub fn fields(&self) -> [(&'static str, u32); 13] {
        [
            ("row_tokens", self.row_tokens),
            ("row_rows_alone", self.row_rows_alone),
            ("row_rows_many", self.row_rows_many),
            ("row_many", self.row_many),
            ("row_rows_shared", self.row_rows_shared),
            ("gemv_tokens", self.gemv_tokens),
            ("gemv_lanes", self.gemv_lanes),
            ("skinny_tokens", self.skinny_tokens),
            ("skinny_rows", self.skinny_rows),
            ("tile_rows", self.tile_rows),
            ("tile_tokens", self.tile_tokens),
            ("coop_split_tokens", self.coop_split_tokens),
            ("coop_skinny_tokens", self.coop_skinny_tokens),
        ]
    }

    /// The same with a value changed; `None` where there is no such field or it cannot have this value.
    #[must_use]
    pub fn with(mut self, field: &str, value: u32) -> Option<Self> {
        let border = value <= MOST_TOKENS;
        let (slot, fine) = match field {
            "row_tokens" => (
                &mut self.row_tokens,
                matches!(value, 1 | 2 | MOST_ROW_TOKENS),
            ),
            "row_rows_alone" => (&mut self.row_rows_alone, matches!(value, 4 | 8)),
            "row_rows_many" => (&mut self.row_rows_many, matches!(value, 4 | 8 | 16)),
            "row_many" => (&mut self.row_many, border),
            "row_rows_shared" => (&mut self.row_rows_shared, matches!(value, 8 | 16)),
            "gemv_tokens" => (&mut self.gemv_tokens, border),
            "gemv_lanes" => (&mut self.gemv_lanes, matches!(value, 32 | 64 | 128)),
            "skinny_tokens" => (&mut self.skinny_tokens, border),
            "skinny_rows" => (&mut self.skinny_rows, matches!(value, 32 | 64 | 128)),
            "tile_rows" => (&mut self.tile_rows, matches!(value, 64 | 128)),
            "tile_tokens" => (&mut self.tile_tokens, matches!(value, 32 | 64)),
            "coop_split_tokens" => (&mut self.coop_split_tokens, border),
            "coop_skinny_tokens" => (&mut self.coop_skinny_tokens, border),
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
            row_rows_alone: 4,
            row_rows_many: 8,
            row_many: 16 << 10,
            row_rows_shared: 16,
            gemv_tokens: MOST_GEMV_TOKENS,
            gemv_lanes: 64,
            skinny_tokens: 64,
            skinny_rows: 64,
            tile_rows: 64,
            tile_tokens: 32,
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
        assert_eq!(tuning.with("tile_rows", 32), None);
        assert_eq!(tuning.with("gemv_tokens", u32::MAX), None);
        assert_eq!(tuning.with("rows", 1), None);
        let other = tuning.with("skinny_tokens", 0).expect("none at all");
        assert_ne!(other, tuning);
    }
}
