//! The bodies of a matrix product with their shapes, and which suits a device, its tuning and a number of
//! tokens. Knows no chain and no format.

use super::row_input::RowInput;
use super::weight::{GROUP, SPAN_GROUPS};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::KernelKey;
use crate::tuning::{MOST_GEMV_TOKENS, Tuning};

/// Fewest rows a workgroup of any regime computes.
pub const LEAST_ROWS: u32 = 4;

/// A body with its constants: what a lane, a workgroup and a token's neighbours share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Regime {
    /// Processors, any number of tokens: a lane owns some rows.
    Row {
        /// Most tokens a workgroup computes: 1, 2 or 4.
        tokens: u32,
        /// Rows a lane.
        rows: u32,
        /// How inputs reach the lanes.
        input: RowInput,
        /// Lanes a workgroup.
        lanes: u32,
    },
    /// GPUs, up to 8 tokens: a lane owns a span of four rows.
    Gemv {
        /// Tokens a workgroup computes: 1, 2, 4 or 8.
        tokens: u32,
        /// Lanes a workgroup.
        lanes: u32,
    },
    /// GPUs, more tokens: a workgroup a tile, a lane 4 × 4 of it.
    Tile {
        /// Rows, a multiple of 4.
        rows: u32,
        /// Tokens, a multiple of 4.
        tokens: u32,
    },
}

/// What a variant of a GPU's body asks of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Lanes of a workgroup.
    pub invocations: u32,
    /// Most bytes of its memory, whatever the formats.
    pub workgroup_bytes: u32,
}

impl Needs {
    fn of_gemv(tokens: u32, lanes: u32) -> Self {
        Self {
            invocations: lanes,
            // Sums of a span and of all before it, four rows each.
            workgroup_bytes: 2 * 16 * lanes * tokens,
        }
    }

    fn of_tile(rows: u32, tokens: u32) -> Self {
        Self {
            invocations: rows * tokens / 16,
            // A group as singles, and the longest scales: those of `Q2_K`.
            workgroup_bytes: (4 * GROUP + 24) * (rows + tokens),
        }
    }

    /// What the variant that a key names asks for; `None` for processors' bodies.
    pub fn of(key: &KernelKey) -> Option<Self> {
        match key.body {
            "matmul_gemv" => Some(Self::of_gemv(key.value("TOKENS"), key.value("LANES"))),
            "matmul_tile" => {
                let [rows, tokens] = ["LANES_ROW", "LANES_TOKEN"].map(|lanes| 4 * key.value(lanes));
                Some(Self::of_tile(rows, tokens))
            }
            _ => None,
        }
    }

    /// Whether a device has as much.
    pub fn fit(self, caps: &Caps) -> bool {
        self.invocations <= caps.max_invocations && self.workgroup_bytes <= caps.max_workgroup_bytes
    }
}

impl Regime {
    /// Tiles that every device has room for, of 16 tokens.
    pub const SKINNY: Self = Self::Tile {
        rows: 64,
        tokens: 16,
    };
    /// The same of 32.
    pub const GEMM: Self = Self::Tile {
        rows: 64,
        tokens: 32,
    };

    /// The matrix-vector body with as many lanes as every device has.
    pub const fn gemv(tokens: u32) -> Self {
        Self::Gemv { tokens, lanes: 64 }
    }

    /// The regime for `tokens` tokens on a device.
    pub fn choose(caps: &Caps, tokens: u32) -> Self {
        match caps.kind {
            DeviceKind::Cpu => {
                let (input, lanes) = match caps.subgroups {
                    Some((4, 4)) => (RowInput::Subgroup4, 8),
                    // A workgroup must be one subgroup, so its size must be known.
                    Some((min, max)) if min == max && (8..=64).contains(&min) => {
                        (RowInput::Subgroup8, min)
                    }
                    _ => (RowInput::Uniform, 8),
                };
                let tokens = tokens
                    .clamp(1, input.most_tokens().min(caps.tuning.row_tokens))
                    .next_power_of_two();
                Self::Row {
                    tokens,
                    rows: match tokens {
                        1 => caps.tuning.row_rows_alone,
                        _ => caps.tuning.row_rows_shared,
                    },
                    input,
                    lanes,
                }
            }
            DeviceKind::Gpu => Self::on_gpu(caps, tokens),
        }
    }

    /// What is tuned where the device has room for it, else what every device has room for.
    fn on_gpu(caps: &Caps, tokens: u32) -> Self {
        let tuning = &caps.tuning;
        let (tuned, else_this) = if tokens <= tuning.gemv_tokens {
            let tokens = tokens.clamp(1, MOST_GEMV_TOKENS).next_power_of_two();
            let lanes = tuning.gemv_lanes;
            (Self::Gemv { tokens, lanes }, Self::gemv(tokens))
        } else if tokens <= tuning.skinny_tokens {
            let rows = tuning.skinny_rows;
            (Self::Tile { rows, tokens: 16 }, Self::SKINNY)
        } else {
            let (rows, tokens) = (tuning.tile_rows, tuning.tile_tokens);
            (Self::Tile { rows, tokens }, Self::GEMM)
        };
        if tuned.fits(caps) { tuned } else { else_this }
    }

    fn fits(self, caps: &Caps) -> bool {
        match self {
            Self::Row { .. } => true,
            Self::Gemv { tokens, lanes } => Needs::of_gemv(tokens, lanes).fit(caps),
            Self::Tile { rows, tokens } => Needs::of_tile(rows, tokens).fit(caps),
        }
    }

    /// The same for a matrix of so many rows: of very many, such as a vocabulary's, a processor's lane
    /// takes more of them for one token; where rows are few, other cores would get nothing. How much that
    /// gains differs from run to run; sixteen gain more than eight on lavapipe, but compile twice as long.
    #[must_use]
    pub fn for_rows(self, matrix_rows: u32, tuning: &Tuning) -> Self {
        match self {
            Self::Row {
                tokens: 1,
                input,
                lanes,
                ..
            } if matrix_rows >= tuning.row_many => Self::Row {
                tokens: 1,
                rows: tuning.row_rows_many,
                input,
                lanes,
            },
            other => other,
        }
    }

    /// Tokens that a device computes at a time and that take as long as one of them; 1 where the regimes
    /// follow the number of tokens closely enough.
    pub fn token_tile(caps: &Caps) -> u32 {
        match caps.kind {
            DeviceKind::Cpu => Self::choose(caps, u32::MAX).token_step(),
            DeviceKind::Gpu => 1,
        }
    }

    /// A regime of every kind that a device can run, as it is where nothing is tuned; all give the same
    /// bits on it, and so do [`others`](Self::others).
    pub fn all(caps: &Caps) -> Vec<Self> {
        let rows = Self::rows_of(caps, [(1, 4), (2, 16), (4, 16)]);
        rows.into_iter()
            .chain([1, 2, 4, 8].map(Self::gemv))
            .chain([Self::SKINNY, Self::GEMM])
            .collect()
    }

    /// Every other shape of them that tuning may choose on a device.
    pub fn others(caps: &Caps) -> Vec<Self> {
        let rows = Self::rows_of(caps, [(1, 8), (1, 16), (2, 8), (4, 8)]);
        let gemv = [1, 2, 4, 8].into_iter().flat_map(|tokens| {
            let lanes = [32, 128].into_iter();
            lanes.map(move |lanes| Self::Gemv { tokens, lanes })
        });
        let tiles = [(32, 16), (128, 16), (64, 64), (128, 32), (128, 64)];
        let tiles = tiles.map(|(rows, tokens)| Self::Tile { rows, tokens });
        let all = rows.into_iter().chain(gemv).chain(tiles);
        all.filter(|regime| regime.fits(caps)).collect()
    }

    /// Processors' regimes of so many (tokens, rows a lane), by each way that a device's inputs can go.
    fn rows_of<const N: usize>(caps: &Caps, shapes: [(u32, u32); N]) -> Vec<Self> {
        let mut inputs = vec![(RowInput::Uniform, 8)];
        // Lanes of a subgroup are known to be consecutive on processors only.
        if caps.kind == DeviceKind::Cpu
            && let Self::Row { input, lanes, .. } = Self::choose(caps, 1)
            && input != RowInput::Uniform
        {
            inputs.push((input, lanes));
        }
        let all = inputs.into_iter().flat_map(|(input, lanes)| {
            let shapes = shapes.into_iter();
            let fine = shapes.filter(move |&(tokens, _)| tokens <= input.most_tokens());
            fine.map(move |(tokens, rows)| Self::Row {
                tokens,
                rows,
                input,
                lanes,
            })
        });
        all.collect()
    }

    /// Most tokens a workgroup computes.
    pub fn tokens(self) -> u32 {
        match self {
            Self::Row { tokens, .. } | Self::Gemv { tokens, .. } | Self::Tile { tokens, .. } => {
                tokens
            }
        }
    }

    /// Tokens that the grid counts: a processor's workgroup computes those of its tokens that there are,
    /// two at a time, for beside a few decodes a step has only a few of a prompt.
    pub(super) fn token_step(self) -> u32 {
        match self {
            Self::Row { tokens, .. } => tokens.min(2),
            _ => self.tokens(),
        }
    }

    /// Rows a workgroup computes.
    pub fn rows(self, groups: u32) -> u32 {
        match self {
            Self::Row { rows, lanes, .. } => rows * lanes,
            Self::Gemv { lanes, .. } => {
                let spans = groups.div_ceil(SPAN_GROUPS).clamp(1, lanes);
                LEAST_ROWS * (lanes / spans)
            }
            Self::Tile { rows, .. } => rows,
        }
    }
}

/// Regimes of any device.
pub(super) fn of_every_device(regimes: fn(&Caps) -> Vec<Regime>) -> Vec<Regime> {
    let mut found = Vec::new();
    for subgroups in [None, Some((4, 4)), Some((8, 8))] {
        let caps = Caps {
            subgroups,
            max_invocations: u32::MAX,
            max_workgroup_bytes: u32::MAX,
            ..Caps::reference()
        };
        for regime in regimes(&caps) {
            if !found.contains(&regime) {
                found.push(regime);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regime_by_device_and_tokens() {
        let gpu = Caps::portable_gpu();
        let tokens = [1, 2, 3, 8, 9, 64, 65].map(|n| Regime::choose(&gpu, n).tokens());
        assert_eq!(tokens, [1, 2, 4, 8, 16, 16, 32]);
        let mut cpu = Caps::reference();
        assert_eq!(Regime::choose(&cpu, 1).tokens(), 1);
        cpu.subgroups = Some((8, 8));
        assert_eq!(Regime::choose(&cpu, 34).tokens(), 4);
        cpu.subgroups = Some((4, 16));
        assert!(matches!(
            Regime::choose(&cpu, 34),
            Regime::Row {
                input: RowInput::Uniform,
                ..
            }
        ));
    }

    #[test]
    fn a_tuned_shape_where_there_is_room_for_it() {
        let mut gpu = Caps::portable_gpu();
        assert!(
            Regime::all(&gpu)
                .into_iter()
                .all(|regime| regime.fits(&gpu))
        );
        let fields = [
            ("gemv_lanes", 128),
            ("skinny_rows", 128),
            ("tile_tokens", 64),
        ];
        for (field, value) in fields {
            gpu.tuning = gpu.tuning.with(field, value).expect("a shape");
        }
        let chosen = |caps: &Caps| [1, 8, 16, 256].map(|tokens| Regime::choose(caps, tokens));
        let few = Regime::Gemv {
            tokens: 1,
            lanes: 128,
        };
        let usual = [few, Regime::gemv(8), Regime::SKINNY, Regime::GEMM];
        assert_eq!(chosen(&gpu), usual);
        gpu.max_workgroup_bytes = 32 << 10;
        let tuned = chosen(&gpu).map(|regime| (regime.rows(1000), regime.tokens()));
        assert_eq!(tuned, [(4, 1), (4, 8), (128, 16), (64, 64)]);
        assert!(!chosen(&gpu).contains(&Regime::gemv(8)));
    }

    #[test]
    fn a_vocabulary_has_more_rows_a_lane() {
        let cpu = Caps::reference();
        let rows = |matrix: u32, tokens: u32| {
            let regime = Regime::choose(&cpu, tokens).for_rows(matrix, &cpu.tuning);
            (regime.rows(18), regime.tokens())
        };
        assert_eq!(rows(16383, 1), (4 * 8, 1));
        assert_eq!(rows(16384, 1), (8 * 8, 1));
        assert_eq!(rows(16384, 2), rows(576, 2));
    }

    #[test]
    fn short_rows_share_a_workgroup() {
        let rows = [1, 18, 48, 256, 1000].map(|g| Regime::gemv(1).rows(g));
        assert_eq!(rows, [256, 48, 20, 4, 4]);
    }
}
