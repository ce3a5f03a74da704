//! What is asked of a device: which of some ways to compute a product is fastest, for which matrices and
//! tokens. Knows ways by the choices that lead to them; times nothing.

use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::kernels::matmul::Regime;
use twoclock_shaders::kernels::weight::WeightFormat;
use twoclock_shaders::tuning::Tuning;

/// A way to compute a product, and the choices that lead to it.
pub(super) type Way = (&'static str, &'static [(&'static str, u32)]);

/// How times become choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The way that is best over all.
    Best,
    /// Each for a range of tokens: most tokens of the first, and of the second.
    Borders([&'static str; 2]),
}

/// Which way is fastest.
pub(super) struct Question {
    /// For people and files.
    pub(super) what: &'static str,
    /// From the one for fewest tokens on.
    pub(super) ways: &'static [Way],
    /// Tokens that are timed.
    pub(super) tokens: &'static [u32],
    /// Rows and columns.
    pub(super) matrices: &'static [[u32; 2]],
    /// Of their weights.
    pub(super) formats: &'static [WeightFormat],
    /// How times become choices.
    pub(super) answer: Answer,
}

/// No border lies higher.
const ALL: u32 = 1 << 20;

const FORMATS: &[WeightFormat] = &[WeightFormat::Q4_0, WeightFormat::Q4K];

/// Of a feed-forward network, up and down.
const SMALL: &[[u32; 2]] = &[[1536, 576], [576, 1536]];
const LARGE: &[[u32; 2]] = &[[14336, 4096], [4096, 14336]];

const OF_PROCESSORS: &[Question] = &[
    Question {
        what: "rows a lane, one token",
        ways: &[
            ("4 rows", &[("row_rows_alone", 4)]),
            ("8 rows", &[("row_rows_alone", 8)]),
        ],
        tokens: &[1],
        matrices: SMALL,
        formats: FORMATS,
        answer: Answer::Best,
    },
    Question {
        what: "rows a lane, one token, a vocabulary",
        ways: &[
            ("4 rows", &[("row_rows_many", 4)]),
            ("8 rows", &[("row_rows_many", 8)]),
            ("16 rows", &[("row_rows_many", 16)]),
        ],
        tokens: &[1],
        matrices: &[[49152, 576]],
        formats: &[WeightFormat::Q8_0, WeightFormat::Q6K],
        answer: Answer::Best,
    },
    Question {
        what: "rows a lane, several tokens",
        ways: &[
            ("8 rows", &[("row_rows_shared", 8)]),
            ("16 rows", &[("row_rows_shared", 16)]),
        ],
        tokens: &[4, 64],
        matrices: SMALL,
        formats: FORMATS,
        answer: Answer::Best,
    },
    Question {
        what: "tokens a workgroup",
        ways: &[
            ("1 token", &[("row_tokens", 1)]),
            ("2 tokens", &[("row_tokens", 2)]),
            ("4 tokens", &[("row_tokens", 4)]),
        ],
        tokens: &[4, 8, 64],
        matrices: SMALL,
        formats: FORMATS,
        answer: Answer::Best,
    },
];

const OF_GPUS: &[Question] = &[
    Question {
        what: "lanes, matrix × vector",
        ways: &[
            ("32 lanes", &[("gemv_tokens", ALL), ("gemv_lanes", 32)]),
            ("64 lanes", &[("gemv_tokens", ALL), ("gemv_lanes", 64)]),
            ("128 lanes", &[("gemv_tokens", ALL), ("gemv_lanes", 128)]),
        ],
        tokens: &[1, 4, 8],
        matrices: LARGE,
        formats: FORMATS,
        answer: Answer::Best,
    },
    Question {
        what: "rows of a tile of 16 tokens",
        ways: &[
            (
                "32 rows",
                &[
                    ("gemv_tokens", 0),
                    ("skinny_tokens", ALL),
                    ("skinny_rows", 32),
                ],
            ),
            (
                "64 rows",
                &[
                    ("gemv_tokens", 0),
                    ("skinny_tokens", ALL),
                    ("skinny_rows", 64),
                ],
            ),
            (
                "128 rows",
                &[
                    ("gemv_tokens", 0),
                    ("skinny_tokens", ALL),
                    ("skinny_rows", 128),
                ],
            ),
        ],
        tokens: &[16, 48],
        matrices: LARGE,
        formats: FORMATS,
        answer: Answer::Best,
    },
    Question {
        what: "larger tiles, rows × tokens",
        ways: &[
            ("64 × 32", &tile(64, 32)),
            ("128 × 32", &tile(128, 32)),
            ("64 × 64", &tile(64, 64)),
            ("128 × 64", &tile(128, 64)),
        ],
        tokens: &[64, 256],
        matrices: LARGE,
        formats: FORMATS,
        answer: Answer::Best,
    },
    Question {
        what: "bodies by tokens",
        ways: &[
            ("matrix × vector", &[("gemv_tokens", ALL)]),
            ("tiles of 16", &[("gemv_tokens", 0), ("skinny_tokens", ALL)]),
            ("larger tiles", &[("gemv_tokens", 0), ("skinny_tokens", 0)]),
        ],
        tokens: &[1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256],
        matrices: LARGE,
        formats: FORMATS,
        answer: Answer::Borders(["gemv_tokens", "skinny_tokens"]),
    },
];

const fn tile(rows: u32, tokens: u32) -> [(&'static str, u32); 4] {
    [
        ("gemv_tokens", 0),
        ("skinny_tokens", 0),
        ("tile_rows", rows),
        ("tile_tokens", tokens),
    ]
}

/// In this order: those behind are asked with what was chosen before.
pub(super) fn of(kind: DeviceKind) -> &'static [Question] {
    match kind {
        DeviceKind::Cpu => OF_PROCESSORS,
        DeviceKind::Gpu => OF_GPUS,
    }
}

impl Question {
    /// The ways that a device has, with the tuning that leads to each. One that it has no room for is
    /// another's twin.
    pub(super) fn ways(&self, caps: &Caps, so_far: Tuning) -> Vec<(&'static str, Tuning)> {
        let mut known = Vec::new();
        let mut ways = Vec::new();
        for (name, fields) in self.ways {
            let tuning = led(so_far, *fields);
            let caps = Caps {
                tuning,
                ..caps.clone()
            };
            let regimes: Vec<Regime> = self
                .tokens
                .iter()
                .flat_map(|&tokens| {
                    let regime = Regime::choose(&caps, tokens);
                    self.matrices
                        .iter()
                        .map(move |[rows, _]| regime.for_rows(*rows, &tuning))
                })
                .collect();
            if !known.contains(&regimes) {
                known.push(regimes);
                ways.push((*name, tuning));
            }
        }
        ways
    }

    /// What is kept where a way is best: what ways differ in. The rest only leads to the body.
    pub(super) fn kept(&self, way: &str, so_far: Tuning) -> Tuning {
        let way = self.ways.iter().find(|(name, _)| *name == way);
        let fields = way.map_or(&[][..], |(_, fields)| fields);
        led(so_far, fields.iter().filter(|(field, _)| self.owns(field)))
    }

    /// Whether its answer sets a field.
    pub(super) fn asks(&self, field: &str) -> bool {
        match self.answer {
            Answer::Best => self.owns(field),
            Answer::Borders(fields) => fields.contains(&field),
        }
    }

    /// Whether ways differ in a field.
    fn owns(&self, field: &str) -> bool {
        let value = |way: &Way| way.1.iter().find(|(name, _)| *name == field).map(|f| f.1);
        self.ways
            .iter()
            .any(|way| value(way) != value(&self.ways[0]))
    }
}

fn led<'a>(tuning: Tuning, fields: impl IntoIterator<Item = &'a (&'static str, u32)>) -> Tuning {
    fields.into_iter().fold(tuning, |tuning, (field, value)| {
        tuning.with(field, *value).unwrap_or(tuning)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_a_choice_and_leads_somewhere_else() {
        let mut gpu = Caps::portable_gpu();
        (gpu.max_invocations, gpu.max_workgroup_bytes) = (1024, 48 << 10);
        for caps in [Caps::reference(), gpu] {
            for question in of(caps.kind) {
                for (_, fields) in question.ways {
                    for (field, value) in *fields {
                        assert!(caps.tuning.with(field, *value).is_some(), "{field} {value}");
                    }
                }
                let ways = question.ways(&caps, caps.tuning);
                let all = question.ways.len();
                // Without subgroups no workgroup of a processor has more than two tokens.
                let twins = usize::from(question.what == "tokens a workgroup");
                assert_eq!(ways.len(), all - twins, "{}", question.what);
            }
        }
    }

    #[test]
    fn what_has_no_room_is_not_asked_and_what_led_to_a_body_is_not_kept() {
        let caps = Caps::portable_gpu();
        let tiles = OF_GPUS
            .iter()
            .find(|q| q.what.starts_with("larger"))
            .expect("one");
        let ways: Vec<_> = tiles
            .ways(&caps, caps.tuning)
            .into_iter()
            .map(|way| way.0)
            .collect();
        assert_eq!(ways, ["64 × 32"]);
        let kept = tiles.kept("128 × 64", caps.tuning);
        assert_eq!((kept.tile_rows, kept.tile_tokens), (128, 64));
        assert_eq!(kept.skinny_tokens, caps.tuning.skinny_tokens);
    }
}
