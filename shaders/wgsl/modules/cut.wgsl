// Where a row's cut is looked for: a state, then two words a bin. Order: kernels/sample_scan.rs.
const STAGE_MAX = 0u;
const STAGE_COUNT = 1u;
const STAGE_MASS = 2u;
const CUT_MAX = 0u;
const CUT_CUT = 1u;
const CUT_PREFIX = 2u;
const CUT_RANK = 3u;
const CUT_ABOVE = 4u;
const CUT_TARGET = 6u;
const CUT_TOP = 8u;
const CUT_BINS = 12u;
const CUT_ROW_WORDS = 524u;

// Whether the row of this sampling record takes part in a stage.
fn cut_wanted(record: u32, stage: u32) -> bool {
  switch stage {
    case STAGE_COUNT: { return step[record + SAMPLE_TOP_K] != 0u; }
    case STAGE_MASS: { return step[record + SAMPLE_TOP_P] != 0u; }
    default: { return step[record + SAMPLE_FILTERS] != 0u; }
  }
}
